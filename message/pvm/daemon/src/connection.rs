//! A task's connection. The task sends frames; the daemon sends one answer, with the window's
//! descriptor.

use std::io::{ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use pvm::wire::{Frame, Welcome};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::frames::{Frames, frame};

/// Bytes read at a time.
const READ_SIZE: usize = 64 << 10;
/// Most reads before the other sources get their turn.
const READS_MAX: usize = 16;

/// The connection of one process.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// PID of the peer process.
    pub pid: u32,
    frames: Frames,
}

/// The result of a read.
#[derive(Debug, Default)]
pub struct Received {
    /// Frames, in order.
    pub frames: Vec<Frame>,
    /// The connection has ended. The inner value is the protocol violation, if there was one.
    pub end: Option<Option<String>>,
}

impl Connection {
    /// Returns the connection to the process with this PID. The stream must be non-blocking.
    pub fn new(stream: UnixStream, pid: u32) -> Connection {
        Connection { stream, pid, frames: Frames::default() }
    }

    /// Reads and parses the available bytes.
    pub fn read(&mut self) -> Received {
        let mut received = Received::default();
        let mut bytes = vec![0; READ_SIZE];
        for _ in 0..READS_MAX {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    received.end = Some(None);
                    break;
                }
                Ok(count) => self.frames.add(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    received.end = Some(None);
                    break;
                }
            }
            if let Err(why) = self.parse(&mut received.frames) {
                received.end = Some(Some(why));
                break;
            }
        }
        received
    }

    fn parse(&mut self, frames: &mut Vec<Frame>) -> Result<(), String> {
        loop {
            match self.frames.next() {
                Ok(None) => return Ok(()),
                Ok(Some(bytes)) => match postcard::from_bytes(bytes) {
                    Ok(frame) => frames.push(frame),
                    Err(error) => return Err(format!("an invalid frame ({error})")),
                },
                Err(too_long) => return Err(format!("a frame of {} bytes", too_long.0)),
            }
        }
    }

    /// Answers a request to enroll. After an error the caller closes the connection: the answer
    /// is so short that its buffer always has room, unless the peer violates the protocol.
    pub fn welcome(
        &self,
        welcome: &Result<Box<Welcome>, i32>,
        window: BorrowedFd<'_>,
    ) -> rustix::io::Result<()> {
        // Postcard fails only on data of unknown length; every part of a `Welcome` has a length.
        let bytes = frame(&postcard::to_allocvec(welcome).expect("a welcome"));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [window];
        if welcome.is_ok() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let slices = [IoSlice::new(&bytes)];
        let sent = sendmsg(&self.stream, &slices, &mut control, SendFlags::NOSIGNAL)?;
        // Nothing was sent before on this connection, so the answer fits into the socket's
        // buffer.
        if sent == bytes.len() { Ok(()) } else { Err(rustix::io::Errno::AGAIN) }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
