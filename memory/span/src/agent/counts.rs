//! An agent's counts of its node's runnable threads.

use std::collections::HashMap;

/// The counters of an agent about its own node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// When the next count is due, if anybody wants to know.
    pub next: Option<u64>,
    pub average: u32,
    pub count: u32,
    /// When threads were sent away from here, or came.
    pub moved: HashMap<u32, u64>,
}
