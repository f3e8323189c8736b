//! The objects behind the descriptors that the event loop polls.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use pvm::tid::Tid;

use crate::connection::Connection;
use crate::space::Stub;

/// The object behind a polled descriptor.
#[derive(Debug)]
pub(crate) enum Source {
    Listener(UnixListener),
    Signals(OwnedFd),
    Connection(Connection),
    /// PID descriptor of a task that has enrolled.
    Process(Tid, OwnedFd),
    /// PID descriptor of a program that the daemon started. The program or a child of it may
    /// enroll.
    Child(Tid, OwnedFd),
    Output(Tid, OwnedFd),
    /// Connection to the node server for a task that is, or will be, in the space.
    Stub(Tid, Stub),
    /// Wake-up descriptor of the fabric.
    Fabric(OwnedFd),
    /// Wake-up descriptor for daemons started on other hosts.
    Starts(OwnedFd),
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Listener(listener) => listener.as_fd(),
            Source::Connection(connection) => connection.as_fd(),
            Source::Stub(_, stub) => stub.as_fd(),
            Source::Signals(fd)
            | Source::Fabric(fd)
            | Source::Starts(fd)
            | Source::Process(_, fd)
            | Source::Child(_, fd)
            | Source::Output(_, fd) => fd.as_fd(),
        }
    }
}
