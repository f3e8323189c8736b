//! Framed messages between processes of Nagaya, over a Unix socket.
//!
//! A message is a header of 16 bytes and a body in postcard's encoding. The header has the magic
//! number, the version, the length of the body and the number of descriptors, in little-endian
//! order. Descriptors travel as SCM_RIGHTS with the first bytes of the header. The receiver checks
//! sizes before it allocates memory, and reports a protocol violation as an error.
//!
//! A process that serves several peers must not wait for one of them. It queues its messages with
//! [`Connection::queue`] and sends them with [`Connection::flush`], which never block on a
//! non-blocking socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use sync::inject::{self, Call};

const MAGIC: u32 = 0x6179_676e;
const HEADER_SIZE: usize = 16;
/// Limit of a body's size in bytes. Arguments and environment of a program take at most a few MiB.
const BODY_SIZE_MAX: usize = 64 << 20;
/// Limit of descriptors in one message.
pub const FDS_MAX: usize = 15 * FDS_BATCH;
/// Descriptors in one sendmsg call; the kernel's limit is 253.
const FDS_BATCH: usize = 128;
/// Bytes that one call of [`Connection::fill`] reads at most.
const READ_SIZE: usize = 64 << 10;
/// Time limit for a peer to read some bytes of a message that [`Connection::send`] sends on a
/// non-blocking socket.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the error for a protocol violation.
fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// One end of a connection. [`Connection::send`] waits until the peer has taken the message, and
/// [`Connection::receive`] waits for one.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    version: u32,
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
    /// Bytes of queued messages that are not sent yet, from `sent` on.
    queue: Vec<u8>,
    /// Number of bytes of `queue` that are sent.
    sent: usize,
    /// Limit of the body of a received message, in bytes.
    body_size_max: usize,
}

impl Connection {
    /// Wraps a connected stream socket. Both ends must use the same `version` of their protocol.
    pub fn new(socket: OwnedFd, version: u32) -> Self {
        Self {
            socket,
            version,
            bytes: Vec::new(),
            fds: VecDeque::new(),
            queue: Vec::new(),
            sent: 0,
            body_size_max: BODY_SIZE_MAX,
        }
    }

    /// Sets a lower limit for the body of a received message, in bytes.
    pub fn with_body_size_max(self, body_size_max: usize) -> Self {
        Self { body_size_max, ..self }
    }

    /// Returns the header and the body of a message.
    fn encode(
        &self,
        message: &impl Serialize,
        fds: usize,
    ) -> io::Result<([u8; HEADER_SIZE], Vec<u8>)> {
        let body = postcard::to_allocvec(message).map_err(|e| broken(&e.to_string()))?;
        if body.len() > BODY_SIZE_MAX || fds > FDS_MAX {
            return Err(broken("message too long"));
        }
        let mut header = [0; HEADER_SIZE];
        let words = [MAGIC, self.version, body.len() as u32, fds as u32];
        for (bytes, word) in header.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Ok((header, body))
    }

    /// Queues a message without descriptors, for [`Connection::flush`].
    pub fn queue(&mut self, message: &impl Serialize) -> io::Result<()> {
        let (header, body) = self.encode(message, 0)?;
        self.queue.drain(..self.sent);
        self.sent = 0;
        self.queue.extend_from_slice(&header);
        self.queue.extend_from_slice(&body);
        Ok(())
    }

    /// Returns the number of queued bytes that are not sent yet.
    pub fn queued(&self) -> usize {
        self.queue.len() - self.sent
    }

    /// Sends queued bytes without waiting, and returns how many the peer's socket took. Some are
    /// left if it is full.
    pub fn flush(&mut self) -> io::Result<usize> {
        let before = self.sent;
        while self.queued() > 0 {
            let bytes = &self.queue[self.sent..][..inject::length(Call::Write, self.queued())];
            let bytes = [IoSlice::new(bytes)];
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = match inject::error(Call::Write) {
                Some(errno) => Err(errno),
                None => sendmsg(&self.socket, &bytes, &mut SendAncillaryBuffer::default(), flags),
            };
            match sent {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(self.sent - before),
                Err(errno) => return Err(errno.into()),
            }
        }
        let sent = self.sent - before;
        // A long reply is rare, so its memory is not kept.
        (self.queue, self.sent) = (Vec::new(), 0);
        Ok(sent)
    }

    /// Sends a message with descriptors.
    pub fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (header, body) = self.encode(message, fds.len())?;
        // One byte of the header carries each batch, so that descriptors arrive with it.
        let mut rest = &header[..];
        for batch in fds.chunks(FDS_BATCH) {
            let byte = rest.split_off(..rest.len().min(1)).unwrap_or_default();
            self.send_all(byte, batch)?;
            if rest.is_empty() {
                return Err(broken("too many descriptors"));
            }
        }
        self.send_all(rest, &[])?;
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

    /// Waits until the socket is writable, for at most [`SEND_TIMEOUT`].
    fn wait_writable(&self) -> io::Result<()> {
        self.wait(PollFlags::OUT, SEND_TIMEOUT)
    }

    /// Waits for an event of the socket.
    ///
    /// # Errors
    /// TimedOut if there is none within `timeout`.
    fn wait(&self, event: PollFlags, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.socket, event)];
        let nanoseconds = i64::from(timeout.subsec_nanos());
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: nanoseconds };
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads the bytes that have arrived. Returns false if the peer has closed the connection.
    /// WouldBlock is not an error.
    pub fn fill(&mut self) -> io::Result<bool> {
        self.fill_with(RecvFlags::empty())
    }

    fn fill_with(&mut self, flags: RecvFlags) -> io::Result<bool> {
        let mut buffer = [0; READ_SIZE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = inject::length(Call::Read, buffer.len());
        let received = match inject::error(Call::Read) {
            Some(errno) => Err(errno),
            None => recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut buffer[..room])],
                &mut control,
                RecvFlags::CMSG_CLOEXEC | flags,
            ),
        };
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
        let bytes = &buffer[..received.bytes];
        self.bytes.try_reserve(bytes.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.bytes.extend_from_slice(bytes);
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
        if body > self.body_size_max || fds > FDS_MAX {
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

    /// Returns true if [`Connection::take`] would return a message or an error.
    pub fn has_message(&self) -> bool {
        let Some(header) = self.bytes.first_chunk::<HEADER_SIZE>() else { return false };
        let body = u32::from_le_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        // A malformed header counts, too: `take` reports it.
        let is_bad = header[..4] != MAGIC.to_le_bytes() || body > self.body_size_max;
        is_bad || self.bytes.len() - HEADER_SIZE >= body
    }

    /// Waits for the next message until `deadline`. Returns `None` if the peer has closed the
    /// connection.
    ///
    /// # Errors
    /// TimedOut if no whole message has arrived by then.
    pub fn receive_until<T: for<'a> Deserialize<'a>>(
        &mut self,
        deadline: Instant,
    ) -> io::Result<Option<T>> {
        loop {
            if let Some((message, _)) = self.take()? {
                return Ok(Some(message));
            }
            self.wait(PollFlags::IN, deadline.saturating_duration_since(Instant::now()))?;
            if !self.fill_with(RecvFlags::DONTWAIT)? {
                return Ok(None);
            }
        }
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
    fn a_wait_for_a_silent_peer_ends_at_its_deadline() {
        let (a, mut b) = pair();
        // A part of a message counts as silence, too.
        rustix::io::write(&a, &MAGIC.to_le_bytes()).unwrap();
        let deadline = Instant::now() + Duration::from_millis(20);
        let error = b.receive_until::<Request>(deadline).expect_err("no message");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(Instant::now() >= deadline);
    }

    #[test]
    fn a_queue_waits_for_its_reader_and_blocks_nobody() {
        let (mut a, mut b) = pair();
        let long = "x".repeat(4 << 20);
        a.queue(&long).unwrap();
        a.queue(&Request::Status).unwrap();
        let mut sent = a.flush().unwrap();
        assert!(sent > 0 && a.queued() > 0, "{sent} bytes fit into the socket");
        assert_eq!(a.flush().unwrap(), 0);
        let received = loop {
            if let Some((text, _)) = b.take::<String>().unwrap() {
                break text;
            }
            assert!(b.fill().unwrap());
            sent += a.flush().unwrap();
        };
        assert!(received == long);
        while !b.has_message() {
            assert!(b.fill().unwrap());
            sent += a.flush().unwrap();
        }
        assert!(matches!(b.take::<Request>().unwrap(), Some((Request::Status, _))));
        assert!(a.queued() == 0 && sent > long.len() && !b.has_message());
        drop(b);
        a.queue(&Request::Status).unwrap();
        assert!(a.flush().is_err());
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
