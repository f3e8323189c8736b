//! The parts of a simulated network: processes, connections, and messages on their way.

use std::collections::VecDeque;

use crate::carrier::{Happened, Landing, Reason};
use crate::payload::Payload;

/// A process.
pub(super) struct Node {
    pub id: u64,
    pub is_dead: bool,
    pub dies_with_host: bool,
    pub listens: bool,
    pub happened: VecDeque<Happened>,
    /// Completions of sends whose data were fetched, with their times.
    pub due: VecDeque<(u64, Happened)>,
}

/// One side of a connection.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub node: usize,
    pub tag: Option<u64>,
    pub state: EndState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndState {
    Open,
    /// Reported as failed, and not closed yet.
    Failed,
    Gone,
}

/// A message that has not left.
pub(super) struct Queued {
    pub header: Vec<u8>,
    pub payload: Payload,
    pub tag: u64,
    pub leaves_at: u64,
}

/// On its way, or at the receiver's.
pub(super) struct Item {
    pub at: u64,
    pub arrival: Arrival,
}

pub(super) enum Arrival {
    Message(Vec<u8>, Body),
    End(Reason),
}

pub(super) enum Body {
    Here(Vec<u8>),
    Held(Vec<u8>),
    /// The name of a transfer, and the announced length.
    Announced(u64, usize),
}

impl Body {
    /// Returns the number of bytes that are on their way.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Here(bytes) | Self::Held(bytes) => bytes.len(),
            Self::Announced(..) => 0,
        }
    }
}

/// One direction of a connection.
#[derive(Default)]
pub(super) struct Pipe {
    pub queue: VecDeque<Queued>,
    pub flight: VecDeque<Item>,
    pub flight_bytes: usize,
    pub last_at: u64,
    /// The transfer that must end before the next message, if messages do not overtake.
    pub paused: Option<u64>,
    /// Nothing arrives.
    pub is_silent: bool,
}

/// A connection. Pipe 0 begins at end 0, the caller's.
pub(super) struct Link {
    pub ends: [End; 2],
    pub pipes: [Pipe; 2],
}

/// A payload that the receiver fetches.
pub(super) struct Transfer {
    pub link: u64,
    pub side: usize,
    pub tag: u64,
    /// `None` once the sender has given up.
    pub payload: Option<Payload>,
    pub landing: Option<(Landing, u64)>,
    pub filled: usize,
    pub next_at: u64,
}

/// Copies a part of a payload.
pub(super) fn copy_part(payload: &Payload, from: usize, to: *mut u8, bytes: usize) {
    let (start, length) = payload.extent();
    assert!(from + bytes <= length, "the part lies in the payload");
    if bytes > 0 {
        // SAFETY: the payload is readable until its message is reported as sent, which
        // `Payload::borrowed` requires of its user, and the part lies in it. The memory at `to` has
        // room for the part: it is a new vector of that length, or a landing whose length was
        // compared with that of the payload. A landing is not used by anyone else.
        unsafe { to.copy_from_nonoverlapping(start.add(from), bytes) };
    }
}
