//! Locks of open file descriptions (F_OFD_SETLK, since Linux 3.15): one byte each, far behind any
//! memory. The kernel drops a lock when the last descriptor of its description is closed. So it
//! ends with its holder, in any PID namespace.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// The byte of member 0; those of other members follow.
pub const MEMBERS: i64 = 1 << 62;
/// The byte of the process that gives a new file its size.
pub const SIZE: i64 = MEMBERS - 1;

fn request(kind: i32, at: i64, length: i64) -> libc::flock {
    // SAFETY: `flock` consists of integers, for which zero is valid; l_pid must be 0.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = at;
    request.l_len = length;
    request
}

fn control(fd: BorrowedFd<'_>, command: i32, request: &mut libc::flock) -> Result<(), Errno> {
    loop {
        // SAFETY: the call reads and writes `request` only, which is a live `flock`.
        if unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(request)) } == 0 {
            return Ok(());
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(Errno::INTR) => {}
            error => return Err(error.unwrap_or(Errno::IO)),
        }
    }
}

/// Locks a byte, and waits for it.
pub fn lock(fd: BorrowedFd<'_>, at: i64) -> Result<(), Errno> {
    control(fd, libc::F_OFD_SETLKW, &mut request(libc::F_WRLCK, at, 1))
}

/// Locks `length` bytes if no other description has locked any of them.
pub fn try_lock(fd: BorrowedFd<'_>, at: i64, length: i64) -> Result<bool, Errno> {
    match control(fd, libc::F_OFD_SETLK, &mut request(libc::F_WRLCK, at, length)) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Unlocks `length` bytes, for all processes that share the description.
pub fn unlock(fd: BorrowedFd<'_>, at: i64, length: i64) {
    // It fails only for invalid arguments.
    let _ = control(fd, libc::F_OFD_SETLK, &mut request(libc::F_UNLCK, at, length));
}

/// Returns true if another description has locked the byte.
pub fn is_locked(fd: BorrowedFd<'_>, at: i64) -> Result<bool, Errno> {
    let mut request = request(libc::F_WRLCK, at, 1);
    control(fd, libc::F_OFD_GETLK, &mut request)?;
    Ok(request.l_type != libc::F_UNLCK as libc::c_short)
}
