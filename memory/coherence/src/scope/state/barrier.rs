//! The state of a barrier: on the node's side, and on the manager's side.

use crate::message::NodeId;
use crate::run::Run;

/// The node's side of a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Barrier {
    /// True for each task that has arrived.
    pub arrived: Vec<bool>,
    /// All tasks have arrived: nothing may start.
    pub is_quiet: bool,
    /// The node's manager side knows of the arrival.
    pub is_reported: bool,
    /// The time at which the last task arrived.
    pub since: u64,
    /// True for each task that has reached a barrier without consistency.
    pub meeting: Vec<bool>,
}

/// The manager's side of a barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arrivals {
    /// The nodes that have arrived: this node and children in the tree.
    pub nodes: Vec<NodeId>,
    /// The pages that were written since the last barrier, with the nodes that reported them.
    pub written: Vec<(NodeId, Run)>,
    /// The whole subtree has arrived, and the barrier is not granted yet.
    pub is_complete: bool,
    /// The nodes that have reached a barrier without consistency.
    pub meeting: Vec<NodeId>,
}

impl Barrier {
    /// Creates the state for this number of tasks.
    pub fn new(tasks: u32) -> Self {
        let none = vec![false; tasks as usize];
        Self { arrived: none.clone(), is_quiet: false, is_reported: false, since: 0, meeting: none }
    }

    /// Returns true if all tasks wait at a barrier without consistency.
    pub fn all_meet(&self) -> bool {
        self.meeting.iter().all(|&meets| meets)
    }

    /// Returns true if all tasks wait at a barrier, with or without consistency.
    pub fn waits_for_all(&self) -> bool {
        self.is_quiet || self.all_meet()
    }
}
