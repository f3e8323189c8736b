//! The memory of a space of shared memory: one anonymous file (memfd) holds all segments, and its
//! alias maps the whole file without access.
//!
//! The file's offset is the address minus the space's base, so an address determines its page in
//! the file. Tasks hold no descriptor of the file, because a task may close any descriptor. Instead
//! they duplicate parts of the alias (`gate/c/shared.c`), which lies in their address space like
//! all of the owner's mappings.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nagaya_layout::SpaceLayout;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::error::{Error, last};

/// Preferred address of the alias. It lies above position-independent programs and their heaps, and
/// below libraries. Other processes do not search this range for an address to share.
const PLACE: u64 = 88 << 40;

/// The file and its alias. The owner of the space owns both.
#[derive(Debug)]
pub struct Memory {
    file: ManuallyDrop<OwnedFd>,
    inode: u64,
    alias: u64,
    size: u64,
}

impl Memory {
    /// Creates the memory of all segments of `layout`. No page is allocated yet.
    pub fn create(layout: &SpaceLayout) -> Result<Self, Error> {
        let failed = |call| move |errno| Error::System(call, errno);
        let size = layout.end() - layout.base();
        let file = memfd_create("pvas", MemfdFlags::CLOEXEC).map_err(failed("memfd_create"))?;
        set_size(file.as_fd(), size)?;
        let inode = fstat(&file).map_err(failed("fstat"))?.st_ino;
        let alias = map_alias(file.as_fd(), size, PLACE, MapFlags::empty())?;
        Ok(Self { file: ManuallyDrop::new(file), inode, alias, size })
    }

    /// Receives an owner's memory in a keeper that is a program of its own. The alias is not mapped
    /// yet.
    pub fn of_owner(file: OwnedFd, layout: &SpaceLayout, alias: u64) -> Result<Self, Error> {
        let inode = fstat(&file).map_err(|errno| Error::System("fstat", errno))?.st_ino;
        let size = layout.end() - layout.base();
        Ok(Self { file: ManuallyDrop::new(file), inode, alias, size })
    }

    /// Maps the alias in a keeper at its owner's address. A fork does not copy the alias.
    pub fn map_alias_again(&self) -> Result<(), Error> {
        map_alias(self.file(), self.size, self.alias, MapFlags::FIXED_NOREPLACE).map(drop)
    }

    /// Returns the file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the address of the alias, which maps the whole file without access.
    pub fn alias(&self) -> u64 {
        self.alias
    }

    /// Returns the number of the file's descriptor.
    pub fn descriptor(&self) -> u32 {
        self.file.as_raw_fd() as u32
    }

    /// Returns the file's inode. It detects that the owner's program closed the descriptor and
    /// opened another file under the same number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Unmaps the alias and closes the descriptor. A space that is dropped without this call keeps
    /// both, since its tasks may still run.
    ///
    /// # Safety
    /// No task of the space lives.
    pub unsafe fn destroy(self) {
        // SAFETY: `create` mapped the alias with this size. By this function's contract no task is
        // left to duplicate parts of it.
        unsafe { libc::munmap(self.alias as *mut _, self.size as usize) };
        drop(ManuallyDrop::into_inner(self.file));
    }
}

/// Sets the size of a file in memory. No page is allocated yet.
pub fn set_size(file: BorrowedFd<'_>, size: u64) -> Result<(), Error> {
    // Beyond the limit the kernel would send SIGXFSZ.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < size) {
        return Err(Error::System("memory of the space (ulimit -f is too low)", Errno::FBIG));
    }
    ftruncate(file, size).map_err(|errno| Error::System("ftruncate of the space's memory", errno))
}

/// Maps the whole file without access.
fn map_alias(file: BorrowedFd<'_>, size: u64, at: u64, fixed: MapFlags) -> Result<u64, Error> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | fixed;
    let size = size as usize;
    // SAFETY: the mapping is new and replaces nothing: `fixed` is empty or MAP_FIXED_NOREPLACE.
    let alias = unsafe { mmap(at as *mut _, size, ProtFlags::empty(), flags, file, 0) }
        .map_err(|errno| Error::System("mmap of the space's memory", errno))?;
    // Duplicates that tasks make of the alias inherit both advices; the gate reverts MADV_DONTDUMP.
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        // SAFETY: `mmap` returned `alias` above, and no other thread has its address.
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

/// Frees `size` bytes of the memory from `offset` on; the pages then read as zeros, mapped or not.
/// `alias` is the address at which the whole memory is mapped.
///
/// # Safety
/// `alias` maps the whole memory, and the range lies in it. No thread uses the contents of the
/// range.
pub unsafe fn give_back(alias: u64, offset: u64, size: u64) {
    let at = (alias + offset) as *mut libc::c_void;
    let size = size as usize;
    // SAFETY: by this function's contract the range lies in the alias. Before Linux 6.7 MADV_REMOVE
    // needs a writable mapping. Changing the protection does not disturb tasks that duplicate other
    // parts.
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
