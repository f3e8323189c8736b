//! A private mapping of a file, at an address of the kernel's choice until it is moved.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use rustix::io::Errno;
use rustix::mm::{MprotectFlags, mprotect};

use crate::addresses::PAGE;
use crate::raw;

/// The mapping. Dropped, it is unmapped.
#[derive(Debug)]
pub struct Mapped {
    at: u64,
    /// The file's bytes in it.
    bytes: u64,
    is_writable: bool,
}

impl Mapped {
    /// Maps `bytes` of a file from `offset` on, if it has them.
    pub fn new(file: &File, offset: u64, bytes: u64, protection: u32) -> Option<Self> {
        let of = file.metadata().ok()?;
        let is_there = of.is_file() && bytes > 0 && offset.checked_add(bytes)? <= of.len();
        if !is_there || !offset.is_multiple_of(PAGE) {
            return None;
        }
        let (flags, descriptor) = (libc::MAP_PRIVATE as u64, file.as_raw_fd() as u64);
        let arguments = [0, bytes, protection.into(), flags, descriptor, offset];
        // SAFETY: a new mapping.
        let at = unsafe { raw::call(libc::SYS_mmap as u64, arguments) };
        u64::try_from(at).ok().map(|at| Self { at, bytes, is_writable: false })
    }

    /// Makes the mapping writable, if that is possible. Its file does not change.
    pub fn writable(mut self) -> Option<Self> {
        self.protect((libc::PROT_READ | libc::PROT_WRITE) as u32).ok()?;
        self.is_writable = true;
        Some(self)
    }

    /// Returns the file's bytes, as this mapping has them.
    ///
    /// # Panics
    /// The mapping is not [writable](Self::writable).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_writable, "a writable mapping");
        // SAFETY: a private mapping of this object, which can be written.
        unsafe {
            let start = std::ptr::with_exposed_provenance_mut(self.at as usize);
            std::slice::from_raw_parts_mut(start, self.bytes as usize)
        }
    }

    /// Sets the protection.
    pub fn protect(&mut self, to: u32) -> Result<(), Errno> {
        self.is_writable = false;
        let start = std::ptr::with_exposed_provenance_mut(self.at as usize);
        // SAFETY: the mapping of this object, to which no reference exists.
        unsafe { mprotect(start, self.bytes as usize, MprotectFlags::from_bits_truncate(to)) }
    }

    /// Moves the mapping. Returns true if that succeeded.
    ///
    /// # Safety
    /// Nothing uses the addresses there.
    pub unsafe fn move_to(self, start: u64) -> bool {
        let moving = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let bytes = self.bytes.next_multiple_of(PAGE);
        let arguments = [self.at, bytes, bytes, moving, start, 0];
        // SAFETY: this function requires addresses that nothing uses.
        let is_moved = unsafe { raw::call(libc::SYS_mremap as u64, arguments) >= 0 };
        if is_moved {
            std::mem::forget(self);
        }
        is_moved
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: unmaps the mapping of this object.
        unsafe { raw::call(libc::SYS_munmap as u64, [self.at, self.bytes, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_changes_without_its_file_and_moves() {
        let file = File::open("/proc/self/exe").unwrap();
        let mapped = Mapped::new(&file, 0, 2 * PAGE, libc::PROT_READ as u32).unwrap();
        let mut mapped = mapped.writable().unwrap();
        let bytes = mapped.bytes_mut();
        assert_eq!(bytes[..4], *b"\x7fELF");
        bytes[0] = 1;
        mapped.protect(libc::PROT_READ as u32).unwrap();
        let room = Mapped::new(&file, 0, 2 * PAGE, 0).unwrap();
        // SAFETY: the test's own mapping, which is replaced.
        unsafe {
            assert!(mapped.move_to(room.at));
            assert_eq!(*(room.at as *const u8), 1);
        }
        let length = file.metadata().unwrap().len();
        assert!(Mapped::new(&file, 0, length + 1, 1).is_none(), "the file has no more");
        assert!(Mapped::new(&file, 7, PAGE, 1).is_none());
    }
}
