//! The ring in memory that processes share: where its parts lie, and plain copies.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::ring::{Buffer, HEADER_SIZE, LINE_SIZE, LINES_MAX};
use crate::word::fence_after_exchange;

/// Offsets of the parts of a ring in bytes. Tail and head have separate lines: senders write the
/// tail, the receiver writes the head.
const TAIL_AT: usize = 0;
const HEAD_AT: usize = LINE_SIZE;
const CLAIMS_AT: usize = 2 * LINE_SIZE;

fn lines_at(lines: u32) -> usize {
    CLAIMS_AT + (lines as usize * size_of::<u64>()).next_multiple_of(LINE_SIZE)
}

/// Bytes of memory that a ring of `lines` lines takes.
pub fn size_of_ring(lines: u32) -> usize {
    lines_at(lines) + lines as usize * LINE_SIZE
}

/// A ring at an address.
#[derive(Debug, Clone, Copy)]
pub struct Mapped {
    base: NonNull<u8>,
    /// The first line.
    data: NonNull<u8>,
    lines: u32,
}

// SAFETY: the memory is shared by design. It is reached through atomics, or as the protocol of
// `ring` allows.
unsafe impl Send for Mapped {}
// SAFETY: all threads reach the memory through atomics, or as the protocol of `ring` allows.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// The ring of `lines` lines at `base`.
    ///
    /// # Safety
    /// [`size_of_ring`] bytes are mapped there, readable and writable, for as long as this
    /// or a copy is used. They were zero when the first ring was made there, and only
    /// rings of the same size use them.
    ///
    /// # Panics
    /// If `lines` is no power of two from 4 to [`LINES_MAX`], or `base` no multiple of
    /// [`LINE_SIZE`].
    pub unsafe fn at(base: NonNull<u8>, lines: u32) -> Self {
        assert!(lines.is_power_of_two() && (4..=LINES_MAX).contains(&lines));
        assert!(base.as_ptr().addr().is_multiple_of(LINE_SIZE));
        // SAFETY: in the ring.
        let data = unsafe { base.add(lines_at(lines)) };
        Self { base, data, lines }
    }

    #[inline]
    fn word64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: in the ring, aligned, and only ever reached as an atomic.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Where `length` bytes of payload lie, `offset` bytes behind the header of `line`.
    #[inline]
    fn payload(&self, line: u32, offset: usize, length: usize) -> *mut u8 {
        let at = line as usize * LINE_SIZE + HEADER_SIZE + offset;
        assert!(at + length <= self.lines as usize * LINE_SIZE);
        // SAFETY: in the ring, as was just checked.
        unsafe { self.data.as_ptr().add(at) }
    }
}

impl Buffer for Mapped {
    type Word32 = AtomicU32;
    type Word64 = AtomicU64;

    #[inline]
    fn lines(&self) -> u32 {
        self.lines
    }
    #[inline]
    fn tail(&self) -> &AtomicU64 {
        self.word64(TAIL_AT)
    }
    #[inline]
    fn head(&self) -> &AtomicU32 {
        // SAFETY: in the ring, aligned, and only ever reached as an atomic.
        unsafe { &*self.base.as_ptr().add(HEAD_AT).cast::<AtomicU32>() }
    }
    #[inline]
    fn claim(&self, index: u32) -> &AtomicU64 {
        assert!(index < self.lines);
        self.word64(CLAIMS_AT + index as usize * size_of::<u64>())
    }
    #[inline]
    fn header(&self, line: u32) -> &AtomicU64 {
        assert!(line < self.lines);
        // SAFETY: in the ring, aligned, and only ever reached as an atomic.
        unsafe { &*self.data.as_ptr().add(line as usize * LINE_SIZE).cast::<AtomicU64>() }
    }
    #[inline]
    unsafe fn write(&self, line: u32, offset: usize, bytes: &[u8]) {
        let to = self.payload(line, offset, bytes.len());
        // SAFETY: inside the ring; the caller has reserved the lines.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
    #[inline]
    unsafe fn read(&self, line: u32, offset: usize, bytes: &mut [u8]) {
        let from = self.payload(line, offset, bytes.len());
        // SAFETY: inside the ring; published, and the caller has not consumed it. A peer
        // that breaks the rules can make the bytes wrong, and nothing else.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
    #[inline]
    fn fence(&self) {
        fence_after_exchange();
    }
}
