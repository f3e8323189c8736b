//! Framed messages between processes of Nagaya, over a Unix socket.
//!
//! A message is a header of 16 bytes and a body in postcard's encoding. The header has the magic
//! number, the version, the length of the body and the number of descriptors, in little-endian
//! order. Descriptors travel as SCM_RIGHTS with the first bytes of the header. The receiver checks
//! sizes before it allocates memory, and reports a protocol violation as an error.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

const MAGIC: u32 = 0x6179_676e;
const HEADER_SIZE: usize = 16;
/// Limit of a body's size in bytes. Arguments and environment of a program take at most a few MiB.
const BODY_SIZE_MAX: usize = 64 << 20;
/// Limit of descriptors in one message.
pub const FDS_MAX: usize = 15 * FDS_BATCH;
/// Descriptors in one sendmsg call; the kernel's limit is 253.
const FDS_BATCH: usize = 128;

/// Returns the error for a protocol violation.
fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// One end of a connection. Sending blocks; receiving blocks if the socket is in blocking mode.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    version: u32,
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl Connection {
    /// Wraps a connected stream socket. Both ends must use the same `version` of their protocol.
    pub fn new(socket: OwnedFd, version: u32) -> Self {
        Self { socket, version, bytes: Vec::new(), fds: VecDeque::new() }
    }

    /// Sends a message with descriptors.
    pub fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let body = postcard::to_allocvec(message).map_err(|e| broken(&e.to_string()))?;
        if body.len() > BODY_SIZE_MAX || fds.len() > FDS_MAX {
            return Err(broken("message too long"));
        }
        let mut header = Vec::with_capacity(HEADER_SIZE + body.len());
        for word in [MAGIC, self.version, body.len() as u32, fds.len() as u32] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        // One byte of the header carries each batch, so that descriptors arrive with it.
        let mut rest = &header[..];
        for batch in fds.chunks(FDS_BATCH) {
            let byte = rest.split_off(..rest.len().min(1)).unwrap_or_default();
            self.send_all(byte, batch)?;
            if rest.is_empty() {
                return Err(broken("too many descriptors"));
            }
        }
        let rest = rest.to_vec();
        self.send_all(&rest, &[])?;
        self.send_all(&body, &[])
    }

    fn send_all(&self, mut bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(broken("descriptors do not fit"));
        }
        while !bytes.is_empty() {
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    control.clear();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_writable()?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Waits until the socket is writable. Fails if the peer does not read for ten seconds.
    fn wait_writable(&self) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads the bytes that have arrived. Returns false if the peer has closed the connection.
    /// WouldBlock is not an error.
    pub fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; 64 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
            return Err(broken("descriptors were lost (raise ulimit -n)"));
        }
        if self.fds.len() > FDS_MAX {
            return Err(broken("too many descriptors"));
        }
        self.bytes.extend_from_slice(&buffer[..received.bytes]);
        Ok(received.bytes > 0)
    }

    /// Returns the next complete message that has arrived, with its descriptors.
    pub fn take<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        if self.bytes.len() < HEADER_SIZE {
            return Ok(None);
        }
        let word = |n: usize| {
            let bytes = &self.bytes[n * 4..n * 4 + 4];
            u32::from_le_bytes(bytes.try_into().expect("four bytes"))
        };
        let (body, fds) = (word(2) as usize, word(3) as usize);
        if word(0) != MAGIC {
            return Err(broken("not a message of nagaya"));
        }
        if word(1) != self.version {
            return Err(broken("another version of nagaya"));
        }
        if body > BODY_SIZE_MAX || fds > FDS_MAX {
            return Err(broken("message too long"));
        }
        if self.bytes.len() < HEADER_SIZE + body {
            return Ok(None);
        }
        if self.fds.len() < fds {
            return Err(broken("descriptors are missing"));
        }
        let message = postcard::from_bytes(&self.bytes[HEADER_SIZE..HEADER_SIZE + body])
            .map_err(|e| broken(&e.to_string()))?;
        self.bytes.drain(..HEADER_SIZE + body);
        Ok(Some((message, self.fds.drain(..fds).collect())))
    }

    /// Waits for the next message on a blocking socket. Returns `None` if the peer has closed the
    /// connection.
    pub fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        Ok(self.receive_with()?.map(|(message, _)| message))
    }

    /// Like [`Connection::receive`], but also returns the message's descriptors.
    pub fn receive_with<T: for<'a> Deserialize<'a>>(
        &mut self,
    ) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const VERSION: u32 = 2;

    #[derive(Debug, Serialize, Deserialize)]
    enum Request {
        Signal(i32, Option<i32>),
        Status,
    }

    fn pair() -> (Connection, Connection) {
        let (a, b) = UnixStream::pair().unwrap();
        (Connection::new(a.into(), VERSION), Connection::new(b.into(), VERSION))
    }

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, mut b) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        let fds: Vec<_> = (0..300).map(|_| file.as_fd()).collect();
        a.send(&Request::Signal(15, None), &fds).unwrap();
        a.send(&Request::Status, &[]).unwrap();
        loop {
            if let Some((message, fds)) = b.take::<Request>().unwrap() {
                assert!(matches!(message, Request::Signal(15, None)));
                assert_eq!(fds.len(), 300);
                break;
            }
            assert!(b.fill().unwrap());
        }
        assert!(matches!(b.receive::<Request>().unwrap(), Some(Request::Status)));
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_refused() {
        for bytes in [
            [0u8; 16].to_vec(),
            [&MAGIC.to_le_bytes()[..], &99u32.to_le_bytes(), &[0; 8]].concat(),
            [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes(), &[0xff; 8]].concat(),
            [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes(), &[1, 0, 0, 0, 1, 0, 0, 0], &[0]]
                .concat(),
            [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0], &[77]]
                .concat(),
        ] {
            let (a, mut b) = pair();
            rustix::io::write(&a, &bytes).unwrap();
            assert!(b.receive::<Request>().is_err(), "{bytes:?}");
        }
    }
}
