//! One connection: its state, and its queued messages.

use std::collections::VecDeque;
use std::time::Instant;

use crate::carrier::Landing;
use crate::carriers::Endpoint;
use crate::order::InOrder;
use crate::payload::Payload;
use crate::secret::{Domain, Nonce, Secret, Token};
use crate::wire::Kind;

/// A connection, from the first hello until UCX has let go of all that belongs to it.
pub struct Session {
    /// The identifier of the other fabric.
    pub id: u64,
    /// The sections of its address, which changes when it restarts.
    pub address: Vec<u8>,
    /// The way there; none once the connection is over.
    pub endpoint: Option<Endpoint>,
    /// The way on which the other's messages come, if both sides have called at once.
    pub incoming_way: Option<Endpoint>,
    /// Our number.
    pub nonce: Nonce,
    /// The state of the connection.
    pub phase: Phase,
    /// The user has a peer for it before it is open.
    pub is_wanted: bool,
    /// Messages that were sent before the connection was open.
    pub queue: VecDeque<Outgoing>,
    /// Received messages, until their turn.
    pub incoming: InOrder<Incoming>,
    /// Sends, receipts and the closing that UCX has not completed.
    pub operations: usize,
}

/// Marks the tag of a session's incoming way.
pub const INCOMING: u64 = 1 << 63;

/// The state of a connection.
pub enum Phase {
    /// This side has sent hello, and waits for the welcome until this time. If both sides call at
    /// once, it has answered the other's hello, and the connection is with no other session.
    Calling(Instant, Option<Link>),
    /// We have answered a hello, and wait until then for a sign that it was no old one.
    Answering(Instant, Link),
    /// It stands.
    Open(Link),
    /// This side has sent bye, and waits for the other's.
    Leaving(Link),
    /// Both sides have sent bye, and this side's is still in flight.
    Parting {
        /// Until when.
        deadline: Instant,
        /// True if this side sent it first, and so closes the endpoint.
        first: bool,
    },
    /// The connection is over. The reason is present if the user is to be notified once UCX uses
    /// no memory for it.
    Over(Option<String>),
}

/// The state that both sides have agreed on.
pub struct Link {
    /// Their name for the connection.
    pub session: u64,
    /// The token of this side's messages.
    pub ours: Token,
    /// Proves them.
    pub theirs: Token,
    /// Number of messages that this side has sent.
    pub sent: u64,
}

impl Link {
    /// From both sides' ids and numbers.
    pub fn new(secret: &Secret, us: (u64, &Nonce), them: (u64, &Nonce), session: u64) -> Self {
        let token = |from: (u64, &Nonce), to: (u64, &Nonce)| {
            let ids = [from.0.to_le_bytes(), to.0.to_le_bytes()];
            secret.token(Domain::Token, &[&ids[0], &ids[1], from.1, to.1])
        };
        Self { session, ours: token(us, them), theirs: token(them, us), sent: 0 }
    }
}

/// A message that waits until it can be sent.
pub struct Outgoing {
    /// Data or bye.
    pub kind: Kind,
    /// The user's.
    pub header: Vec<u8>,
    /// The user's.
    pub payload: Payload,
    /// The user's name for it; 0 if no event is wanted.
    pub id: u64,
}

/// A message that has come.
pub struct Incoming {
    /// Ready, data or bye.
    pub kind: Kind,
    /// The user's.
    pub header: Vec<u8>,
    /// None while its data come.
    pub payload: Option<Landing>,
}

impl Session {
    /// Returns the agreed state, if there is one.
    pub fn link(&self) -> Option<&Link> {
        match &self.phase {
            Phase::Calling(_, link) => link.as_ref(),
            Phase::Answering(_, link) | Phase::Open(link) | Phase::Leaving(link) => Some(link),
            Phase::Parting { .. } | Phase::Over(_) => None,
        }
    }

    /// Until when something must have happened.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Calling(deadline, _)
            | Phase::Answering(deadline, _)
            | Phase::Parting { deadline, .. } => Some(deadline),
            Phase::Open(_) | Phase::Leaving(_) | Phase::Over(_) => None,
        }
    }

    /// Returns true if the user has a peer for it.
    pub fn is_visible(&self) -> bool {
        match self.phase {
            Phase::Calling(..) | Phase::Open(_) | Phase::Leaving(_) => true,
            Phase::Answering(..) => self.is_wanted,
            Phase::Parting { .. } | Phase::Over(_) => false,
        }
    }

    /// Returns true if the user has closed it before it was open.
    pub fn is_closing(&self) -> bool {
        self.queue.back().is_some_and(|last| last.kind == Kind::Bye)
    }

    /// Returns true if it accepts messages: it is open, or will be without an action of this side.
    pub fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Calling(..) | Phase::Answering(..) | Phase::Open(_))
    }
}
