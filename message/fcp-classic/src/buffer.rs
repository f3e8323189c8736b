//! One receive buffer of FCP or FCP plus, in the memory of a window.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use fcp::window::Window;
use sync::ring::LINE_SIZE;

use crate::queue::{MANAGEMENT, Words};

/// Least number of data words of a buffer: one part of a message takes an eighth of them.
const DATA_WORDS_MIN: u32 = 64;

/// One receive buffer in a window: a cache line of management, then the data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    base: NonNull<u8>,
    words: u32,
}

// SAFETY: `base` leads to memory that processes share. All access is by atomics, or by copies of
// payload, which the queue's protocol orders. The owner of a `Buffer` keeps the window mapped.
unsafe impl Send for Buffer {}
// SAFETY: see `Send`; a shared `Buffer` gives the same access as a copy of it.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Returns the buffer of member `index`, if the window lists buffers and has room for them.
    pub fn of(window: &Window, index: u16) -> Option<Self> {
        let (base, bytes) = window.listed_buffer(index)?;
        let data = u32::try_from(bytes.checked_sub(LINE_SIZE)? / size_of::<u32>()).ok()?;
        let words = 1 << data.checked_ilog2()?;
        (words >= DATA_WORDS_MIN).then_some(Self { base, words })
    }

    fn data_bytes(&self) -> usize {
        self.words as usize * size_of::<u32>()
    }

    fn word(&self, n: u32) -> &AtomicU32 {
        let at = n as usize * size_of::<u32>();
        debug_assert!(at < LINE_SIZE + self.data_bytes());
        // SAFETY: `management` and `data` bound `n` by the line and the data words, which
        // `Buffer::of` found inside the window. `base` is aligned to a cache line, and all
        // processes access these words as atomics.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    /// Returns the address of `length` bytes of data from byte `at` on.
    fn address(&self, at: u32, length: usize) -> *mut u8 {
        let at = at as usize;
        assert!(at + length <= self.data_bytes(), "payload outside the buffer");
        // SAFETY: `at` is inside the data by the assertion, and the data inside the window.
        unsafe { self.base.as_ptr().add(LINE_SIZE + at) }
    }
}

impl Words for Buffer {
    type Word = AtomicU32;
    type Lock = AtomicU64;

    fn words(&self) -> u32 {
        self.words
    }

    fn lock(&self) -> &AtomicU64 {
        // SAFETY: the first 8 bytes of the line, inside the window (`Buffer::of`), aligned to a
        // cache line, and accessed as an atomic by all processes.
        unsafe { self.base.cast().as_ref() }
    }

    fn management(&self, n: u32) -> &AtomicU32 {
        assert!((2..MANAGEMENT).contains(&n), "no word of management");
        self.word(n)
    }

    fn data(&self, n: u32) -> &AtomicU32 {
        // Another process may have overwritten the positions: the mask keeps `n` inside.
        self.word((LINE_SIZE / size_of::<u32>()) as u32 + (n & (self.words - 1)))
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        let to = self.address(at, bytes.len());
        // SAFETY: `address` has checked the bounds. The caller holds the buffer's lock, so no other
        // sender writes; `bytes` is private memory, so the two do not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn read(&self, at: u32, bytes: &mut [u8]) {
        let from = self.address(at, bytes.len());
        // SAFETY: `address` has checked the bounds. Senders write only behind the messages that
        // are there. A process that violates the protocol makes the bytes wrong, nothing else.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
}
