//! Sets close-on-exec and keepalive on the sockets that UCX opens, and closes connections to
//! dead hosts.
//!
//! *Executed programs must not inherit the sockets.* A peer would notice the end of this process
//! only after the end of those programs.
//!
//! *A dead host must be noticed soon*: see [`sockets`](crate::sockets).
//!
//! UCX does not report its sockets. This module takes these for UCX's: sockets that listen since
//! UCX started, connections accepted at their ports, sockets that appear during a connect, and
//! sockets with the keepalive settings of `config`.

use std::fs;
use std::os::fd::{BorrowedFd, RawFd};

use libc::{IPPROTO_TCP, SO_ACCEPTCONN, SO_KEEPALIVE, SO_PROTOCOL, SOL_SOCKET};
use libc::{TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL};
use rustix::fd::AsFd;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{Shutdown, SocketAddr, getsockname, shutdown};

use crate::sockets::{
    KEEPALIVE_COUNT, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, is_dead, keep_alive, option,
};

/// UCX's sockets in this process.
#[derive(Default)]
pub struct Sockets {
    /// Ports at which UCX listens.
    listening: Vec<u16>,
    /// Sockets that UCX opened during a connect, with their ports.
    connecting: Vec<(RawFd, u16)>,
}

impl Sockets {
    /// Runs `open`, which starts UCX, and collects the listening sockets that it opens.
    pub fn new<T>(open: impl FnOnce() -> T) -> (T, Self) {
        let (result, opened) = opened(open);
        let listens = |&fd: &RawFd| option(borrow(fd), SOL_SOCKET, SO_ACCEPTCONN) == Some(1);
        let listening = opened.into_iter().filter(listens).filter_map(|fd| port(borrow(fd)));
        (result, Self { listening: listening.collect(), connecting: Vec::new() })
    }

    /// Runs `connect`, and adds the sockets that it opens.
    pub fn watch<T>(&mut self, connect: impl FnOnce() -> T) -> T {
        let (result, opened) = opened(connect);
        let is_tcp = |&fd: &RawFd| option(borrow(fd), SOL_SOCKET, SO_PROTOCOL) == Some(IPPROTO_TCP);
        let ports =
            opened.into_iter().filter(is_tcp).filter_map(|fd| Some((fd, port(borrow(fd))?)));
        self.connecting.extend(ports);
        result
    }

    /// Sets the options of all current connections, and shuts down those to dead hosts.
    pub fn tend(&mut self) {
        self.connecting.retain(|&(fd, own)| port(borrow(fd)) == Some(own));
        for fd in descriptors() {
            if !self.is_connection(fd) {
                continue;
            }
            let fd = borrow(fd);
            set_close_on_exec(fd);
            // UCX sets keepalive only on connections that it opens, not on accepted ones.
            if option(fd, SOL_SOCKET, SO_KEEPALIVE) == Some(0) {
                keep_alive(fd);
            }
            if is_dead(fd) {
                // UCX reads the end of the stream and reports the peer as lost.
                let _ = shutdown(fd, Shutdown::Both);
            }
        }
    }

    fn is_connection(&self, number: RawFd) -> bool {
        let fd = borrow(number);
        option(fd, SOL_SOCKET, SO_PROTOCOL) == Some(IPPROTO_TCP)
            && option(fd, SOL_SOCKET, SO_ACCEPTCONN) == Some(0)
            && (has_keepalive_of_config(fd)
                || port(fd).is_some_and(|port| {
                    self.listening.contains(&port) || self.connecting.contains(&(number, port))
                }))
    }
}

/// Runs `open`, sets close-on-exec on the descriptors that it opened, and returns them.
fn opened<T>(open: impl FnOnce() -> T) -> (T, Vec<RawFd>) {
    let before = descriptors();
    let result = open();
    let mut opened = descriptors();
    opened.retain(|fd| !before.contains(fd));
    opened.iter().for_each(|&fd| set_close_on_exec(borrow(fd)));
    (result, opened)
}

/// Borrows a descriptor of UCX for one call, which fails if UCX has closed it.
fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: `descriptors` returned `fd`, so it is not -1. Callers pass it to one system call
    // that reads or sets a socket option. If UCX closed it in between, that call fails with EBADF.
    // If another connection reused the number, the call sets close-on-exec or keepalive there.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Returns the calling thread's open descriptors, without the one that reads the directory.
///
/// A thread may have its own descriptor table, as the agent of a span has. /proc/self/fd shows the
/// table of the process's first thread.
fn descriptors() -> Vec<RawFd> {
    let entries = fs::read_dir("/proc/thread-self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut descriptors: Vec<RawFd> = numbers.collect();
    descriptors.retain(|&fd| fcntl_getfd(borrow(fd)).is_ok());
    descriptors
}

fn set_close_on_exec(fd: BorrowedFd<'_>) {
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

/// Returns true if the socket has the keepalive settings that `config` gives to UCX. UCX rounds
/// the times down, 2 s to 1 s.
fn has_keepalive_of_config(fd: BorrowedFd<'_>) -> bool {
    let up_to = |name, most| option(fd, IPPROTO_TCP, name).is_some_and(|value| value <= most);
    option(fd, SOL_SOCKET, SO_KEEPALIVE) == Some(1)
        && up_to(TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        && up_to(TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        && up_to(TCP_KEEPCNT, KEEPALIVE_COUNT)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;
    use std::thread;

    use super::*;

    #[test]
    fn sockets_of_a_thread_with_its_own_descriptor_table_are_found() {
        let thread = thread::spawn(|| {
            // SAFETY: only the descriptor table is unshared. The thread keeps no descriptor that
            // another thread closes.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            let (listener, mut sockets) = Sockets::new(|| TcpListener::bind("127.0.0.1:0"));
            let listener = listener.expect("a listener");
            let address = listener.local_addr().expect("an address");
            assert_eq!(sockets.listening, [address.port()]);
            let stream = sockets.watch(|| TcpStream::connect(address)).expect("a connection");
            assert_eq!(sockets.connecting.len(), 1);
            assert_eq!(sockets.connecting[0].0, stream.as_raw_fd());

            // std opens with close-on-exec; UCX does not.
            fcntl_setfd(&stream, FdFlags::empty()).expect("flags");
            sockets.tend();
            assert!(fcntl_getfd(&stream).expect("flags").contains(FdFlags::CLOEXEC));
            assert_eq!(option(stream.as_fd(), SOL_SOCKET, SO_KEEPALIVE), Some(1));
        });
        thread.join().expect("the thread's assertions hold");
    }
}
