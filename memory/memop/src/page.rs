//! A page of another process, read or written whatever its protection.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt as _;

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::mapping::whole_pages;
use crate::process::{State, gone, threads};

/// Reads the page at `addr` into `data`, which is as large as a page. The process continues: a
/// simultaneous write of it may be seen in part.
///
/// The kernel copies once. A page that the process itself may not read costs two more calls.
///
/// # Errors
/// `EFAULT` if nothing or a device is mapped there; those of all calls.
pub fn peekpage(pid: Pid, addr: usize, data: &mut [u8]) -> Result<()> {
    same_size(addr, data)?;
    of_a_living_thread(pid, |tid| {
        let local = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        let remote = libc::iovec { iov_base: addr as *mut _, iov_len: data.len() };
        // SAFETY: the call writes `data` only, and fails on remote addresses that it cannot read.
        let copied =
            unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
        if whole(copied, data.len())? {
            return Ok(());
        }
        let memory = memory(tid, OpenOptions::new().read(true))?;
        memory.read_exact_at(data, addr as u64).map_err(errno)
    })
}

/// Writes `data`, which is as large as a page, into the page at `addr`. The process continues, and
/// may see a part of the new data before the rest.
///
/// The kernel copies once. A page that the process itself may not write costs two more calls; the
/// process then gets a private copy of it, as under a debugger.
///
/// # Errors
/// `EFAULT` if nothing, a device, or read-only shared memory is mapped there; those of all calls.
pub fn pokepage(pid: Pid, addr: usize, data: &[u8]) -> Result<()> {
    same_size(addr, data)?;
    of_a_living_thread(pid, |tid| {
        let local = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        let remote = libc::iovec { iov_base: addr as *mut _, iov_len: data.len() };
        // SAFETY: the call only reads `data`, and fails on remote addresses that it cannot write.
        let copied =
            unsafe { libc::process_vm_writev(tid, &raw const local, 1, &raw const remote, 1, 0) };
        if whole(copied, data.len())? {
            return Ok(());
        }
        let memory = memory(tid, OpenOptions::new().write(true))?;
        memory.write_all_at(data, addr as u64).map_err(errno)
    })
}

/// Runs `by` for the process's first thread. If that thread has ended before the others, and with
/// it its view of the memory, runs `by` for another one.
fn of_a_living_thread(pid: Pid, mut by: impl FnMut(i32) -> Result<()>) -> Result<()> {
    match by(pid.as_raw_pid()) {
        Err(Errno::SRCH) => {}
        result => return result,
    }
    let living = threads(pid)?.into_iter().find(|&tid| State::of(tid).is_some());
    by(living.ok_or(Errno::SRCH)?)
}

/// Returns EINVAL unless `data` is as large as a page and `addr` the start of one.
fn same_size(addr: usize, data: &[u8]) -> Result<()> {
    whole_pages(addr, data.len())?;
    let is_page = data.len() == rustix::param::page_size();
    if is_page { Ok(()) } else { Err(Errno::INVAL) }
}

/// Returns true if `process_vm_readv` or `process_vm_writev` copied all bytes. Returns false if the
/// page's protection or a system call filter forbids it.
fn whole(copied: isize, length: usize) -> Result<bool> {
    if usize::try_from(copied).is_ok() {
        return Ok(copied as usize == length);
    }
    match errno(Error::last_os_error()) {
        Errno::FAULT | Errno::NOSYS => Ok(false),
        error => Err(error),
    }
}

/// Opens `/proc/PID/mem`, which ignores protection. (Since Linux 6.12, a kernel can be configured
/// not to:
/// `proc_mem.force_override`.)
fn memory(tid: i32, options: &OpenOptions) -> Result<File> {
    options.open(format!("/proc/{tid}/mem")).map_err(gone)
}

/// Returns an error's number. `/proc/PID/mem` has `EIO` for bytes that the kernel cannot copy, and
/// the end of the file for a process that has ended.
fn errno(error: Error) -> Errno {
    match (error.kind(), Errno::from_io_error(&error)) {
        (ErrorKind::UnexpectedEof | ErrorKind::WriteZero, _) => Errno::SRCH,
        (_, Some(Errno::IO)) => Errno::FAULT,
        (_, error) => error.unwrap_or(Errno::FAULT),
    }
}
