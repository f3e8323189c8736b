//! The interface of carriers, which take messages to other processes. A carrier knows no job, no
//! secret of a connection and no order of messages: [`fabric`](crate::fabric) adds them.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use slotmap::{DefaultKey, KeyData};

use crate::error::FabricError;
use crate::payload::Payload;

/// The reason of a failure, as the end of a line.
pub type Reason = Cow<'static, str>;

/// A carrier's name for a way to a peer.
pub type EndpointId = u64;

/// Returns the key that a number names, such as a tag or an endpoint.
pub fn key_of(name: u64) -> DefaultKey {
    DefaultKey::from(KeyData::from_ffi(name))
}

/// Takes messages to other processes, for one thread at a time.
///
/// The tag of a call comes back with the event about it. Memory that a call was given belongs to
/// the carrier until then.
pub trait Carrier: Send {
    /// The bytes by which a peer's carrier of the same kind connects to this one.
    fn address(&self) -> Result<Vec<u8>, FabricError>;

    /// Becomes readable when there may be work, once [`arm`](Self::arm) has returned true.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Prepares the descriptor to report the next event. Returns false if there is work now.
    fn arm(&mut self) -> Result<bool, FabricError>;

    /// Sends and receives as far as that goes without waiting. Returns true if it did any work.
    fn progress(&mut self) -> bool;

    /// Returns the next event.
    fn next(&mut self) -> Option<Happened>;

    /// Creates a way to the carrier with that address. Messages may be sent at once.
    fn connect(&mut self, address: &[u8], tag: u64) -> Result<EndpointId, Reason>;

    /// Creates a way back to the sender of a message, which gave this address.
    fn answer(&mut self, way: Way, address: &[u8], tag: u64) -> Result<EndpointId, Reason>;

    /// Ties the way on which a message came to a connection that has another way already: both
    /// sides have called at once. The carrier then reports the end of both ways. Returns `None` if
    /// the carrier reports the end of the peer by the other way.
    fn adopt(&mut self, _way: Way, _tag: u64) -> Option<EndpointId> {
        None
    }

    /// Ends a way. Operations in flight fail; the last event is [`Happened::Closed`].
    fn close(&mut self, endpoint: EndpointId);

    /// Sends a message.
    fn send(&mut self, endpoint: EndpointId, header: &[u8], payload: Payload, tag: u64) -> Sending;

    /// Returns true if it holds bytes of messages that it has reported as sent. They leave only
    /// while it makes progress.
    fn holds_sent(&self) -> bool {
        false
    }

    /// Accepts data. Returns the landing if they are present, or reports them later, with the tag.
    fn receive(&mut self, there: There, landing: Landing, tag: u64) -> Option<Landing>;

    /// Drops data.
    fn refuse(&mut self, there: There);

    /// Returns the reads and writes of peers' memory, if the carrier has them.
    fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        None
    }

    /// Prepares the end: gives away messages that were sent, within a limited time.
    fn settle(&mut self);

    /// Looks after connections; it is called about once a second.
    fn tend(&mut self);

    /// Returns true if [`tend`](Self::tend) has something to do.
    fn needs_tending(&self) -> bool;

    /// Returns the number of connections that were refused since they did not hold the secret.
    fn refused(&self) -> u64;

    /// Learns the addresses of all peers that may call. The carrier may close those ways to it that
    /// none of them would use.
    fn expect(&mut self, _peers: &[&[u8]]) {}

    /// Accepts no further connections.
    fn stop_listening(&mut self);
}

/// A carrier's name for imported memory.
pub type RegionId = u64;

/// The one-sided operations of a carrier. Tags are as in [`Carrier`]: the event [`Happened::Sent`]
/// reports the end of an operation.
pub trait OneSided {
    /// Registers memory, and returns a key by which peers import it.
    ///
    /// # Safety
    /// The memory stays mapped as long as the carrier lives, and peers may read and write it.
    unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<Vec<u8>, Reason>;

    /// Imports memory of an endpoint's peer. The key is one that the peer's carrier has made.
    fn import(&mut self, endpoint: EndpointId, key: &[u8]) -> Result<RegionId, Reason>;

    /// Writes to an address in the memory. The payload is no longer needed when it is complete.
    fn write(
        &mut self,
        endpoint: EndpointId,
        region: RegionId,
        address: u64,
        payload: Payload,
        tag: u64,
    ) -> Sending;

    /// Reads from an address in the memory.
    ///
    /// # Safety
    /// `to` is writable for `bytes` bytes, and nothing else uses it, until the read is complete or
    /// the carrier is dropped.
    unsafe fn read(
        &mut self,
        endpoint: EndpointId,
        region: RegionId,
        address: u64,
        to: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Sending;

    /// Completes all operations so far at the peer.
    fn flush(&mut self, endpoint: EndpointId, tag: u64) -> Sending;
}

/// An event of a carrier.
pub enum Happened {
    /// A message has come.
    Came {
        /// All of its header.
        header: Vec<u8>,
        /// The payload.
        data: Data,
        /// The way on which it came.
        way: Way,
    },
    /// A send or a [one-sided operation](OneSided) is complete: its tag, and the reason if it
    /// failed.
    Sent(u64, Result<(), Reason>),
    /// A receive is complete: the tag of `receive`, and the landing unless it failed.
    Received(u64, Option<Landing>),
    /// A way has failed: the tag of `connect` or `answer`.
    Failed(u64, Reason),
    /// A way is closed: the tag of `connect` or `answer`.
    Closed(u64),
}

/// A carrier's name for the way on which a message came.
#[derive(Clone, Copy)]
pub struct Way(pub u64);

/// The data of a message.
pub enum Data {
    /// Here they are.
    Here(Vec<u8>),
    /// The carrier has them, or can get them: see [`Carrier::receive`].
    There(There),
}

impl Data {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::There(there) => there.bytes,
        }
    }
}

/// Data to be accepted or refused.
pub struct There {
    /// The carrier's name for them.
    pub name: u64,
    /// Their length.
    pub bytes: usize,
    /// True if the data are still at the sender.
    pub announced: bool,
}

/// The destination of data.
#[derive(Debug)]
pub enum Landing {
    /// Owned memory.
    Bytes(Vec<u8>),
    /// The user's memory, and its length. `Fabric::place_with` requires that it is writable.
    Place(NonNull<u8>, usize),
}

impl Landing {
    /// Returns the start and the length in bytes.
    pub fn extent(&mut self) -> (*mut u8, usize) {
        match self {
            Self::Bytes(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            Self::Place(start, bytes) => (start.as_ptr(), *bytes),
        }
    }
}

// SAFETY: memory that no thread is bound to.
unsafe impl Send for Landing {}

/// The immediate result of a send.
pub enum Sending {
    /// The carrier has taken it over, and the payload is no longer read.
    Done,
    /// [`Happened::Sent`] will report the result.
    Pending,
    /// Not sent.
    Failed(Reason),
}
