//! A mapped part of a window's memory.

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::error::WindowError;
use crate::memory::Memory;

/// A mapped part of a window's memory, at an address that the kernel chose.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is shared between processes by design, and accessed through atomics and
// copies. A mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: see `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `part` of the memory: whole pages.
    pub fn of(memory: &Memory, part: Range<usize>) -> Result<Self, WindowError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (length, from) = (part.len(), part.start as u64);
        // SAFETY: without MAP_FIXED, the kernel chooses unused addresses.
        unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, memory, from) }
            .and_then(|base| NonNull::new(base.cast()).ok_or(Errno::NOMEM))
            .map(|base| Self { base, length })
            .map_err(|error| {
                let place = memory.place().to_owned();
                WindowError::System { doing: "map", place, error }
            })
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the address of `length` bytes, `at` bytes from the start.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline]
    pub fn address(&self, at: usize, length: usize) -> NonNull<u8> {
        assert!(at <= self.length && length <= self.length - at);
        // SAFETY: `at` is inside the mapping by the assertion.
        unsafe { self.base.add(at) }
    }

    /// Returns a word; `at` is a multiple of 8.
    ///
    /// # Panics
    /// If it is not inside.
    #[inline]
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(size_of::<u64>()));
        // SAFETY: `address` has checked the bounds. `base` is page-aligned and `at` a multiple of
        // 8, so the word is aligned. All processes access it as an atomic.
        unsafe { self.address(at, size_of::<u64>()).cast().as_ref() }
    }

    /// Populates the pages of `part` by one call. Returns false if the system has no memory. (Since
    /// Linux 5.14; before, pages are populated one by one at their first use.)
    pub fn populate(&self, part: Range<usize>) -> bool {
        let at = self.address(part.start, part.len());
        // SAFETY: `address` has checked that `part` is inside this mapping; the call keeps its
        // contents.
        let done = unsafe { madvise(at.as_ptr().cast(), part.len(), Advice::LinuxPopulateWrite) };
        !matches!(done, Err(Errno::NOMEM | Errno::FAULT))
    }

    /// Leaves the mapping out of core files. If the call fails, they are larger.
    pub fn spare_core_files(&self) {
        // SAFETY: `base` and `length` are those of this mapping; the call keeps its contents.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.length, Advice::LinuxDontDump) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `length` are those of this mapping. References into it borrow `self`,
        // and holders of raw addresses keep the window, which owns `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
