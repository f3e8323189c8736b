//! The two numbers of a counter. Other tasks count remote operations in them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// The two numbers of a counter.
#[derive(Debug, Default)]
pub struct Counts {
    /// Number of operations that have succeeded.
    pub done: AtomicU64,
    /// Number of operations that have failed.
    pub failed: AtomicU64,
}

impl Counts {
    /// Returns the address for other tasks. The numbers are never freed, since a peer may be about
    /// to count.
    pub fn shared(counts: &Arc<Self>) -> u64 {
        Arc::into_raw(counts.clone()) as u64
    }

    /// Returns both numbers.
    pub fn both(&self) -> [u64; 2] {
        [self.done.load(Acquire), self.failed.load(Acquire)]
    }

    /// Counts one operation.
    pub fn count(&self, failed: bool) {
        if failed { &self.failed } else { &self.done }.fetch_add(1, AcqRel);
    }
}
