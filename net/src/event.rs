//! The events that a fabric reports to its user.

use std::ptr::NonNull;

use slotmap::DefaultKey;

/// A connection to another fabric. After `Lost` or `Closed` it is no longer valid, and a new
/// connection to the same fabric is another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    pub(crate) key: DefaultKey,
    /// The identifier of the other fabric.
    pub id: u64,
}

/// A message that is not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendId(pub(crate) u64);

/// An event.
#[derive(Debug)]
pub enum Event {
    /// A connection is open, which either side started. Both have proved that they hold the
    /// secret.
    Connected(Peer),
    /// A message has come. Those of one peer come in the order in which they were sent.
    Message {
        /// The sender.
        from: Peer,
        /// The header that was given to `send`.
        header: Vec<u8>,
        /// The payload that was given to `send`.
        payload: Vec<u8>,
    },
    /// As `Message`, with the payload at the place that
    /// [`Fabric::place_with`](crate::fabric::Fabric) selected.
    Placed {
        /// The sender.
        from: Peer,
        /// The header that was given to `send`.
        header: Vec<u8>,
        /// The address of the payload.
        at: NonNull<u8>,
        /// Its length.
        bytes: usize,
    },
    /// The fabric no longer needs the payload. This does not mean that it has arrived.
    Sent(SendId),
    /// The payload is no longer needed, since the peer is gone. The message may have come.
    Unsent(SendId),
    /// The peer has closed the connection, or has answered our `close`; all that it had sent
    /// before has come.
    Closed(Peer),
    /// The connection has failed. This is the last event of a peer, as `Closed` is. Afterwards no
    /// memory is used for it, except the payloads for which `Sent` or `Unsent` is still due after
    /// `Closed`.
    Lost {
        /// The peer.
        peer: Peer,
        /// Why: a line's end.
        why: String,
    },
}

// SAFETY: the user's memory, which no thread is bound to.
unsafe impl Send for Event {}

/// The immediate result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The payload is no longer needed. No event will follow.
    Done,
    /// A later event `Sent` or `Unsent` reports the result.
    Pending(SendId),
}

/// Counters of dropped messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Not of our format.
    pub malformed: u64,
    /// Messages without the secret's proof, for another receiver or connection, or repeated.
    pub unauthenticated: u64,
}
