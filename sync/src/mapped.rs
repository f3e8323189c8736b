//! A [`ring`](crate::ring) in memory that processes share: the layout of its parts, and plain
//! copies of its payload.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::copy::copy;
use crate::ring::{Buffer, HEADER_SIZE, LINE_SIZE, LINES_MAX};
use crate::word::fence_after_exchange;

// Offsets of the parts of a ring in bytes. Tail and head have separate cache lines, since senders
// write the tail and the receiver writes the head.
const TAIL_AT: usize = 0;
const HEAD_AT: usize = LINE_SIZE;
const CLAIMS_AT: usize = 2 * LINE_SIZE;

fn lines_at(lines: u32) -> usize {
    CLAIMS_AT + (lines as usize * size_of::<u64>()).next_multiple_of(LINE_SIZE)
}

/// Returns the size in bytes of a ring of `lines` lines.
pub fn size_of_ring(lines: u32) -> usize {
    lines_at(lines) + lines as usize * LINE_SIZE
}

/// A ring at an address in shared memory.
#[derive(Debug, Clone, Copy)]
pub struct Mapped {
    base: NonNull<u8>,
    /// The first line.
    data: NonNull<u8>,
    lines: u32,
}

// SAFETY: `Mapped` holds pointers into shared memory. Words are accessed as atomics; payload is
// accessed only under `Buffer`'s contract, which gives a line to one thread at a time.
unsafe impl Send for Mapped {}
// SAFETY: words are accessed as atomics; payload is accessed only under `Buffer`'s contract, which
// gives a line to one thread at a time.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Returns the ring of `lines` lines at `base`.
    ///
    /// # Safety
    /// [`size_of_ring`] bytes must be mapped at `base`, readable and writable, for as long as the
    /// result or a copy of it is used. They must be zero when the first ring is made there. Only
    /// rings of the same size may use them.
    ///
    /// # Panics
    /// Panics if `lines` is not a power of two from 4 to [`LINES_MAX`], or if `base` is not a
    /// multiple of [`LINE_SIZE`].
    pub unsafe fn at(base: NonNull<u8>, lines: u32) -> Self {
        assert!(lines.is_power_of_two() && (4..=LINES_MAX).contains(&lines));
        assert!(base.as_ptr().addr().is_multiple_of(LINE_SIZE));
        // SAFETY: `lines_at(lines)` is less than `size_of_ring(lines)`, the bytes that this
        // function's contract says are mapped at `base`.
        let data = unsafe { base.add(lines_at(lines)) };
        Self { base, data, lines }
    }

    #[inline]
    fn word64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is `TAIL_AT` or the offset of a claim, so the word lies in the bytes that
        // `Mapped::at` requires to be mapped. It is aligned to 8, and always accessed as an atomic.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Returns the address of `length` bytes of payload, `offset` bytes behind the header of
    /// `line`.
    #[inline]
    fn payload(&self, line: u32, offset: usize, length: usize) -> *mut u8 {
        let at = line as usize * LINE_SIZE + HEADER_SIZE + offset;
        assert!(at + length <= self.lines as usize * LINE_SIZE);
        // SAFETY: the assertion above keeps `at` within the lines of the ring, which lie in the
        // bytes that `Mapped::at` requires to be mapped.
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
        // SAFETY: `HEAD_AT` lies in the bytes that `Mapped::at` requires to be mapped. The word is
        // aligned to a cache line, and always accessed as an atomic.
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
        // SAFETY: the assertion above keeps `line` within the ring, whose bytes `Mapped::at`
        // requires to be mapped. A header is aligned to its line, and always accessed as an atomic.
        unsafe { &*self.data.as_ptr().add(line as usize * LINE_SIZE).cast::<AtomicU64>() }
    }
    #[inline]
    unsafe fn write(&self, line: u32, offset: usize, bytes: &[u8]) {
        let to = self.payload(line, offset, bytes.len());
        // SAFETY: `payload` has checked that the bytes lie in the ring. By the contract of
        // `Buffer::write` the lines are reserved, so no other thread accesses them.
        unsafe { copy(bytes.as_ptr(), to, bytes.len()) };
    }
    #[inline]
    unsafe fn read(&self, line: u32, offset: usize, bytes: &mut [u8]) {
        let from = self.payload(line, offset, bytes.len());
        // SAFETY: `payload` has checked that the bytes lie in the ring. By the contract of
        // `Buffer::read` the message is published and not consumed, so no sender writes it. A peer
        // that violates the protocol can change the bytes, which have no invalid value.
        unsafe { copy(from, bytes.as_mut_ptr(), bytes.len()) };
    }
    #[inline]
    fn fence(&self) {
        fence_after_exchange();
    }
}
