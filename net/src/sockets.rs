//! Options of TCP sockets: keepalive, and the detection of dead hosts.
//!
//! The kernel's keepalive notices a dead host on an idle connection. With data in flight, TCP
//! retransmits for a quarter of an hour. TCP_USER_TIMEOUT would also end a connection to a live
//! host whose process computes and does not read. So [`is_dead`] is asked periodically: the kernel
//! of a live host acknowledges, that of a dead one does not.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET, c_int, tcp_info};
use libc::{TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL};

/// Idle time before the kernel sends the first keepalive probe.
pub const KEEPALIVE_IDLE_S: c_int = 2;
/// Time between two keepalive probes.
pub const KEEPALIVE_INTERVAL_S: c_int = 1;
/// Number of unanswered probes after which the kernel ends the connection.
pub const KEEPALIVE_COUNT: c_int = 3;
/// Time after which a host counts as dead if it has not acknowledged data.
const ACK_TIMEOUT_MS: u32 = 5000;
/// Number of retransmissions or probes that must have remained unanswered by then.
const RETRANSMITS_MIN: u8 = 2;

/// Lets the kernel probe an idle connection.
pub fn keep_alive(fd: BorrowedFd<'_>) {
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

/// Returns true if the other host has not acknowledged data for too long.
pub fn is_dead(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: `tcp_info` consists of integers, for which all-zero bytes are valid.
    let mut info: tcp_info = unsafe { std::mem::zeroed() };
    read(fd, IPPROTO_TCP, TCP_INFO, &mut info).is_some()
        && info.tcpi_last_ack_recv > ACK_TIMEOUT_MS
        && (info.tcpi_retransmits >= RETRANSMITS_MIN || info.tcpi_probes >= RETRANSMITS_MIN)
}

/// Returns the number of bytes that the other host has not acknowledged.
pub fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> usize {
    let mut bytes: c_int = 0;
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one `int`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { bytes.max(0) as usize } else { 0 }
}

/// Returns the value of an integer option.
pub fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> Option<c_int> {
    let mut value = 0;
    read(fd, level, name, &mut value).map(|()| value)
}

/// Reads a socket option into `value`. An older kernel fills only the first fields.
fn read<T: Copy>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &mut T) -> Option<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `value`. Callers pass types
    // that consist of integers (`c_int`, `tcp_info`), so any bytes are valid.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut *value).cast(), &mut length)
    };
    (result == 0).then_some(())
}

fn set(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes from `value`, which has that size.
    unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) };
}
