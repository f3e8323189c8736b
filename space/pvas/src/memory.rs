//! The memory of a space whose segments are shared memory: one file without a name for all
//! of them, and its alias, a mapping of the whole file without access.
//!
//! The file's offset is the address less the space's base, so who knows an address knows
//! what to map there. Tasks have no descriptor of the file: they close descriptors as they
//! like. They map its pages by duplicating parts of the alias (`gate/c/shared.c`), which is
//! in their address space as everything of the owner's is.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nagaya_layout::SpaceLayout;
use rustix::io::Errno;

use crate::error::{Error, last};

/// Most address space for such a space: the alias takes as much again.
pub const SIZE_MAX: u64 = 32 << 40;
/// Where the alias goes if nothing is there: above position-independent programs and their
/// heaps, below libraries, and where no other process looks for an address to share.
const PLACE: u64 = 88 << 40;

/// The file and its alias, both the owner's.
#[derive(Debug)]
pub struct Memory {
    file: ManuallyDrop<OwnedFd>,
    inode: u64,
    alias: u64,
    size: u64,
}

impl Memory {
    /// Makes the memory of all segments of `layout`; none of it is in use.
    pub fn create(layout: &SpaceLayout) -> Result<Self, Error> {
        let size = layout.end() - layout.base();
        // The kernel would send SIGXFSZ.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < size) {
            return Err(Error::System("memory of the space (ulimit -f is too low)", Errno::FBIG));
        }
        // SAFETY: a new descriptor, and a new mapping where the kernel finds room.
        unsafe {
            let fd = libc::memfd_create(c"pvas".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(last("memfd_create"));
            }
            let file = OwnedFd::from_raw_fd(fd);
            if libc::ftruncate(fd, size as i64) != 0 {
                return Err(last("ftruncate of the space's memory"));
            }
            let inode = rustix::fs::fstat(&file).map_err(|e| Error::System("fstat", e))?.st_ino;
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
            let alias = libc::mmap(PLACE as *mut _, size as usize, libc::PROT_NONE, flags, fd, 0);
            if alias == libc::MAP_FAILED {
                return Err(last("mmap of the space's memory"));
            }
            // What tasks map inherits both; the gate takes the second back.
            for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
                if libc::madvise(alias, size as usize, advice) != 0 {
                    let error = last("madvise of the space's memory");
                    libc::munmap(alias, size as usize);
                    return Err(error);
                }
            }
            Ok(Self { file: ManuallyDrop::new(file), inode, alias: alias as u64, size })
        }
    }

    /// Where all of it is mapped, without access.
    pub fn alias(&self) -> u64 {
        self.alias
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> u32 {
        self.file.as_raw_fd() as u32
    }

    /// Its inode: the owner's program may have closed the descriptor, and opened another file.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Gives alias and descriptor back. A space that is not destroyed keeps both, as its tasks
    /// go on.
    ///
    /// # Safety
    /// No task lives.
    pub unsafe fn destroy(self) {
        // SAFETY: mapped by `create`; nobody maps parts of it any more.
        unsafe { libc::munmap(self.alias as *mut _, self.size as usize) };
        drop(ManuallyDrop::into_inner(self.file));
    }
}

/// Gives the pages of `size` bytes of the memory back, from `offset` on: they read as zeros.
/// Nobody need have them mapped. `alias` is where all of the memory is mapped.
///
/// # Safety
/// Nobody uses what these pages hold.
pub unsafe fn give_back(alias: u64, offset: u64, size: u64) {
    let at = (alias + offset) as *mut libc::c_void;
    let size = size as usize;
    // SAFETY: within the alias, as the caller vouches. Before Linux 6.7 the mapping must be
    // writable; who maps another part of the alias meanwhile is not disturbed.
    unsafe {
        if libc::madvise(at, size, libc::MADV_REMOVE) == 0
            || libc::mprotect(at, size, libc::PROT_READ | libc::PROT_WRITE) != 0
        {
            return;
        }
        libc::madvise(at, size, libc::MADV_REMOVE);
        libc::mprotect(at, size, libc::PROT_NONE);
    }
}
