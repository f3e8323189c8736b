//! The state of a condition variable: at its manager, and of the tasks that wait for it.

use std::collections::VecDeque;

use crate::message::{Lock, NodeId};
use crate::run::Run;
use crate::scope::event::Task;

/// The manager's state of a condition variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Condition {
    pub is_set: bool,
    /// The tasks that wait for the variable, with their nodes.
    pub waiting: VecDeque<(NodeId, Task)>,
    /// Number of barriers passed.
    epoch: u64,
    /// The pages that were written since the last barrier and before the variable was set.
    pub written: Vec<Run>,
}

/// A task that waits for a condition variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    pub lock: Lock,
    pub since: u64,
}

impl Condition {
    /// Discards the records of writes that a newer barrier has announced to all nodes.
    pub fn pass_barrier(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.written.clear();
        }
    }
}
