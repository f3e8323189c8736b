//! One connection: how far it is, and what waits on it.

use std::collections::VecDeque;
use std::time::Instant;

use crate::inbox::Landing;
use crate::order::InOrder;
use crate::payload::Payload;
use crate::secret::{Domain, Nonce, Secret, Token};
use crate::wire::Kind;
use crate::worker::Endpoint;

/// A connection, from the first hello until UCX has let go of all that belongs to it.
pub struct Session {
    /// What the other fabric is called.
    pub id: u64,
    /// Its UCX address, which changes when it starts anew.
    pub address: Vec<u8>,
    /// The way there; none once the connection is over.
    pub endpoint: Option<Endpoint>,
    /// Our number.
    pub nonce: Nonce,
    /// How far it is.
    pub phase: Phase,
    /// What was sent before it stood.
    pub queue: VecDeque<Outgoing>,
    /// What came, until it is its turn.
    pub incoming: InOrder<Incoming>,
    /// Sends, receipts and the closing that UCX has not completed.
    pub operations: usize,
}

/// How far a connection is.
pub enum Phase {
    /// We have said hello, and wait for the welcome until then.
    Calling(Instant),
    /// We have answered a hello, and wait until then for a sign that it was no old one.
    Answering(Instant, Link),
    /// It stands.
    Open(Link),
    /// We have said bye, and wait for the other's.
    Leaving(Link),
    /// Both have said bye; until then, the way lets go of ours.
    Parting {
        /// Until when.
        deadline: Instant,
        /// Whether we said it first, and so are the one to close the way.
        first: bool,
    },
    /// It is over; why, if the user is to be told once UCX uses no memory for it any more.
    Over(Option<String>),
}

/// What both sides know of each other.
pub struct Link {
    /// Their name for the connection.
    pub session: u64,
    /// Proves us.
    pub ours: Token,
    /// Proves them.
    pub theirs: Token,
    /// How many messages we have sent.
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
    /// The user's name for it; 0 where nobody asks.
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
    /// What has been agreed.
    pub fn link(&self) -> Option<&Link> {
        match &self.phase {
            Phase::Answering(_, link) | Phase::Open(link) | Phase::Leaving(link) => Some(link),
            Phase::Calling(_) | Phase::Parting { .. } | Phase::Over(_) => None,
        }
    }

    /// Until when something must have happened.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Calling(deadline)
            | Phase::Answering(deadline, _)
            | Phase::Parting { deadline, .. } => Some(deadline),
            Phase::Open(_) | Phase::Leaving(_) | Phase::Over(_) => None,
        }
    }

    /// Whether the user has a peer for it.
    pub fn is_visible(&self) -> bool {
        matches!(self.phase, Phase::Calling(_) | Phase::Open(_) | Phase::Leaving(_))
    }

    /// Whether messages can be given to it, or it will stand without our doing.
    pub fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Calling(_) | Phase::Answering(..) | Phase::Open(_))
    }
}
