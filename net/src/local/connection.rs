//! One connection of the local carrier: two rings, and a socket that wakes the other side and shows
//! its end.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sync::ring::{Found, Kind, Receiver, SendError, Sender, rouse};

use super::rings::Rings;
use crate::payload::Payload;
use crate::stream::frame::{FIRST_BYTES_MAX, Head, SHORT_BYTES_MAX};
use crate::stream::input::{Arrival, Broken, Input};
use crate::stream::outgoing::{Outgoing, bytes_of};
use zerocopy::IntoBytes as _;

/// Maximum length of a record: small enough that both sides copy at once.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

const _: () = assert!(FIRST_BYTES_MAX <= RECORD_BYTES_MAX);

/// A connection.
pub struct Connection {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The rings; a caller's have not come until this time.
    pub rings: Result<Rings, Instant>,
    /// The tag of the endpoint, if this connection belongs to one.
    pub tag: Option<u64>,
    /// The other side has ended; its ring may still have messages.
    pub has_ended: bool,
    /// It has failed; the endpoint is not closed yet.
    pub has_failed: bool,
    /// Messages that the ring did not take.
    pub queue: VecDeque<Outgoing>,
    /// The incoming side.
    pub input: Input,
    sender: Sender,
    receiver: Receiver,
}

impl Connection {
    /// A connection with these rings, or without yet.
    pub fn new(socket: OwnedFd, rings: Result<Rings, Instant>) -> Self {
        Self {
            socket,
            rings,
            tag: None,
            has_ended: false,
            has_failed: false,
            queue: VecDeque::new(),
            input: Input::default(),
            sender: Sender::new(0, 0),
            receiver: Receiver::default(),
        }
    }

    /// Moves a message with a short payload into the ring at once. Returns false if others wait, or
    /// if there is no room.
    pub fn send_short(&mut self, header: &[u8], payload: &Payload) -> bool {
        let payload = bytes_of(payload);
        let Ok(rings) = &self.rings else { return false };
        if !self.queue.is_empty() || payload.len() > SHORT_BYTES_MAX {
            return false;
        }
        let head = Head::new(header, payload);
        match self.sender.send(&rings.out, Kind::Part, &[head.as_bytes(), header, payload]) {
            Ok(sleeps) => {
                if sleeps {
                    wake_receiver(rings, &self.socket);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Moves waiting messages into the ring as far as it has room. Calls `done` with the tag of
    /// each message that is no longer needed. Returns true if any record was sent.
    pub fn send(&mut self, mut done: impl FnMut(u64)) -> bool {
        let Ok(rings) = &self.rings else { return false };
        let (mut any, mut sleeps) = (false, false);
        while let Some(outgoing) = self.queue.front_mut() {
            let sender = &mut self.sender;
            let put = |parts: &[&[u8]]| -> Result<(), SendError> {
                sleeps |= sender.send(&rings.out, Kind::Part, parts)?;
                Ok(())
            };
            match outgoing.put_next(RECORD_BYTES_MAX, put) {
                Ok(is_last) => {
                    any = true;
                    // The receiver begins while this side goes on.
                    if std::mem::take(&mut sleeps) {
                        wake_receiver(rings, &self.socket);
                    }
                    if is_last {
                        done(outgoing.tag);
                        self.queue.pop_front();
                    }
                }
                Err(SendError::Full) => break,
                Err(SendError::TooLong) => unreachable!("a record is shorter than a ring"),
            }
        }
        any
    }

    /// Receives the next record. Returns false if there is none, or if a place comes first.
    pub fn receive(
        &mut self,
        plain: &mut [u8],
        mut event: impl FnMut(Arrival),
    ) -> Result<bool, Broken> {
        const CORRUPT: Broken = Broken("the memory that is shared with it is corrupt");
        let Ok(rings) = &self.rings else { return Ok(false) };
        if self.input.is_paused() {
            return Ok(false);
        }
        let message = match self.receiver.look(&rings.into) {
            Found::Message(message) => message,
            Found::Nothing | Found::Unfinished(_) => return Ok(false),
            Found::Corrupt => return Err(CORRUPT),
        };
        let bytes = message.header.length as usize;
        if bytes > plain.len() {
            return Err(CORRUPT);
        }
        let open = |place: &mut [u8]| {
            self.receiver.read(&rings.into, &message, 0, &mut place[..bytes]);
            Ok(())
        };
        let arrival = self.input.record(bytes, bytes, open, plain)?;
        if self.receiver.consume(&rings.into, &message) {
            wake(&self.socket);
        }
        arrival.into_iter().for_each(&mut event);
        Ok(true)
    }

    /// Announces that this side sleeps. Returns false if there is something to do first. Calls
    /// `done` as [`send`](Self::send) does.
    pub fn about_to_sleep(&mut self, done: impl FnMut(u64)) -> bool {
        let Ok(rings) = &self.rings else { return true };
        // Before the announcement, which a publication takes back.
        if self.receiver.publish(&rings.into) {
            wake(&self.socket);
        }
        self.receiver.about_to_sleep(&rings.into);
        if !matches!(self.receiver.look(&rings.into), Found::Nothing) {
            return false;
        }
        if self.queue.is_empty() {
            return true;
        }
        self.sender.wait_for_room(&rings.out);
        !self.send(done)
    }

    /// Announces that this side is awake.
    pub fn awake(&mut self) {
        if let Ok(rings) = &self.rings {
            self.receiver.awake(&rings.into);
        }
    }

    /// Reads the wake-ups of the other side. Returns false at its end.
    pub fn read_wake_ups(&self) -> bool {
        let mut bytes = [0; 64];
        loop {
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return false,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// Wakes the receiver of outgoing messages, which sleeps.
fn wake_receiver(rings: &Rings, socket: &OwnedFd) {
    rouse(&rings.out);
    wake(socket);
}

/// Wakes the other side. A full socket wakes it, too.
fn wake(socket: &OwnedFd) {
    let _ = send(socket.as_fd(), &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use sync::ring::Buffer as _;

    use super::*;

    fn pair() -> [Connection; 2] {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .expect("a pair of sockets");
        let ours = Rings::create(here.as_fd()).expect("rings");
        let theirs = Rings::receive(there.as_fd()).expect("rings").expect("sent before");
        [Connection::new(here, Ok(ours)), Connection::new(there, Ok(theirs))]
    }

    fn receive(connection: &mut Connection) -> Result<Option<Arrival>, Broken> {
        let (mut plain, mut arrived) = (vec![0; RECORD_BYTES_MAX], None);
        connection.receive(&mut plain, |arrival| arrived = Some(arrival))?;
        Ok(arrived)
    }

    #[test]
    fn a_message_wakes_a_peer_that_sleeps_and_no_other() {
        let [mut here, mut there] = pair();
        let send = |from: &mut Connection| {
            from.queue.push_back(Outgoing::new(b"header".to_vec(), vec![7; 100].into(), 1));
            assert!(from.send(|_| {}));
        };
        let mut byte = [0; 8];
        let mut woken = |to: &Connection| recv(&to.socket, &mut byte, RecvFlags::DONTWAIT).is_ok();
        send(&mut here);
        assert!(!woken(&there), "it does not sleep");
        assert!(!there.about_to_sleep(|_| {}), "there is a message");
        there.awake();
        let came = receive(&mut there);
        assert!(matches!(came, Ok(Some(Arrival::Whole(header, _))) if header == b"header"));
        // With lines to free: their publication must not take back the announcement.
        assert!(there.about_to_sleep(|_| {}));
        send(&mut here);
        assert!(woken(&there), "it sleeps");
        send(&mut here);
        assert!(!woken(&there), "it is awake");
    }

    /// The other side can write anything into the memory.
    #[test]
    fn corrupt_memory_breaks_the_connection() {
        // A kind that no sender writes; a length above that of a record, and of the ring.
        for word in [7, 5 | (RECORD_BYTES_MAX as u64 + 1) << 3, 5 | ((1 << 29) - 1) << 3, u64::MAX]
        {
            let [mut here, there] = pair();
            let ring = &there.rings.as_ref().expect("rings").out;
            ring.header(0).store(word, std::sync::atomic::Ordering::Release);
            assert!(receive(&mut here).is_err(), "{word:#x}");
        }
        // A record that begins no frame.
        let [mut here, there] = pair();
        let mut sender = Sender::new(0, 0);
        let ring = &there.rings.as_ref().expect("rings").out;
        sender.send(ring, Kind::Part, &[&[0xff; 40]]).expect("room");
        assert!(receive(&mut here).is_err());
    }
}
