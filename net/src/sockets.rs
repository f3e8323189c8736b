//! What UCX does not do for the sockets that it opens in this process.
//!
//! *Programs that this process executes must not inherit them*: peers would notice its end
//! only when those have ended, too.
//!
//! *A host that dies is to be noticed soon.* The kernel's keepalive finds out where nothing is
//! under way. Where something is, TCP repeats it for a quarter of an hour before it gives up;
//! and TCP_USER_TIMEOUT would also give up on a living host whose process reads nothing for a
//! while, since it computes. So we look ourselves, once in a while: a living host's kernel
//! answers, a dead one's does not.
//!
//! UCX tells nobody which sockets are its own. They are those that listen since it started,
//! those accepted at the same ports, those that appear while it is told to connect, and those
//! that have our keepalive settings.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use libc::{IPPROTO_TCP, SO_ACCEPTCONN, SO_KEEPALIVE, SO_PROTOCOL, SOL_SOCKET, c_int, tcp_info};
use libc::{TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL};
use rustix::fd::AsFd;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{Shutdown, SocketAddr, getsockname, shutdown};

/// How long a connection is idle before the kernel asks whether the other host lives, in s.
pub const KEEPALIVE_IDLE_S: c_int = 2;
/// How long it waits for an answer, in s.
pub const KEEPALIVE_INTERVAL_S: c_int = 1;
/// How often it asks.
pub const KEEPALIVE_COUNT: c_int = 3;
/// How long a host may be silent that has something to answer, in ms.
const SILENCE_MAX_MS: u32 = 5000;
/// How often that must have been repeated in vain.
const REPEATED_MIN: u8 = 2;

/// UCX's sockets in this process.
pub struct Sockets {
    listening: Vec<u16>,
    /// Those that UCX has opened while it was told to connect, with their ports.
    connecting: Vec<(RawFd, u16)>,
}

impl Sockets {
    /// Those that `open` opens, which starts UCX.
    pub fn of<T>(open: impl FnOnce() -> T) -> (T, Self) {
        let (result, opened) = opened(open);
        let listens = |&fd: &RawFd| option(borrow(fd), SOL_SOCKET, SO_ACCEPTCONN) == Some(1);
        let listening = opened.into_iter().filter(listens).filter_map(|fd| port(borrow(fd)));
        (result, Self { listening: listening.collect(), connecting: Vec::new() })
    }

    /// Also those that `connect` opens.
    pub fn and<T>(&mut self, connect: impl FnOnce() -> T) -> T {
        let (result, opened) = opened(connect);
        let is_tcp = |&fd: &RawFd| option(borrow(fd), SOL_SOCKET, SO_PROTOCOL) == Some(IPPROTO_TCP);
        let ports =
            opened.into_iter().filter(is_tcp).filter_map(|fd| Some((fd, port(borrow(fd))?)));
        self.connecting.extend(ports);
        result
    }

    /// Looks after the connections that there are: once in a while.
    pub fn tend(&mut self) {
        self.connecting.retain(|&(fd, its)| port(borrow(fd)) == Some(its));
        for fd in descriptors() {
            if !self.is_connection(fd) {
                continue;
            }
            let fd = borrow(fd);
            keep_from_programs(fd);
            // UCX sets it for those that it connects only.
            if option(fd, SOL_SOCKET, SO_KEEPALIVE) == Some(0) {
                set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
                set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
                set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
                set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
            }
            if is_silent(fd) {
                // UCX reads the end, and tells us.
                let _ = shutdown(fd, Shutdown::Both);
            }
        }
    }

    fn is_connection(&self, number: RawFd) -> bool {
        let fd = borrow(number);
        option(fd, SOL_SOCKET, SO_PROTOCOL) == Some(IPPROTO_TCP)
            && option(fd, SOL_SOCKET, SO_ACCEPTCONN) == Some(0)
            && (has_our_keepalive(fd)
                || port(fd).is_some_and(|port| {
                    self.listening.contains(&port) || self.connecting.contains(&(number, port))
                }))
    }
}

/// What `open` opens; kept from programs.
fn opened<T>(open: impl FnOnce() -> T) -> (T, Vec<RawFd>) {
    let before = descriptors();
    let result = open();
    let mut opened = descriptors();
    opened.retain(|fd| !before.contains(fd));
    opened.iter().for_each(|&fd| keep_from_programs(borrow(fd)));
    (result, opened)
}

/// For a call that may find it closed.
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: used for one call each time, which asks or sets something of a socket; that
    // another thread closes the descriptor or opens another is no worse than that.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The descriptors of this process, without the one by which it looks.
fn descriptors() -> Vec<RawFd> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut descriptors: Vec<RawFd> = numbers.collect();
    descriptors.retain(|&fd| fcntl_getfd(borrow(fd)).is_ok());
    descriptors
}

fn keep_from_programs(fd: BorrowedFd<'_>) {
    if let Ok(flags) = fcntl_getfd(fd) {
        let _ = fcntl_setfd(fd, flags | FdFlags::CLOEXEC);
    }
}

fn port(fd: impl AsFd) -> Option<u16> {
    match getsockname(fd).ok().map(SocketAddr::try_from)? {
        Ok(address) => Some(address.port()),
        Err(_) => None,
    }
}

/// UCX rounds the times down, 2 s to 1 s.
fn has_our_keepalive(fd: BorrowedFd<'_>) -> bool {
    let up_to = |name, most| option(fd, IPPROTO_TCP, name).is_some_and(|value| value <= most);
    option(fd, SOL_SOCKET, SO_KEEPALIVE) == Some(1)
        && up_to(TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        && up_to(TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        && up_to(TCP_KEEPCNT, KEEPALIVE_COUNT)
}

/// Whether the other host has something to answer, and has not for too long.
fn is_silent(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: a plain C structure.
    let mut info: tcp_info = unsafe { std::mem::zeroed() };
    read(fd, IPPROTO_TCP, TCP_INFO, &mut info).is_some()
        && info.tcpi_last_ack_recv > SILENCE_MAX_MS
        && (info.tcpi_retransmits >= REPEATED_MIN || info.tcpi_probes >= REPEATED_MIN)
}

fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> Option<c_int> {
    let mut value = 0;
    read(fd, level, name, &mut value).map(|()| value)
}

/// Reads a socket's option, or as much of it as this kernel knows.
fn read<T: Copy>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &mut T) -> Option<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: writes at most so many bytes of plain numbers.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut *value).cast(), &mut length)
    };
    (result == 0).then_some(())
}

fn set(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) {
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: reads one number.
    unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) };
}
