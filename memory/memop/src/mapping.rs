//! Mappings of another process: made, removed and protected by calls that it makes itself.

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::call;

/// Makes `len` bytes at `addr` usable, as anonymous memory of the process's own that can be
/// neither read nor written until [`mprotect`] says so.
///
/// The process is stopped for some tens of microseconds, as [`mprotect`] says.
///
/// # Errors
/// `EEXIST` where something is mapped already; `ENOMEM`; those of all calls.
pub fn mmap(pid: Pid, addr: usize, len: usize) -> Result<()> {
    whole_pages(addr, len)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let arguments = [addr, len, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    call::make(pid, libc::SYS_mmap, arguments).map(drop)
}

/// Makes `len` bytes at `addr` unusable: what is mapped there is mapped no more.
///
/// The process is stopped for some tens of microseconds, as [`mprotect`] says.
///
/// # Errors
/// `ENOMEM`; those of all calls.
pub fn munmap(pid: Pid, addr: usize, len: usize) -> Result<()> {
    whole_pages(addr, len)?;
    call::make(pid, libc::SYS_munmap, [addr, len, 0, 0, 0, 0]).map(drop)
}

/// Changes the protection of `len` bytes at `addr`; `prot` is of `PROT_READ`, `PROT_WRITE` and
/// `PROT_EXEC`, or `PROT_NONE`.
///
/// A thread of the process is stopped where it is and makes the call; the others go on. If it
/// was in a system call, that goes on afterwards as after `SIGSTOP` and `SIGCONT`: a few kinds
/// fail with `EINTR` then (signal(7)). A caller that traces the process already, and has it
/// stopped, keeps it stopped where it was; the signal of that stop is then the caller's
/// affair (tgkill(2) instead of `PTRACE_CONT`).
///
/// # Errors
/// `ENOMEM` where nothing is mapped; `EACCES` where a file's mode forbids it; those of all
/// calls.
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
