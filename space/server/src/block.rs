//! Reads the control blocks of living tasks. A task may end at any moment, and its block with it,
//! so a pointer to the block may become invalid. The kernel copies the block through a pipe, and
//! returns EFAULT for unmapped memory. (`process_vm_readv` would need one call only, but container
//! runtimes forbid it. `/proc/self/mem` needs `/proc`.)

use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};

use nagaya_gate::abi::Task;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

/// The displayed part of a task's control block.
#[derive(Debug, Default)]
pub struct Block {
    /// Start of the program's mappings.
    pub own: u64,
    /// Start of the heap.
    pub heap: u64,
    /// Start of the mmap area.
    pub mmap: u64,
    /// End of the mmap area.
    pub mmap_end: u64,
    /// Copies between tasks that the task made in user space.
    pub copies: u64,
    /// Bytes in these copies.
    pub copied_bytes: u64,
    /// System-call sites that the gate patched.
    pub sites_patched: u64,
    /// System-call sites whose number the gate could not determine.
    pub sites_unreached: u64,
}

/// Reads control blocks through a pipe.
#[derive(Debug)]
pub struct Reader {
    from: OwnedFd,
    to: OwnedFd,
}

/// Bytes of the block that are read: all in front of the long path of the program.
const SIZE: usize = offset_of!(Task, exe_length);
// A pipe takes one page at once, however many pipes the user has.
const _: () = assert!(SIZE <= 4096);

impl Reader {
    /// Makes the pipe.
    ///
    /// # Errors
    /// EMFILE or ENFILE.
    pub fn new() -> Result<Self, Errno> {
        let (from, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { from, to })
    }

    /// Returns the block at `address`, or `None` if the memory is not mapped.
    pub fn read(&self, address: u64) -> Option<Block> {
        // SAFETY: only the kernel dereferences the address. For unmapped memory it returns EFAULT
        // or a short count.
        let written = unsafe { libc::write(self.to.as_raw_fd(), address as *const _, SIZE) };
        let mut bytes = [0u8; SIZE];
        // An incomplete block must leave the pipe too.
        let read = rustix::io::read(&self.from, &mut bytes);
        if written != SIZE as isize || read != Ok(SIZE) {
            return None;
        }
        let word = |offset: usize| {
            u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
        };
        Some(Block {
            own: word(offset_of!(Task, own_start)),
            heap: word(offset_of!(Task, brk_start)),
            mmap: word(offset_of!(Task, mmap_start)),
            mmap_end: word(offset_of!(Task, mmap_end)),
            copies: word(offset_of!(Task, copies)),
            copied_bytes: word(offset_of!(Task, copied_bytes)),
            sites_patched: word(offset_of!(Task, sites_patched)),
            sites_unreached: word(offset_of!(Task, sites_unreached)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_gives_none_and_disturbs_no_later_read() {
        let page = 4096;
        // SAFETY: the kernel chooses the address of the two pages, and only the second one is
        // unmapped.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(std::ptr::null_mut(), 2 * page, protection, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            libc::munmap(memory.byte_add(page), page);
            memory as u64
        };
        let reader = Reader::new().expect("a pipe");
        for _ in 0..3 {
            assert!(reader.read(0x1000).is_none());
            assert!(reader.read(memory + page as u64 - SIZE as u64 / 2).is_none());
            assert_eq!(reader.read(memory).expect("is there").copies, 0);
        }
    }
}
