//! The agent's data about threads that drive the engine of their node.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use net::mesh::Received;
use sync::wait::WaitPolicy;

use crate::request_table::RequestTable;
use crate::slot::Awaited;

/// The agent's data about threads that drive.
#[derive(Default)]
pub(super) struct Driving {
    /// The slot of the thread that drives, and what it waits for, if it has not got that.
    pub now: Option<(u32, Option<Awaited>)>,
    /// Words at which threads sleep that the driving thread is to wake.
    pub wakes: Vec<&'static AtomicU32>,
    /// Messages for the agent's thread.
    pub deferred: VecDeque<Received>,
    pub wait_policy: Option<WaitPolicy>,
    /// The time until which the agent's thread sleeps.
    pub until: Option<Instant>,
    /// The processor time of threads that drove, in ns.
    pub spent_ns: u64,
}

impl Driving {
    /// Returns true if the driving thread must stop: it has got what it waits for, or a message is
    /// the agent's.
    pub fn is_over(&self, table: &RequestTable) -> bool {
        let Some((thread, awaited)) = self.now else { return false };
        let has_got = |awaited| table.slot(thread).has_got(awaited);
        !self.deferred.is_empty() || awaited.is_some_and(has_got)
    }
}
