//! The requester's memory, as a delegatee accesses it. An address that is not mapped, or not in the
//! requester's segment, is an error.
//!
//! process_vm_readv and process_vm_writev copy, which the gate answers in user space. They fail
//! where plain loads and stores would kill the task.

use std::sync::atomic::Ordering::Relaxed;

use control::FAR_PID;
use control::ThisTask;
use rustix::io::Errno;

/// Bytes of the smallest page.
const PAGE: u64 = 4096;
/// Number of pages that one call probes.
const PROBES: usize = 64;

/// The addresses of one task: its segment.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    start: u64,
    end: u64,
    /// PID of the copying task. It is cached because libc's getpid is a system call.
    pid: libc::pid_t,
    /// PID of the requester if it is of another domain: by it the kernel finds untouched pages.
    /// After that task has ended, present pages can still be copied.
    far: Option<libc::pid_t>,
}

impl Memory {
    /// Returns the memory of the task with this ID. The caller holds that task as long as it uses
    /// the result.
    pub fn of(task: &ThisTask, id: u32) -> Option<Self> {
        let segment = task.control.layout().segment(id)?;
        let pid_of = |id| task.control.slot(id).pid.load(Relaxed) as libc::pid_t;
        let is_far = task.control.domain_of(id) != task.control.domain_of(task.id);
        // This kernel does not know a task of another machine, whose segment has no holes.
        let is_far = is_far && pid_of(id) != FAR_PID as libc::pid_t;
        let (pid, far) = (pid_of(task.id), is_far.then(|| pid_of(id)));
        Some(Self { start: segment.start(), end: segment.end(), pid, far })
    }

    /// Returns true if all these bytes are in the task's segment, mapped or not.
    #[inline]
    pub fn has(&self, address: u64, bytes: u64) -> bool {
        let end = address.checked_add(bytes);
        address >= self.start && end.is_some_and(|end| end <= self.end)
    }

    /// Copies from the task's memory. Error: EFAULT if not all bytes can be read.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        let there = iovec(address, to.len());
        let here = iovec(to.as_mut_ptr() as u64, to.len());
        self.copy(address, to.len(), |pid| {
            // SAFETY: the call writes `to` only, and fails on remote addresses that it cannot read.
            unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) }
        })
    }

    /// Copies to the task's memory. Error: EFAULT if not all bytes can be written; some may be.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        let there = iovec(address, from.len());
        let here = iovec(from.as_ptr() as u64, from.len());
        self.copy(address, from.len(), |pid| {
            // SAFETY: the call reads `from` only. It writes to the requester's segment (`copy`
            // checks that), for which the requester has asked.
            unsafe { libc::process_vm_writev(pid, &here, 1, &there, 1, 0) }
        })
    }

    /// Checks that all bytes can be read now, by one byte of each page. Error: EFAULT.
    pub fn readable(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        if !self.has(address, bytes) {
            return Err(Errno::FAULT);
        }
        let (mut next, end) = (address, address + bytes);
        while next < end {
            let mut pages = [iovec(0, 0); PROBES];
            let mut count = 0;
            while count < PROBES && next < end {
                pages[count] = iovec(next, 1);
                next = (next | (PAGE - 1)) + 1;
                count += 1;
            }
            let mut bytes = [0u8; PROBES];
            let here = iovec(bytes.as_mut_ptr() as u64, count);
            // SAFETY: the call writes `count` of `PROBES` bytes, and fails on remote addresses that
            // it cannot read.
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

    /// Makes the pages present for system calls, which cannot fault untouched pages of another
    /// domain in. A system call reports those that are not mapped.
    pub fn populate(&self, address: u64, bytes: u64) {
        if self.far.is_some() {
            let _ = self.readable(address, bytes);
        }
    }

    /// Checks that all bytes can be written now, and populates their pages. Error: EFAULT.
    pub fn writable(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        if !self.has(address, bytes) {
            return Err(Errno::FAULT);
        }
        self.populate(address, bytes);
        let start = address & !(PAGE - 1);
        let length = (address + bytes - start) as usize;
        loop {
            // SAFETY: populating pages changes no byte.
            let done = unsafe { libc::madvise(start as *mut _, length, libc::MADV_POPULATE_WRITE) };
            match done {
                0 => return Ok(()),
                _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => return Err(Errno::FAULT),
            }
        }
    }

    /// Copies by the requester's PID if it is of another domain, else by this task's.
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

    /// Copies values from the task's memory.
    ///
    /// # Safety
    /// Every pattern of bits is a `T`.
    pub unsafe fn values<T: Copy>(&self, address: u64, to: &mut [T]) -> Result<(), Errno> {
        // SAFETY: the bytes of `to`, of which the caller says that all patterns are valid.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to))
        };
        self.read(address, bytes)
    }
}

fn iovec(address: u64, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut _, iov_len: bytes }
}
