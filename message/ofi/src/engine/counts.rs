//! The numbers of a counter. Other tasks count in them, too.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use control::Identity;

use crate::engine::space::Here;

/// The two numbers of a counter.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of operations that have succeeded.
    pub done: AtomicU64,
    /// Number of operations that have failed.
    pub failed: AtomicU64,
}

impl Counts {
    /// Those of another task at this address. `None`: they cannot be there. The caller holds the
    /// task while it uses them.
    pub fn of<'a>(here: &Here, whom: Identity, at: u64) -> Option<&'a Self> {
        let segment = here.task.control.layout().segment(whom.id)?;
        let end = at.checked_add(size_of::<Self>() as u64)?;
        let is_there = at >= segment.start() && end <= segment.end();
        let is_aligned = at.is_multiple_of(align_of::<Self>() as u64);
        // SAFETY: it lies in the segment of a held task, which said so in `shared`, and never takes
        // it back.
        (is_there && is_aligned).then(|| unsafe { &*(at as *const Self) })
    }

    /// Their address for other tasks, as long as ours lives: they may be about to count.
    pub fn shared(counts: &Arc<Self>) -> u64 {
        Arc::into_raw(counts.clone()) as u64
    }

    /// Both numbers.
    pub fn both(&self) -> [u64; 2] {
        [self.done.load(Acquire), self.failed.load(Acquire)]
    }

    /// One more is done, or has failed.
    pub fn count(&self, failed: bool) {
        if failed { &self.failed } else { &self.done }.fetch_add(1, AcqRel);
    }
}
