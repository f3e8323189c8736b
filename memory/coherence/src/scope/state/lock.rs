//! The state of a lock: on the nodes that use it, and at its manager.

use std::collections::VecDeque;

use crate::message::NodeId;
use crate::run::{self, Run};
use crate::scope::event::Task;

/// Number of releases that a manager records individually. Older ones are merged.
const RELEASES_MAX: usize = 64;

/// The node's state of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Local {
    pub holder: Holder,
    /// The tasks that wait for the lock.
    pub waiting: VecDeque<Task>,
    /// Number of hand-overs since the lock was granted.
    pub handovers: u32,
    /// The last release whose writes this node knows.
    pub seen: u64,
    /// The time of the request.
    pub since: u64,
}

/// The holder of a lock, as its node knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The lock is not here.
    #[default]
    Elsewhere,
    /// The lock is not here, and it is requested.
    Requested,
    /// A task of this node.
    Task(Task),
    /// No task. The lock is released when the homes have applied the diffs.
    Releasing,
}

impl Local {
    /// Returns true if the lock is not here and no task waits for it.
    pub fn is_idle(&self) -> bool {
        self.holder == Holder::Elsewhere && self.waiting.is_empty()
    }
}

/// The manager's state of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Managed {
    pub holder: Option<NodeId>,
    /// The nodes that requested the lock, each with the last release whose writes it knows.
    pub waiting: VecDeque<(NodeId, u64)>,
    /// The number of the last release.
    pub released: u64,
    /// Number of barriers passed.
    epoch: u64,
    /// The pages that were written before each release since the last barrier.
    written: VecDeque<(u64, Vec<Run>)>,
}

impl Managed {
    /// Discards the records of writes that a newer barrier has announced to all nodes.
    pub fn pass_barrier(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.written.clear();
        }
    }

    /// Records a release, and the pages that were written before it.
    pub fn record_release(&mut self, runs: Vec<Run>) {
        self.released += 1;
        if !runs.is_empty() {
            self.written.push_back((self.released, runs));
        }
        if self.written.len() > RELEASES_MAX {
            let old = self.written.drain(..RELEASES_MAX / 2).collect::<Vec<_>>();
            let last = old.last().expect("half of the records").0;
            self.written.push_front((last, run::union(old.iter().map(|(_, runs)| runs))));
        }
        debug_assert!(self.written.iter().is_sorted_by_key(|(release, _)| *release));
    }

    /// Returns the pages that were written after the release `seen`.
    pub fn written_since(&self, seen: u64) -> Vec<Run> {
        run::union(self.written.iter().filter(|(at, _)| *at > seen).map(|(_, runs)| runs))
    }
}
