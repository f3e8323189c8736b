//! The configuration of a simulated run, and the times that follow from it.

use coherence::ride::Policy;

use crate::cluster::{Cluster, duration_ns};
use crate::protocol::Consistency;

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The times of the cluster.
    pub cluster: Cluster,
    /// Number of nodes; at least one.
    pub nodes: u32,
    /// Number of tasks per node; at least one.
    pub tasks: u32,
    /// Size of a page in bytes.
    pub page_bytes: usize,
    /// The protocol that keeps pages consistent.
    pub consistency: Consistency,
    /// Maximum number of copies of other nodes' pages on a node
    /// ([`copies_max`](coherence::sequential::Options::copies_max)).
    pub copies_max: u64,
    /// True if homes move to single writers ([`migrate`](coherence::scope::Options::migrate)).
    pub migrate: bool,
    /// True if pages without copies are written without notices
    /// ([`alone`](coherence::scope::Options::alone)).
    pub alone: bool,
    /// The policy for rides ([`rides`](coherence::scope::Options::rides)).
    pub rides: Policy,
    /// True if a link carries one message at a time.
    pub contention: bool,
}

impl Setup {
    /// Returns the time that the processor of a sender or receiver needs for the bytes of a
    /// message.
    pub(crate) fn message_ns(&self, bytes: usize) -> u64 {
        bytes as u64 * self.cluster.network.kib_ns / 1024
    }

    /// Returns the time to copy this number of bytes.
    pub(crate) fn copy_ns(&self, bytes: usize) -> u64 {
        duration_ns(bytes, self.cluster.memory.copy_mb_s)
    }

    /// Returns the time to compare this number of bytes with others.
    pub(crate) fn compare_ns(&self, bytes: usize) -> u64 {
        duration_ns(bytes, self.cluster.memory.diff_mb_s)
    }
}
