//! One TCP connection: its stages, from dialing to the end.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use sync::inject::{self, Call};

use super::noise::{HANDSHAKE_BYTES, Handshake, Instance, Session, Unauthentic};
use super::output::Output;
use super::record;
use crate::secret::Secret;
use crate::stream::input::{Arrival, Broken, Input};

/// Time limit for dialing and the handshake, and for the first record after it.
pub const BEGIN_MAX: Duration = Duration::from_secs(5);
/// Time limit for the last bytes of a connection that was closed.
pub const END_MAX: Duration = Duration::from_secs(1);

/// A connection.
pub struct Connection {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// The stage.
    pub stage: Stage,
    /// The tag of the endpoint, if this connection belongs to one.
    pub tag: Option<u64>,
    /// The outgoing side.
    pub output: Output,
    /// The incoming side.
    pub input: Input,
    /// The beginning of a record whose rest has not come.
    pub partial: Vec<u8>,
    /// The socket did not take all bytes: the epoll descriptor reports when it takes more.
    pub is_full: bool,
    /// The addresses to dial next.
    pub others: Vec<SocketAddr>,
    /// The name of the called carrier, if this side dials.
    pub called: Option<Instance>,
}

/// A stage of a connection.
pub enum Stage {
    /// The kernel connects, until this time.
    Dialing(Instant),
    /// This side has sent its handshake message, and waits for the answer until this time.
    Calling(Instant, Handshake),
    /// This side waits for the handshake message of a caller until this time.
    Called(Instant, Handshake),
    /// The handshake is complete. The caller has not proved yet that its message was no repetition;
    /// it must do so until this time.
    Unproved(Instant, Session),
    /// Both sides have proved that they hold the secret.
    Open(Session),
    /// The endpoint is closed; the rest of the output is sent until this time.
    Closing(Instant),
    /// The connection has failed; its endpoint is not closed yet.
    Failed,
}

/// A part of the incoming bytes that was handled.
pub enum Taken {
    /// None: neither a record nor a handshake message is complete.
    Nothing,
    /// A handshake message of this length; the output may have an answer.
    Handshake(usize),
    /// A record of this length, and perhaps an event.
    Record(usize, Option<Arrival>),
}

impl Taken {
    fn of(bytes: usize, arrival: Option<Arrival>) -> Self {
        if bytes == 0 { Self::Nothing } else { Self::Record(bytes, arrival) }
    }
}

/// The reason why incoming bytes are not handled.
pub enum Refusal {
    /// The other side does not hold the secret.
    Stranger,
    /// The stream is broken.
    Broken(Broken),
    /// Nothing is received at this stage.
    Deaf,
}

/// The result of reading from a socket.
pub enum Io {
    /// Some bytes.
    Some(usize),
    /// The socket is not ready.
    None,
    /// The stream has ended or failed.
    End,
}

impl Connection {
    /// A connection at a stage.
    pub fn new(socket: OwnedFd, stage: Stage) -> Self {
        Self {
            socket,
            stage,
            tag: None,
            output: Output::default(),
            input: Input::default(),
            partial: Vec::new(),
            is_full: false,
            others: Vec::new(),
            called: None,
        }
    }

    /// Returns true for a caller that has not proved that it holds the secret.
    pub fn is_stranger(&self) -> bool {
        matches!(self.stage, Stage::Called(..) | Stage::Unproved(..))
    }

    /// Returns the end of the stage's time limit.
    pub fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Dialing(until)
            | Stage::Calling(until, _)
            | Stage::Called(until, _)
            | Stage::Unproved(until, _)
            | Stage::Closing(until) => Some(until),
            Stage::Open(_) | Stage::Failed => None,
        }
    }

    /// Begins the handshake, after the kernel has connected.
    pub fn call(&mut self, secret: &Secret) {
        let called = self.called.expect("this side dials");
        let mut handshake = Handshake::initiator(secret, &called);
        self.output.push_plain(&handshake.write());
        self.stage = Stage::Calling(Instant::now() + BEGIN_MAX, handshake);
    }

    /// Handles the first handshake message or record of incoming bytes.
    pub fn take(&mut self, stream: &[u8], plain: &mut [u8]) -> Result<Taken, Refusal> {
        match &mut self.stage {
            Stage::Calling(..) | Stage::Called(..) => {
                let Some(message) = stream.first_chunk::<HANDSHAKE_BYTES>() else {
                    return Ok(Taken::Nothing);
                };
                self.shake_hands(message).map_err(|Unauthentic| Refusal::Stranger)?;
                Ok(Taken::Handshake(HANDSHAKE_BYTES))
            }
            Stage::Unproved(_, session) => {
                let opened = record::open(stream, session, &mut self.input, plain);
                let (bytes, arrival) = opened.map_err(|_| Refusal::Stranger)?;
                if bytes > 0 {
                    self.is_proved();
                }
                Ok(Taken::of(bytes, arrival))
            }
            Stage::Open(session) => {
                let opened = record::open(stream, session, &mut self.input, plain);
                let (bytes, arrival) = opened.map_err(Refusal::Broken)?;
                Ok(Taken::of(bytes, arrival))
            }
            Stage::Dialing(_) | Stage::Closing(_) | Stage::Failed => Err(Refusal::Deaf),
        }
    }

    /// The caller has sent a record: its handshake message was no repetition.
    fn is_proved(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Unproved(_, session) => Stage::Open(session),
            stage => stage,
        };
    }

    fn shake_hands(&mut self, message: &[u8; HANDSHAKE_BYTES]) -> Result<(), Unauthentic> {
        match &mut self.stage {
            Stage::Calling(_, handshake) => handshake.read(message)?,
            Stage::Called(_, handshake) => {
                handshake.read(message)?;
                self.output.push_plain(&handshake.write());
            }
            _ => unreachable!("`take` calls this at these stages"),
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Calling(_, handshake) => Stage::Open(handshake.finish()),
            Stage::Called(until, handshake) => Stage::Unproved(until, handshake.finish()),
            stage => stage,
        };
        Ok(())
    }

    /// Drops the traces of an address that did not work.
    pub fn begin_anew(&mut self, stage: Stage) {
        self.stage = stage;
        self.is_full = false;
        self.output.drop_sealed();
        self.partial.clear();
    }

    /// Returns the events of the socket that the connection waits for.
    pub fn interest(&self) -> EventFlags {
        match self.stage {
            Stage::Dialing(_) => EventFlags::OUT,
            _ if self.is_full => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::IN,
        }
    }

    /// Reads bytes that have come.
    pub fn read(&self, buffer: &mut [u8]) -> Io {
        let room = inject::length(Call::Read, buffer.len());
        let received = match inject::error(Call::Read) {
            Some(errno) => Err(errno),
            None => recv(&self.socket, &mut buffer[..room], RecvFlags::DONTWAIT),
        };
        match received {
            Ok((_, 0)) => Io::End,
            Ok((_, bytes)) => Io::Some(bytes),
            Err(Errno::AGAIN | Errno::INTR) => Io::None,
            Err(_) => Io::End,
        }
    }

    /// Writes waiting bytes and messages as far as the socket takes them. Calls `done` with the tag
    /// of each message that is no longer needed.
    pub fn write(&mut self, mut done: impl FnMut(u64)) -> Result<(), Errno> {
        self.is_full = false;
        loop {
            if let Stage::Open(session) = &mut self.stage {
                self.output.fill(session, &mut done);
            }
            let bytes = self.output.bytes();
            if bytes.is_empty() {
                if matches!(self.stage, Stage::Closing(_)) {
                    let _ = shutdown(&self.socket, Shutdown::Write);
                }
                return Ok(());
            }
            let bytes = &bytes[..inject::length(Call::Write, bytes.len())];
            let sent = match inject::error(Call::Write) {
                Some(errno) => Err(errno),
                None => send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            };
            match sent {
                Ok(taken) => self.output.wrote(taken),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.is_full = true;
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Ends the stream in both directions, also where a forked child has the socket, too.
    pub fn shut_down(&self) {
        let _ = shutdown(self.socket.as_fd(), Shutdown::Both);
    }
}
