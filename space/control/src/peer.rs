//! The process at the other end of a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the PID, UID and GID of the process at the other end of a local socket. The PID is 0
/// for a process of another PID namespace, which rustix's type cannot represent.
pub fn credentials(socket: impl AsFd) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of_val(&credentials) as u32;
    // SAFETY: the kernel writes at most `size` bytes to `credentials`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut size,
        )
    };
    if result == 0 { Ok(credentials) } else { Err(io::Error::last_os_error()) }
}
