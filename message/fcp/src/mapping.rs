//! A part of a window's memory, mapped.

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::error::WindowError;
use crate::memory::Memory;

/// A part of a window's memory, mapped where the kernel likes.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is shared by design, and reached through atomics and copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `part` of the memory, whole pages of it.
    pub fn of(memory: &Memory, part: Range<usize>) -> Result<Self, WindowError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (length, from) = (part.len(), part.start as u64);
        // SAFETY: a new mapping where the kernel likes.
        unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, memory, from) }
            .and_then(|base| NonNull::new(base.cast()).ok_or(Errno::NOMEM))
            .map(|base| Self { base, length })
            .map_err(|error| {
                let place = memory.place().to_owned();
                WindowError::System { doing: "map", place, error }
            })
    }

    /// Bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The address of `length` bytes, `at` bytes from the start.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline]
    pub fn address(&self, at: usize, length: usize) -> NonNull<u8> {
        assert!(at <= self.length && length <= self.length - at);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(at) }
    }

    /// A word; `at` is a multiple of 8.
    ///
    /// # Panics
    /// If it is not inside.
    #[inline]
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(size_of::<u64>()));
        // SAFETY: in the mapping, aligned, and only ever reached as an atomic.
        unsafe { self.address(at, size_of::<u64>()).cast().as_ref() }
    }

    /// Makes the pages of `part` be there, now and in one go. Whether the system has them.
    /// (Since Linux 5.14; before, they come one by one.)
    pub fn populate(&self, part: Range<usize>) -> bool {
        let at = self.address(part.start, part.len());
        // SAFETY: our own mapping, whose contents stay.
        let done = unsafe { madvise(at.as_ptr().cast(), part.len(), Advice::LinuxPopulateWrite) };
        !matches!(done, Err(Errno::NOMEM | Errno::FAULT))
    }

    /// Core files need not hold this. If the system will not have it, they are larger.
    pub fn spare_core_files(&self) {
        // SAFETY: our own mapping, whose contents stay.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.length, Advice::LinuxDontDump) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; who has a reference into it has one to us.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}
