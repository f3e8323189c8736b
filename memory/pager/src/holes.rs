//! File mappings in which an access to an absent page is an error (SIGBUS) instead of a new page.
//! No thread stops, and nothing needs to resolve a fault.

use std::ops::Range;

use rustix::io::Errno;

use crate::access::Stops;
use crate::error::PagerError;
use crate::userfault::Userfault;

/// Sends SIGBUS to threads of this process that access absent pages. A watched range is watched as
/// long as this object lives, but not in forked children. No privilege is needed (Linux 5.11).
/// System calls that access such a page fail with EFAULT.
pub struct Holes(Userfault);

impl Holes {
    /// Watches nothing yet.
    pub fn new() -> Result<Self, PagerError> {
        Userfault::silent(Stops::Programs).map(Self)
    }

    /// Watches a mapping of shared memory.
    pub fn watch(&self, at: Range<usize>) -> Result<(), PagerError> {
        let failed = |why: Errno| PagerError::System { doing: "watch memory by userfaultfd", why };
        self.0.register_missing(at).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_page_that_is_not_there_is_no_new_page() {
        let memory = rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, 2 * 4096).unwrap();
        rustix::io::pwrite(&memory, b"there", 4096).unwrap();
        let holes = Holes::new().unwrap();
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * 4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            )
        } as usize;
        holes.watch(at..at + 2 * 4096).unwrap();
        // SAFETY: the second page is there.
        assert_eq!(unsafe { *((at + 4096) as *const [u8; 5]) }, *b"there");
        // The kernel's own look at the first is an error instead of a signal.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let write = |from: usize| {
            // SAFETY: the kernel checks the address.
            unsafe { libc::write(writer.as_raw_fd(), from as *const _, 5) }
        };
        assert_eq!(write(at + 4096), 5);
        assert_eq!(write(at), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        drop(holes);
        assert_eq!(write(at), 5, "as any shared memory");
        drop(reader);
    }
}
