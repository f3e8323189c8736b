//! A delegatee's queue, as it lies in its segment: a head that says what it is, and a ring.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use control::Identity;
use sync::mapped::{Mapped, size_of_ring};
use sync::ring::{Buffer as _, HEADER_SIZE, LINE_SIZE};

use crate::error::Error;

/// The name in the export area.
pub const NAME: &[u8] = b"pvas_delegate";

/// The first word of a queue, with the version of what follows.
const MAGIC: u64 = u64::from_le_bytes(*b"delegat\x03");

/// Most bytes that a request carries.
pub const PAYLOAD_MAX: usize = 1024 - HEADER_SIZE - ENVELOPE_SIZE;
/// Bytes of a request before its payload.
pub const ENVELOPE_SIZE: usize = 16;

/// Words by which a task holds whom it works for, those by which it sends, and those by
/// which it holds whom it will answer later.
pub const SERVE: std::ops::Range<usize> = control::hold::WORK;
/// See [`SERVE`].
pub const SEND: std::ops::Range<usize> = SERVE.end..KEEP.start;
/// See [`SERVE`].
pub const KEEP: std::ops::Range<usize> = control::hold::KEEP;

/// What a requester reads. The ring follows.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Head {
    magic: u64,
    lines: u32,
    /// Set: no more requests, please. Serving threads sleep on it.
    pub closed: AtomicU32,
    /// How many requests of those on their way are to be cancelled, or once were, of tasks
    /// that have ended since: while it is 0, nobody looks for them.
    pub cancels: AtomicU32,
    /// The name of the socket by which descriptors are passed (`passed`); 0: there is none.
    pub socket: AtomicU64,
}

/// A request, in the ring behind the ring's own header. The header's source is the
/// requester's ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Where its record is.
    pub record: u64,
    /// The operation.
    pub operation: u32,
    /// Which of the tasks that had the ID.
    pub generation: u32,
}

impl Envelope {
    /// As it lies in the ring.
    #[inline]
    pub fn bytes(self) -> [u8; ENVELOPE_SIZE] {
        let both = u64::from(self.generation) << 32 | u64::from(self.operation);
        (u128::from(both) << 64 | u128::from(self.record)).to_le_bytes()
    }

    /// From there.
    #[inline]
    pub fn parse(bytes: [u8; ENVELOPE_SIZE]) -> Self {
        let all = u128::from_le_bytes(bytes);
        let both = (all >> 64) as u64;
        Self { record: all as u64, operation: both as u32, generation: (both >> 32) as u32 }
    }
}

/// By what the ring's receiver asks whether a sender lives.
#[inline]
pub fn ticket(sender: Identity) -> u32 {
    sender.id << 16 | sender.generation & 0xffff
}

/// A queue of ours or of others: where its parts are.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    head: NonNull<Head>,
    /// The ring.
    pub ring: Mapped,
}

// SAFETY: shared memory by design; what changes in it are atomics, or the ring's.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// Bytes of a queue.
pub fn size(lines: u32) -> usize {
    LINE_SIZE + size_of_ring(lines)
}

impl Queue {
    /// Makes one, which stays for ever: others may know of it as long as the task lives.
    pub fn make(lines: u32) -> Result<Self, Error> {
        let layout = Layout::from_size_align(size(lines), LINE_SIZE).expect("a few MiB");
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let head = NonNull::new(memory.cast::<Head>()).ok_or(Error::NoMemory)?;
        // SAFETY: new memory, large enough, and aligned.
        unsafe {
            (*head.as_ptr()).magic = MAGIC;
            (*head.as_ptr()).lines = lines;
            Ok(Self::over(head, lines))
        }
    }

    /// # Safety
    /// A queue of so many lines is there, for as long as this is used.
    unsafe fn over(head: NonNull<Head>, lines: u32) -> Self {
        // SAFETY: as the caller says; it was made zero.
        unsafe { Self { head, ring: Mapped::at(head.cast::<u8>().add(LINE_SIZE), lines) } }
    }

    /// The queue that somebody says is there; `None` if there is none.
    ///
    /// # Safety
    /// The caller holds the task that exported this memory, which lies in its segment.
    pub unsafe fn find(address: u64, bytes: u64) -> Option<Self> {
        let head = NonNull::new(address as *mut Head)?;
        if !address.is_multiple_of(LINE_SIZE as u64) || bytes < size(4) as u64 {
            return None;
        }
        // SAFETY: a task's export is mapped, and large enough for a head.
        let (magic, lines) = unsafe { ((*head.as_ptr()).magic, (*head.as_ptr()).lines) };
        let fits = lines.is_power_of_two() && size(lines) as u64 == bytes && lines >= 4;
        // SAFETY: as the caller says.
        (magic == MAGIC && fits).then(|| unsafe { Self::over(head, lines) })
    }

    /// What requesters read.
    #[inline]
    pub fn head(&self) -> &Head {
        // SAFETY: what is no atomic does not change; mapped as `find` and `make` say.
        unsafe { self.head.as_ref() }
    }

    /// Where it is, and its bytes.
    pub fn place(&self) -> (u64, u64) {
        (self.head.as_ptr() as u64, size(self.ring.lines()) as u64)
    }
}
