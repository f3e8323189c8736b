//! A delegatee's queue in its segment: a head that describes it, and a ring.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use control::Identity;
use sync::mapped::{Mapped, size_of_ring};
use sync::ring::{Buffer as _, HEADER_SIZE, LINE_SIZE};

use crate::error::Error;

/// Name of the queue in the export area.
pub const NAME: &[u8] = b"pvas_delegate";

/// The first word of a queue, with the version of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"delegat\x03");

/// Longest payload of a request, in bytes.
pub const PAYLOAD_MAX: usize = 1024 - HEADER_SIZE - ENVELOPE_SIZE;
/// Bytes of a request before its payload.
pub const ENVELOPE_SIZE: usize = 16;

/// Hold words of a delegatee for the requesters that it serves.
pub const SERVE: std::ops::Range<usize> = control::hold::WORK;
/// Hold words of a requester for the delegatees to which it sends.
pub const SEND: std::ops::Range<usize> = SERVE.end..KEEP.start;
/// Hold words of a delegatee for the requesters whose requests it has deferred.
pub const KEEP: std::ops::Range<usize> = control::hold::KEEP;

/// The head of a queue, which requesters read. The ring follows.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Head {
    magic: u64,
    lines: u32,
    /// Not 0 if the delegatee accepts no requests. Serving threads sleep on this word.
    pub closed: AtomicU32,
    /// Number of pending cancellations, including those of tasks that have ended since. While it is
    /// 0, the delegatee does not look for cancelled requests.
    pub cancels: AtomicU32,
    /// Name of the socket for descriptors (`passed`), or 0.
    pub socket: AtomicU64,
}

/// The start of a request, behind the ring's header. The source in that header is the requester's
/// ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Address of its record.
    pub record: u64,
    /// Number of the operation.
    pub operation: u32,
    /// Generation of the requester.
    pub generation: u32,
}

impl Envelope {
    /// Returns the envelope as the ring carries it.
    #[inline]
    pub fn bytes(self) -> [u8; ENVELOPE_SIZE] {
        let both = u64::from(self.generation) << 32 | u64::from(self.operation);
        (u128::from(both) << 64 | u128::from(self.record)).to_le_bytes()
    }

    /// Parses an envelope.
    #[inline]
    pub fn parse(bytes: [u8; ENVELOPE_SIZE]) -> Self {
        let all = u128::from_le_bytes(bytes);
        let both = (all >> 64) as u64;
        Self { record: all as u64, operation: both as u32, generation: (both >> 32) as u32 }
    }
}

/// Returns the ticket by which the ring's receiver checks if a sender lives.
#[inline]
pub fn ticket(sender: Identity) -> u32 {
    sender.id << 16 | sender.generation & 0xffff
}

/// A queue of this task or of another: the addresses of its parts.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    head: NonNull<Head>,
    /// The ring.
    pub ring: Mapped,
}

// SAFETY: the memory is shared by design. Its changing words are atomics, and the ring orders
// access to the lines.
unsafe impl Send for Queue {}
// SAFETY: see `Send`.
unsafe impl Sync for Queue {}

/// Returns the bytes of a queue.
pub fn size(lines: u32) -> usize {
    LINE_SIZE + size_of_ring(lines)
}

impl Queue {
    /// Makes a queue. It is never freed: others may know its address as long as the task lives.
    pub fn make(lines: u32) -> Result<Self, Error> {
        let layout = Layout::from_size_align(size(lines), LINE_SIZE).expect("a few MiB");
        // SAFETY: `size` is at least a cache line, so the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let head = NonNull::new(memory.cast::<Head>()).ok_or(Error::NoMemory)?;
        // SAFETY: new memory of `size(lines)` bytes, aligned to a cache line by `layout`.
        unsafe {
            (*head.as_ptr()).magic = MAGIC;
            (*head.as_ptr()).lines = lines;
            Ok(Self::over(head, lines))
        }
    }

    /// Returns the queue at `head`.
    ///
    /// # Safety
    /// A queue of `lines` lines lies there, and remains mapped as long as the result is used.
    unsafe fn over(head: NonNull<Head>, lines: u32) -> Self {
        // SAFETY: the caller guarantees `size(lines)` bytes at `head`: the head's line, then the
        // ring, which was made zero.
        unsafe { Self { head, ring: Mapped::at(head.cast::<u8>().add(LINE_SIZE), lines) } }
    }

    /// Returns the queue at an exported address; `None` if there is none.
    ///
    /// # Safety
    /// The caller holds the task that exported this memory, which lies in its segment.
    pub unsafe fn find(address: u64, bytes: u64) -> Option<Self> {
        let head = NonNull::new(address as *mut Head)?;
        if !address.is_multiple_of(LINE_SIZE as u64) || bytes < size(4) as u64 {
            return None;
        }
        // SAFETY: the address is aligned, and the caller has checked that the exported bytes, which
        // are more than a head, lie in the held task's segment.
        let (magic, lines) = unsafe { ((*head.as_ptr()).magic, (*head.as_ptr()).lines) };
        let fits = lines.is_power_of_two() && size(lines) as u64 == bytes && lines >= 4;
        // SAFETY: `fits` has compared the number of lines with the exported bytes.
        (magic == MAGIC && fits).then(|| unsafe { Self::over(head, lines) })
    }

    /// Returns the head.
    #[inline]
    pub fn head(&self) -> &Head {
        // SAFETY: a queue's head is mapped as long as the `Queue` is used (`make`, `find`). Its
        // plain fields do not change after `make`.
        unsafe { self.head.as_ref() }
    }

    /// Returns its address and its bytes.
    pub fn location(&self) -> (u64, u64) {
        (self.head.as_ptr() as u64, size(self.ring.lines()) as u64)
    }
}
