//! Threads that fork, and the copy of memory that is being made for one of them.

use std::collections::VecDeque;
use std::ops::Range;

use coherence::message::{NodeId, Page};

use crate::ranges::Ranges;
use crate::request::Request;
use crate::snapshot::Snapshot;

/// Threads that fork.
#[derive(Default)]
pub struct Forks {
    pub waiting: VecDeque<u32>,
    pub now: Option<Fork>,
    /// With the thread that forks.
    pub given: Option<*mut Snapshot>,
    /// Requests that wait for the end of the fork, and their threads.
    pub delayed: Vec<(u32, Request)>,
}

impl Forks {
    /// Returns true if a child is being made.
    pub fn is_under_way(&self) -> bool {
        self.now.is_some() || self.given.is_some()
    }
}

/// A copy that is made.
pub struct Fork {
    pub thread: u32,
    /// As soon as that is known.
    pub snapshot: Option<Box<Snapshot>>,
    /// The nodes that have not yet reported the used pages, and the reported pages.
    pub by: Vec<NodeId>,
    pub used: Ranges,
    /// Those that have not been looked at, the last first; those that are to come.
    pub rest: Vec<Range<Page>>,
    pub asked: Vec<Page>,
}
