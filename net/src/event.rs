//! What a fabric tells its user.

use std::ptr::NonNull;

use slotmap::DefaultKey;

/// A connection to another fabric. After `Lost` or `Closed` it is no longer valid, and a new
/// connection to the same fabric is another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    pub(crate) key: DefaultKey,
    /// What the other fabric is called.
    pub id: u64,
}

/// A message that is not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendId(pub(crate) u64);

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// A connection stands: one that we asked for, or one that the other asked for. Both
    /// have proved that they hold the secret.
    Connected(Peer),
    /// A message has come. Those of one peer come in the order in which they were sent.
    Message {
        /// Who has sent it.
        from: Peer,
        /// The header that was given to `send`.
        header: Vec<u8>,
        /// The payload that was given to `send`.
        payload: Vec<u8>,
    },
    /// As `Message`, whose payload lies where [`Fabric::place_with`](crate::fabric::Fabric)
    /// has said.
    Placed {
        /// Who has sent it.
        from: Peer,
        /// The header that was given to `send`.
        header: Vec<u8>,
        /// Where it lies.
        at: NonNull<u8>,
        /// Its length.
        bytes: usize,
    },
    /// The payload is no longer needed; that it has come is not said.
    Sent(SendId),
    /// The payload is no longer needed, since the peer is gone. The message may have come.
    Unsent(SendId),
    /// The peer has closed the connection, or has answered our `close`; all that it had sent
    /// before has come.
    Closed(Peer),
    /// The connection has broken. The last event of a peer, as `Closed` is: no memory is
    /// used for it any more, but what `Sent` and `Unsent` have still to name after `Closed`.
    Lost {
        /// Which.
        peer: Peer,
        /// Why: a line's end.
        why: String,
    },
}

// SAFETY: the user's memory, which no thread is bound to.
unsafe impl Send for Event {}

/// What became of a message at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The payload is no longer needed. No event will follow.
    Done,
    /// An event will say that it is `Sent` or `Unsent`.
    Pending(SendId),
}

/// What came that nobody may have sent: how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Not of our format.
    pub malformed: u64,
    /// Not from who holds the secret, not for us, not of this connection, or said before.
    pub unauthenticated: u64,
}
