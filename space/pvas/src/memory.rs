//! The memory of a space whose segments are shared memory: one file without a name for all
//! of them, and its alias, a mapping of the whole file without access.
//!
//! The file's offset is the address less the space's base, so who knows an address knows
//! what to map there. Tasks have no descriptor of the file: they close descriptors as they
//! like. They map its pages by duplicating parts of the alias (`gate/c/shared.c`), which is
//! in their address space as everything of the owner's is.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nagaya_layout::SpaceLayout;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

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
        let failed = |call| move |errno| Error::System(call, errno);
        let size = layout.end() - layout.base();
        // The kernel would send SIGXFSZ.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < size) {
            return Err(Error::System("memory of the space (ulimit -f is too low)", Errno::FBIG));
        }
        let file = memfd_create("pvas", MemfdFlags::CLOEXEC).map_err(failed("memfd_create"))?;
        ftruncate(&file, size).map_err(failed("ftruncate of the space's memory"))?;
        let inode = fstat(&file).map_err(failed("fstat"))?.st_ino;
        let alias = map_alias(file.as_fd(), size, PLACE, MapFlags::empty())?;
        Ok(Self { file: ManuallyDrop::new(file), inode, alias, size })
    }

    /// Makes the alias in a forked child, which has not got it, where its parent has it.
    pub fn map_alias_again(&self) -> Result<(), Error> {
        map_alias(self.file(), self.size, self.alias, MapFlags::FIXED_NOREPLACE).map(drop)
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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

/// Maps all of the file without access.
fn map_alias(file: BorrowedFd<'_>, size: u64, at: u64, fixed: MapFlags) -> Result<u64, Error> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | fixed;
    let size = size as usize;
    // SAFETY: a new mapping, that replaces nothing.
    let alias = unsafe { mmap(at as *mut _, size, ProtFlags::empty(), flags, file, 0) }
        .map_err(|errno| Error::System("mmap of the space's memory", errno))?;
    // What tasks map inherits both; the gate takes the second back.
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        // SAFETY: just mapped, and nobody knows of it.
        unsafe {
            if libc::madvise(alias, size, advice) != 0 {
                let error = last("madvise of the space's memory");
                libc::munmap(alias, size);
                return Err(error);
            }
        }
    }
    Ok(alias as u64)
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
