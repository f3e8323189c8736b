//! The requester's memory, as a delegatee reaches it: what is not there is an error, and
//! what is not the requester's, too.
//!
//! Copies are made by process_vm_readv and process_vm_writev, which the gate answers in user
//! space, and which fail where plain loads and stores would end the task.

use std::sync::atomic::Ordering::Relaxed;

use control::FAR_PID;
use control::ThisTask;
use rustix::io::Errno;

/// Bytes of the smallest page.
const PAGE: u64 = 4096;
/// At how many pages to look at once.
const LOOKS: usize = 64;

/// The addresses of one task: its segment.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    start: u64,
    end: u64,
    /// Ours, the copier's: libc's getpid is a system call.
    pid: libc::pid_t,
    /// That of a task of another domain, by which the kernel finds what nobody has touched yet.
    /// When it has ended, what is there can still be copied.
    far: Option<libc::pid_t>,
}

impl Memory {
    /// That of the task with this ID. The caller holds it while it uses this.
    pub fn of(task: &ThisTask, id: u32) -> Option<Self> {
        let segment = task.control.layout().segment(id)?;
        let pid_of = |id| task.control.slot(id).pid.load(Relaxed) as libc::pid_t;
        let is_far = task.control.domain_of(id) != task.control.domain_of(task.id);
        // What is on another machine this one's kernel does not know; there are no holes in it.
        let is_far = is_far && pid_of(id) != FAR_PID as libc::pid_t;
        let (pid, far) = (pid_of(task.id), is_far.then(|| pid_of(id)));
        Some(Self { start: segment.start(), end: segment.end(), pid, far })
    }

    /// Whether all these bytes are the task's, mapped or not.
    #[inline]
    pub fn has(&self, address: u64, bytes: u64) -> bool {
        let end = address.checked_add(bytes);
        address >= self.start && end.is_some_and(|end| end <= self.end)
    }

    /// Copies from there. EFAULT where not all of it can be read.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        let there = iovec(address, to.len());
        let here = iovec(to.as_mut_ptr() as u64, to.len());
        self.copy(address, to.len(), |pid| {
            // SAFETY: writes into `to`; reads checked memory, which it may miss.
            unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) }
        })
    }

    /// Copies to there. EFAULT where not all of it can be written; then some may have been.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        let there = iovec(address, from.len());
        let here = iovec(from.as_ptr() as u64, from.len());
        self.copy(address, from.len(), |pid| {
            // SAFETY: reads from `from`; the memory is another task's, who asked for this.
            unsafe { libc::process_vm_writev(pid, &here, 1, &there, 1, 0) }
        })
    }

    /// Whether all of it can be read, now: EFAULT if not. Looks at one byte a page.
    pub fn readable(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        if !self.has(address, bytes) {
            return Err(Errno::FAULT);
        }
        let (mut next, end) = (address, address + bytes);
        while next < end {
            let mut pages = [iovec(0, 0); LOOKS];
            let mut count = 0;
            while count < LOOKS && next < end {
                pages[count] = iovec(next, 1);
                next = (next | (PAGE - 1)) + 1;
                count += 1;
            }
            let mut looked = [0u8; LOOKS];
            let here = iovec(looked.as_mut_ptr() as u64, count);
            // SAFETY: writes into `looked`; reads checked memory, which it may miss.
            let read = unsafe {
                let pid = self.far.unwrap_or(self.pid);
                libc::process_vm_readv(pid, &here, 1, pages.as_ptr(), count as u64, 0)
            };
            if read != count as isize {
                return Err(Errno::FAULT);
            }
        }
        Ok(())
    }

    /// Makes it present for system calls, which cannot go to pages of another domain that nobody
    /// has touched. What is not there they will say.
    pub fn bring(&self, address: u64, bytes: u64) {
        if self.far.is_some() {
            let _ = self.readable(address, bytes);
        }
    }

    /// Whether all of it can be written, now: EFAULT if not. To look, it is made present.
    pub fn writable(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        if !self.has(address, bytes) {
            return Err(Errno::FAULT);
        }
        self.bring(address, bytes);
        let start = address & !(PAGE - 1);
        let length = (address + bytes - start) as usize;
        loop {
            // SAFETY: changes no byte.
            let done = unsafe { libc::madvise(start as *mut _, length, libc::MADV_POPULATE_WRITE) };
            match done {
                0 => return Ok(()),
                _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => return Err(Errno::FAULT),
            }
        }
    }

    fn copy(
        &self,
        address: u64,
        bytes: usize,
        by: impl Fn(libc::pid_t) -> isize,
    ) -> Result<(), Errno> {
        let by = || self.far.map_or(-1, &by) == bytes as isize || by(self.pid) == bytes as isize;
        match (bytes, self.has(address, bytes as u64)) {
            (0, _) => Ok(()),
            (_, false) => Err(Errno::FAULT),
            _ if by() => Ok(()),
            _ => Err(Errno::FAULT),
        }
    }

    /// Copies from there values that consist of integers and addresses only.
    ///
    /// # Safety
    /// Every pattern of bits is a `T`.
    pub unsafe fn values<T: Copy>(&self, address: u64, to: &mut [T]) -> Result<(), Errno> {
        // SAFETY: the values' bytes; as the caller says, none is wrong.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to))
        };
        self.read(address, bytes)
    }
}

fn iovec(address: u64, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut _, iov_len: bytes }
}
