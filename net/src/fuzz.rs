//! Entry points of the fuzz targets (docs/fuzzing.md): the parsers and connections of this crate
//! without a network. Nothing else uses them.

pub mod fabric;

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sync::ring::{Buffer as _, Kind, Sender};

use crate::carrier::Landing;
use crate::launcher::Started;
use crate::local::connection::{Connection as LocalConnection, RECORD_BYTES_MAX};
use crate::local::rings::Rings;
use crate::pmix::{self, Data, pmix_byte_object_t, pmix_value_t};
use crate::secret::Secret;
use crate::stream::input::{Arrival, Input};
use crate::stream::outgoing::Outgoing;
use crate::tcp::connection::{Connection, Refusal, Stage, Taken};
use crate::tcp::noise::{Handshake, PLAIN_BYTES_MAX, SEALED_BYTES_MAX, Session};
use crate::tcp::{interfaces, record};

fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets")
}

/// Accepts or refuses a payload that was announced.
fn answer(input: &mut Input, arrival: &Arrival, accepts: bool) {
    let Arrival::Announced(_, bytes) = arrival else { return };
    // An announcement takes memory only as it arrives; here it would take it at once.
    const ACCEPTED_BYTES_MAX: usize = 1 << 20;
    match accepts && *bytes <= ACCEPTED_BYTES_MAX {
        true => {
            let landing = Landing::Bytes(vec![0; *bytes]);
            assert!(Input::accept_from(Some(input), landing, 1).is_none(), "it waits for it");
        }
        false => input.refuse(),
    }
}

/// A connection of the local carrier, and the memory that a peer shares with it.
pub struct SharedMemory {
    ours: LocalConnection,
    theirs: Rings,
    /// The peer's socket, so that it stays open.
    _peer: OwnedFd,
    sender: Sender,
    plain: Vec<u8>,
    /// Messages that came whole.
    pub received: usize,
}

impl SharedMemory {
    /// New memory.
    pub fn new() -> Self {
        let (here, there) = sockets();
        let ours = Rings::create(here.as_fd()).expect("rings");
        let theirs = Rings::receive(there.as_fd()).expect("rings").expect("sent before");
        Self {
            ours: LocalConnection::new(here, Ok(ours)),
            theirs,
            _peer: there,
            sender: Sender::new(0, 0),
            plain: vec![0; RECORD_BYTES_MAX],
            received: 0,
        }
    }

    /// The peer sends a record.
    pub fn send(&mut self, record: &[u8]) {
        let _ = self.sender.send(&self.theirs.out, Kind::Part, &[record]);
    }

    /// The peer writes a word: the header of a line, a claim, the tail or the head, of its own ring
    /// or of the other.
    pub fn write(&mut self, of_own: bool, place: u8, index: u32, word: u64) {
        let ring = if of_own { &self.theirs.out } else { &self.theirs.into };
        let index = index % ring.lines();
        match place % 4 {
            0 => ring.header(index).store(word, Ordering::Release),
            1 => ring.claim(index).store(word, Ordering::Release),
            2 => ring.tail().store(word, Ordering::Release),
            _ => ring.head().store(word as u32, Ordering::Release),
        }
    }

    /// This side receives. Returns false once the connection is broken.
    pub fn receive(&mut self, accepts: bool) -> bool {
        let mut arrived = None;
        if self.ours.receive(&mut self.plain, |arrival| arrived = Some(arrival)).is_err() {
            return false;
        }
        if let Some(arrival) = arrived {
            answer(&mut self.ours.input, &arrival, accepts);
            self.received += usize::from(matches!(arrival, Arrival::Whole(..)));
        }
        true
    }

    /// This side sends a message, as far as the ring takes it, and announces a sleep.
    pub fn answer(&mut self, payload: Vec<u8>) {
        self.ours.queue.push_back(Outgoing::new(vec![1], payload.into(), 1));
        self.ours.send(|_| {});
        self.ours.about_to_sleep(|_| {});
        self.ours.awake();
    }
}

impl Default for SharedMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// Passes bytes to a TCP connection before its handshake is complete, as the side that was called
/// or as the caller. Returns true if the other side counts as authentic.
pub fn tcp_before_handshake(is_caller: bool, pieces: &[&[u8]]) -> bool {
    let secret = Secret::new([5; 32]);
    let until = Instant::now() + Duration::from_secs(60);
    let stage = match is_caller {
        true => {
            let mut handshake = Handshake::initiator(&secret, &[1; 16]);
            handshake.write();
            Stage::Calling(until, handshake)
        }
        false => Stage::Called(until, Handshake::responder(&secret, &[1; 16])),
    };
    let (socket, _peer) = sockets();
    let mut connection = Connection::new(socket, stage);
    let (mut stream, mut plain) = (Vec::new(), vec![0; SEALED_BYTES_MAX]);
    for piece in pieces {
        stream.extend_from_slice(piece);
        loop {
            let taken = match connection.take(&stream, &mut plain) {
                Ok(Taken::Handshake(bytes) | Taken::Record(bytes, _)) => bytes,
                Ok(Taken::Nothing) => break,
                Err(Refusal::Stranger | Refusal::Broken(_) | Refusal::Deaf) => return false,
            };
            assert!(taken > 0 && taken <= stream.len(), "{taken} bytes were taken");
            stream.drain(..taken);
        }
    }
    !matches!(connection.stage, Stage::Called(..) | Stage::Calling(..))
}

/// The receiving side of a TCP connection whose peer holds the secret.
pub struct Records {
    theirs: Session,
    ours: Session,
    input: Input,
    stream: Vec<u8>,
    plain: Vec<u8>,
    /// Messages that came whole.
    pub received: usize,
}

impl Records {
    /// A connection after its handshake.
    pub fn new() -> Self {
        let secret = Secret::new([5; 32]);
        let mut caller = Handshake::initiator(&secret, &[1; 16]);
        let mut called = Handshake::responder(&secret, &[1; 16]);
        called.read(&caller.write()).expect("the same secret");
        caller.read(&called.write()).expect("the same secret");
        Self {
            theirs: caller.finish(),
            ours: called.finish(),
            input: Input::default(),
            stream: Vec::new(),
            plain: vec![0; SEALED_BYTES_MAX],
            received: 0,
        }
    }

    /// The peer sends a record of these bytes.
    pub fn send(&mut self, plain: &[u8]) {
        let plain = &plain[..plain.len().min(PLAIN_BYTES_MAX)];
        let start = self.stream.len();
        self.stream.resize(start + record::bytes_in_stream(plain.len()), 0);
        record::seal(&mut self.stream[start..], plain, &mut self.theirs);
    }

    /// These bytes arrive without a seal.
    pub fn send_unsealed(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
    }

    /// Receives what has arrived. Returns false once the connection is broken.
    pub fn receive(&mut self, accepts: bool) -> bool {
        loop {
            let Self { stream, ours, input, plain, .. } = self;
            let (taken, arrival) = match record::open(stream, ours, input, plain) {
                Ok((0, _)) => return true,
                Ok(taken) => taken,
                Err(_) => return false,
            };
            self.stream.drain(..taken);
            if let Some(arrival) = arrival {
                answer(&mut self.input, &arrival, accepts);
                self.received += usize::from(matches!(arrival, Arrival::Whole(..)));
            }
        }
    }
}

impl Default for Records {
    fn default() -> Self {
        Self::new()
    }
}

/// Reads the part of an address that belongs to TCP. Returns the bytes by which it is written.
pub fn tcp_address(bytes: &[u8]) -> Option<Vec<u8>> {
    let (instance, addresses): (_, Vec<SocketAddr>) = interfaces::parse(bytes)?;
    Some(interfaces::write(&instance, &addresses))
}

/// Reads a value of PMIx with this type, or without memory where the type has some. Returns the
/// number and the bytes.
pub fn pmix_value(r#type: u16, bytes: Option<&[u8]>) -> (Option<u32>, Option<Vec<u8>>) {
    let allocate = |bytes: &[u8]| {
        // SAFETY: the memory has one byte more than `bytes`, for a closing zero.
        unsafe {
            let memory = libc::calloc(bytes.len() + 1, 1).cast::<u8>();
            assert!(!memory.is_null(), "no memory");
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
            memory.cast::<std::ffi::c_char>()
        }
    };
    let memory = bytes.map_or(std::ptr::null_mut(), allocate);
    let data = match r#type {
        pmix::PMIX_STRING => Data { string: memory },
        pmix::PMIX_BYTE_OBJECT => {
            // A value without memory may claim some bytes.
            let size = bytes.map_or(7, <[u8]>::len);
            Data { bo: pmix_byte_object_t { bytes: memory, size } }
        }
        _ => {
            let first = bytes.and_then(|bytes| bytes.first_chunk::<8>()).copied();
            // SAFETY: from `calloc`, and nothing else uses it.
            unsafe { libc::free(memory.cast()) };
            Data { words: [u64::from_le_bytes(first.unwrap_or_default()) as usize, 0, 0] }
        }
    };
    // SAFETY: new memory of the size of the value; `Value` frees it as PMIx's memory.
    let value = unsafe {
        let value = libc::calloc(1, size_of::<pmix_value_t>()).cast::<pmix_value_t>();
        assert!(!value.is_null(), "no memory");
        value.write(pmix_value_t { r#type, data });
        pmix::Value::new(value)
    };
    (value.number(), value.bytes())
}

/// Evaluates the variables of a launcher, of which each line is one. Returns the error, if the
/// processes cannot form a job.
pub fn launcher(text: &str) -> Option<String> {
    let variable = |name: &str| {
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        text.lines().find_map(value)
    };
    match Started::of(&variable, &|fd| fd % 2 == 0) {
        Started::Unformed(line) => Some(line),
        _ => None,
    }
}
