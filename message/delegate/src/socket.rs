//! The messages by which requesters pass descriptors (`passed`), over a stream socket.
//!
//! A request is 8 bytes: an operation and a number, 32 bits each, little-endian. A descriptor
//! travels beside the first byte of its request (SCM_RIGHTS). An answer is 4 bytes: a number that
//! is not negative, or a negative errno. A requester waits for each answer before it asks again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The operations, with the version of these messages in the upper half.
const TAKE: u32 = 1 << 16 | 1;
const CLOSE: u32 = 1 << 16 | 2;

/// Bytes of a request.
const REQUEST_BYTES: usize = 8;
/// Largest number of descriptors in one receive, and of those that wait for their requests.
const DESCRIPTORS_MAX: usize = 8;

/// A request of a requester.
#[derive(Debug)]
pub enum Ask<'a> {
    /// Asks the delegatee to take this descriptor.
    Take(BorrowedFd<'a>),
    /// Asks the delegatee to close the descriptor with this number.
    Close(i32),
}

/// A request that has arrived at the delegatee.
#[derive(Debug)]
pub enum Asked {
    /// See [`Ask::Take`].
    Take(OwnedFd),
    /// See [`Ask::Close`].
    Close(i32),
}

/// Sends a request, and waits for the answer.
pub fn ask(stream: &UnixStream, ask: Ask<'_>) -> io::Result<i32> {
    let (operation, number, descriptor) = match ask {
        Ask::Take(descriptor) => (TAKE, 0, Some(descriptor)),
        Ask::Close(number) => (CLOSE, number, None),
    };
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&operation.to_le_bytes());
    request[4..].copy_from_slice(&number.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let mut rest = &request[..];
    while !rest.is_empty() {
        match sendmsg(stream, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                rest = &rest[sent..];
                control.clear();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut answer = [0; 4];
    let mut stream = stream;
    stream.read_exact(&mut answer)?;
    Ok(i32::from_le_bytes(answer))
}

/// Answers a request.
pub fn answer(mut stream: &UnixStream, number: i32) -> io::Result<()> {
    stream.write_all(&number.to_le_bytes())
}

/// The requests of one peer that have arrived.
#[derive(Debug, Default)]
pub struct Requests {
    bytes: VecDeque<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Requests {
    /// Receives the bytes that have arrived. Returns false if the peer has closed the connection.
    /// Error: the connection is broken, or the peer violates the protocol.
    pub fn fill(&mut self, stream: &UnixStream) -> io::Result<bool> {
        let mut bytes = [0; 8 * REQUEST_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(stream, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
        if is_cut || self.descriptors.len() > DESCRIPTORS_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        self.bytes.extend(&bytes[..received.bytes]);
        Ok(received.bytes > 0)
    }

    /// Returns the next complete request. Error: the peer violates the protocol.
    pub fn next(&mut self) -> io::Result<Option<Asked>> {
        if self.bytes.len() < REQUEST_BYTES {
            return Ok(None);
        }
        let mut word = || {
            let bytes: Vec<u8> = self.bytes.drain(..4).collect();
            u32::from_le_bytes(bytes.try_into().expect("four bytes"))
        };
        match (word(), word()) {
            (TAKE, 0) => match self.descriptors.pop_front() {
                Some(descriptor) => Ok(Some(Asked::Take(descriptor))),
                None => Err(ErrorKind::InvalidData.into()),
            },
            (CLOSE, number) => Ok(Some(Asked::Close(number.cast_signed()))),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair of sockets")
    }

    #[test]
    fn requests_arrive_with_their_descriptors() {
        let (requester, delegatee) = pair();
        let asks = std::thread::spawn(move || {
            let file = std::fs::File::open("/dev/null").expect("it opens");
            let taken = ask(&requester, Ask::Take(file.as_fd())).expect("an answer");
            (taken, ask(&requester, Ask::Close(-5)).expect("an answer"))
        });
        let mut requests = Requests::default();
        let mut answers = 0;
        while answers < 2 {
            assert!(requests.fill(&delegatee).expect("in order"));
            while let Some(asked) = requests.next().expect("in order") {
                let number = match asked {
                    Asked::Take(_) => 7,
                    Asked::Close(number) => number,
                };
                answer(&delegatee, number).expect("it is sent");
                answers += 1;
            }
        }
        assert_eq!(asks.join().expect("no panic"), (7, -5));
        assert!(!requests.fill(&delegatee).expect("closed"));
    }

    #[test]
    fn a_protocol_violation_ends_the_connection() {
        for (operation, number) in [(0, 0), (TAKE, 0), (TAKE, 1), (TAKE + (1 << 16), 0)] {
            let (mut requester, delegatee) = pair();
            requester
                .write_all(&[u32::to_le_bytes(operation), u32::to_le_bytes(number)].concat())
                .expect("sent");
            let mut requests = Requests::default();
            assert!(requests.fill(&delegatee).expect("open"));
            assert!(requests.next().is_err(), "{operation:#x} {number}");
        }
    }
}
