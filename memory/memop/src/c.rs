//! libmemop.so: converts arguments and errors. The contract is `include/memop.h`.

use std::os::raw::{c_int, c_void};

use rustix::io::{Errno, Result};
use rustix::process::Pid;

/// Returns 0, or -1 with `errno`.
fn answer(operation: impl FnOnce() -> Result<()>) -> c_int {
    match operation() {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: the address of this thread's errno is valid as long as the thread runs.
            unsafe { *libc::__errno_location() = error.raw_os_error() };
            -1
        }
    }
}

fn process(pid: libc::pid_t) -> Result<Pid> {
    if pid > 0 { Pid::from_raw(pid).ok_or(Errno::SRCH) } else { Err(Errno::SRCH) }
}

/// [`crate::mmap`].
#[unsafe(no_mangle)]
pub extern "C" fn memop_mmap(pid: libc::pid_t, addr: *mut c_void, len: usize) -> c_int {
    answer(|| crate::mmap(process(pid)?, addr.addr(), len))
}

/// [`crate::munmap`].
#[unsafe(no_mangle)]
pub extern "C" fn memop_munmap(pid: libc::pid_t, addr: *mut c_void, len: usize) -> c_int {
    answer(|| crate::munmap(process(pid)?, addr.addr(), len))
}

/// [`crate::mprotect`].
#[unsafe(no_mangle)]
pub extern "C" fn memop_mprotect(
    pid: libc::pid_t,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
) -> c_int {
    answer(|| crate::mprotect(process(pid)?, addr.addr(), len, prot))
}

/// [`crate::peekpage`].
///
/// # Safety
/// `data` is null, or a page can be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memop_peekpage(
    pid: libc::pid_t,
    addr: *const c_void,
    data: *mut c_void,
) -> c_int {
    let page = rustix::param::page_size();
    answer(|| {
        if data.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: not null, and the caller guarantees a page.
        let data = unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), page) };
        crate::peekpage(process(pid)?, addr.addr(), data)
    })
}

/// [`crate::pokepage`].
///
/// # Safety
/// `data` is null, or a page can be read there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memop_pokepage(
    pid: libc::pid_t,
    addr: *mut c_void,
    data: *const c_void,
) -> c_int {
    let page = rustix::param::page_size();
    answer(|| {
        if data.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: not null, and the caller guarantees a page.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), page) };
        crate::pokepage(process(pid)?, addr.addr(), data)
    })
}
