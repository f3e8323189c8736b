//! Orders from outside: `nagaya span --move`. They arrive at a socket of the origin with an
//! abstract name, from the same user or root, whose identity the kernel confirms. One datagram is
//! an order, another the answer.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrAny, recvmsg, sendto, sockopt,
};

/// Bytes of an order or an answer, at most.
const BYTES_MAX: usize = 256;
/// Time limit for the answer to an order.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Prefix of an answer that is not an error.
pub const DONE: &str = "done";

/// The socket of the origin that is this process.
pub fn address(process: u32) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nagaya-span-{process}"))
}

/// The socket that receives orders.
pub struct Orders(OwnedFd);

impl Orders {
    /// Of this process.
    pub fn new() -> std::io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&address(std::process::id())?)?;
        socket.set_nonblocking(true)?;
        sockopt::set_socket_passcred(&socket, true)?;
        Ok(Self(socket.into()))
    }

    /// Can be read when there is one.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sends an answer. If its receiver has ended, the answer is not needed.
    pub fn answer(&self, answer: &str, to: &SocketAddrAny) {
        let flags = rustix::net::SendFlags::DONTWAIT;
        let _ = sendto(&self.0, answer.as_bytes(), flags, to);
    }

    /// Returns the next order, its sender, and the address of the answer.
    pub fn take(&self) -> Option<(String, u32, SocketAddrAny)> {
        let mut bytes = [0; BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.0, &mut parts, &mut control, RecvFlags::DONTWAIT).ok()?;
        let user = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(who) => Some(who.uid.as_raw()),
            _ => None,
        });
        let text = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
        Some((text, user?, received.address?))
    }
}

/// Tells the program whose origin is this process that its thread is to go to this node. Errors
/// are a line.
pub fn order(process: u32, tid: i32, node: u32) -> Result<(), String> {
    let failed = |why: std::io::Error| match why.kind() {
        std::io::ErrorKind::ConnectionRefused => "it is no program under nagaya span".to_owned(),
        _ => why.to_string(),
    };
    let mut bytes = [0; BYTES_MAX];
    let count = address(process).and_then(|to| {
        // The kernel gives it a name, by which the answer comes.
        let socket = UnixDatagram::unbound()?;
        sockopt::set_socket_passcred(&socket, true)?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.connect_addr(&to)?;
        socket.send(format!("{tid}={node}").as_bytes())?;
        socket.recv(&mut bytes)
    });
    match &bytes[..count.map_err(failed)?] {
        answer if answer == DONE.as_bytes() => Ok(()),
        answer => Err(String::from_utf8_lossy(answer).into_owned()),
    }
}
