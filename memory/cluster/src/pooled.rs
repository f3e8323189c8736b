//! The agent's state of a [pool](crate::pool): its own part, and deferred work.

use std::time::{Duration, Instant};

use coherence::message::{NodeId, Page};
use proc::maps::Mapping;

use crate::pool::Pool;
use crate::sleepers::Runners;

/// Time until the agent tries again to move a block while its task maps or unmaps memory.
const RETRY_TIME: Duration = Duration::from_micros(100);

/// The pool of a space, and the agent's deferred work in it.
#[derive(Debug)]
pub struct Pooled {
    /// The pool.
    pub pool: Pool,
    /// Lookups of other machines whose blocks could not be moved yet.
    pub lookups: Vec<(NodeId, Page)>,
    /// Threads that may still go to sleep at the old place of a block, and its first page.
    pub runners: Vec<(Page, Runners)>,
}

impl Pooled {
    /// Returns a pool in which no block lies yet.
    pub fn new(pool: Pool) -> Self {
        Self { pool, lookups: Vec::new(), runners: Vec::new() }
    }

    /// Returns the time of the next attempt at deferred work.
    pub fn due(&self) -> Option<Instant> {
        let lookups = (!self.lookups.is_empty()).then(|| Instant::now() + RETRY_TIME);
        lookups.into_iter().chain(self.runners.iter().map(|(_, it)| it.due())).min()
    }

    /// Returns true if a mapping is of the pool.
    pub fn has(&self, mapping: &Mapping) -> bool {
        mapping.is_shared && mapping.identity == self.pool.identity
    }
}
