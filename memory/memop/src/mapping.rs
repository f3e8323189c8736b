//! Mappings of another process, which makes, removes and protects them by system calls of its own.

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::call;

/// Maps `len` bytes of private anonymous memory at `addr`. It can be neither read nor written until
/// [`mprotect`] allows it.
///
/// The process is stopped for some tens of microseconds, as [`mprotect`] says.
///
/// # Errors
/// `EEXIST` if something is mapped there; `ENOMEM`; those of all calls.
pub fn mmap(pid: Pid, addr: usize, len: usize) -> Result<()> {
    whole_pages(addr, len)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let arguments = [addr, len, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    call::make(pid, libc::SYS_mmap, arguments).map(drop)
}

/// Unmaps `len` bytes at `addr`.
///
/// The process is stopped for some tens of microseconds, as [`mprotect`] says.
///
/// # Errors
/// `ENOMEM`; those of all calls.
pub fn munmap(pid: Pid, addr: usize, len: usize) -> Result<()> {
    whole_pages(addr, len)?;
    call::make(pid, libc::SYS_munmap, [addr, len, 0, 0, 0, 0]).map(drop)
}

/// Changes the protection of `len` bytes at `addr`. `prot` is `PROT_NONE`, or of `PROT_READ`,
/// `PROT_WRITE` and `PROT_EXEC`.
///
/// One thread of the process stops and makes the call; the others continue. If the thread was in a
/// system call, that continues as after `SIGSTOP` and `SIGCONT`: a few system calls then fail with
/// `EINTR` (signal(7)). If the caller already traces the process and has stopped it, the process
/// remains stopped. The caller then delivers the signal of that stop by tgkill(2), not by
/// `PTRACE_CONT`.
///
/// # Errors
/// `ENOMEM` if nothing is mapped there; `EACCES` if a file's mode forbids it; those of all calls.
pub fn mprotect(pid: Pid, addr: usize, len: usize, prot: i32) -> Result<()> {
    whole_pages(addr, len)?;
    call::make(pid, libc::SYS_mprotect, [addr, len, prot as usize, 0, 0, 0]).map(drop)
}

/// Returns EINVAL unless `addr` and `len` are multiples of the page size and `len` is above 0.
pub(crate) fn whole_pages(addr: usize, len: usize) -> Result<()> {
    let page = rustix::param::page_size();
    let is_whole = addr.is_multiple_of(page) && len.is_multiple_of(page) && len > 0;
    if is_whole { Ok(()) } else { Err(Errno::INVAL) }
}
