//! A page of another process, read or written whatever its protection.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt as _;

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::mapping::whole_pages;
use crate::process::{State, gone, threads};

/// Reads the page at `addr` into `data`, which is as large as a page. The process goes on
/// meanwhile; what it writes at the same time may be seen in part.
///
/// One copy by the kernel. A page that the process itself may not read costs two more calls.
///
/// # Errors
/// `EFAULT` where nothing is mapped, or a device; those of all calls.
pub fn peekpage(pid: Pid, addr: usize, data: &mut [u8]) -> Result<()> {
    same_size(addr, data)?;
    of_a_living_thread(pid, |tid| {
        let local = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        let remote = libc::iovec { iov_base: addr as *mut _, iov_len: data.len() };
        // SAFETY: `data` is written, and no other memory of ours.
        let copied =
            unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
        if whole(copied, data.len())? {
            return Ok(());
        }
        let memory = memory(tid, OpenOptions::new().read(true))?;
        memory.read_exact_at(data, addr as u64).map_err(errno)
    })
}

/// Writes `data`, which is as large as a page, into the page at `addr`. The process goes on
/// meanwhile, and may see a part of it before the rest.
///
/// One copy by the kernel. A page that the process itself may not write costs two more calls;
/// it gets a copy of its own then, as at a debugger's hand.
///
/// # Errors
/// `EFAULT` where nothing is mapped, a device, or memory that is shared with others and not
/// writable; those of all calls.
pub fn pokepage(pid: Pid, addr: usize, data: &[u8]) -> Result<()> {
    same_size(addr, data)?;
    of_a_living_thread(pid, |tid| {
        let local = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        let remote = libc::iovec { iov_base: addr as *mut _, iov_len: data.len() };
        // SAFETY: `data` is read only.
        let copied =
            unsafe { libc::process_vm_writev(tid, &raw const local, 1, &raw const remote, 1, 0) };
        if whole(copied, data.len())? {
            return Ok(());
        }
        let memory = memory(tid, OpenOptions::new().write(true))?;
        memory.write_all_at(data, addr as u64).map_err(errno)
    })
}

/// Does it by the process's first thread, or by another one where that has ended before the
/// others: its memory is no longer seen then.
fn of_a_living_thread(pid: Pid, mut by: impl FnMut(i32) -> Result<()>) -> Result<()> {
    match by(pid.as_raw_pid()) {
        Err(Errno::SRCH) => {}
        result => return result,
    }
    let living = threads(pid)?.into_iter().find(|&tid| State::of(tid).is_some());
    by(living.ok_or(Errno::SRCH)?)
}

fn same_size(addr: usize, data: &[u8]) -> Result<()> {
    whole_pages(addr, data.len())?;
    let is_page = data.len() == rustix::param::page_size();
    if is_page { Ok(()) } else { Err(Errno::INVAL) }
}

/// Whether all was copied by `process_vm_readv` or `process_vm_writev`. False where the
/// process's own protection stands against it, or a filter of system calls.
fn whole(copied: isize, length: usize) -> Result<bool> {
    if usize::try_from(copied).is_ok() {
        return Ok(copied as usize == length);
    }
    match errno(Error::last_os_error()) {
        Errno::FAULT | Errno::NOSYS => Ok(false),
        error => Err(error),
    }
}

/// `/proc/PID/mem`, which asks for no protection (since Linux 6.12 a kernel may be set up to
/// ask, `proc_mem.force_override`).
fn memory(tid: i32, options: &OpenOptions) -> Result<File> {
    options.open(format!("/proc/{tid}/mem")).map_err(gone)
}

/// An error's number. What the kernel could not copy is `EIO` in `/proc/PID/mem`, and the end
/// of the file where the process has ended.
fn errno(error: Error) -> Errno {
    match (error.kind(), Errno::from_io_error(&error)) {
        (ErrorKind::UnexpectedEof | ErrorKind::WriteZero, _) => Errno::SRCH,
        (_, Some(Errno::IO)) => Errno::FAULT,
        (_, error) => error.unwrap_or(Errno::FAULT),
    }
}
