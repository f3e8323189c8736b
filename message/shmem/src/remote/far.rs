//! The other nodes of the job, as this PE reaches them.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError};

use net::fabric::Fabric;
use net::secret::Secret;
use net::wireup::Wireup;
use shmem_wire::card::Nodes;

use crate::remote::link::Link;

/// The identifier of the fabric of PE 0. Those of agents are the numbers of their nodes.
pub const PES: u64 = 1 << 32;
/// The identifier of the fabric by which PE 0 ends other nodes.
pub const ENDERS: u64 = 2 << 32;

/// In `Far::ending`: the first PE leaves, and then: no connection is left.
pub const LEAVES: u32 = 1;
pub const LEFT: u32 = 2;

/// The other nodes, as this PE reaches them.
pub struct Far {
    /// All nodes of the job.
    pub nodes: Nodes,
    /// The node of this PE.
    pub node: usize,
    /// Names of the nodes for messages.
    pub(super) names: Vec<String>,
    pub(super) secret: Secret,
    /// The addresses of the agents, by node.
    pub(super) addresses: Vec<Vec<u8>>,
    pub(super) link: Link,
    /// The operations in the default context.
    pub(super) marks: Marks,
    /// The agent's fabric, until its thread starts; only in the first PE of a node.
    pub(super) agent: Mutex<Option<Fabric>>,
    /// Progress of the agent's end: 0, [`LEAVES`], [`LEFT`].
    pub(super) ending: AtomicU32,
    /// Wakes the agent, which sleeps in poll(2).
    pub(super) wakes_agent: OwnedFd,
    pub(super) wireup: Mutex<Option<Wireup>>,
}

/// The last operation of a context on each node.
#[derive(Debug)]
pub struct Marks(Box<[AtomicU64]>);

impl Marks {
    /// No operation on any of these nodes.
    pub fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn note(&self, node: usize, sequence: u64) {
        self.0[node].fetch_max(sequence, Relaxed);
    }
}

impl Far {
    /// Returns the operations of a new context.
    pub fn new_marks(&self) -> Marks {
        Marks::new(self.nodes.n())
    }

    /// Completes all operations of a context; of the default one if there is none. One-sided
    /// operations of other contexts are completed, too.
    pub fn quiet(&self, function: &str, marks: Option<&Marks>) {
        for (node, mark) in marks.unwrap_or(&self.marks).0.iter().enumerate() {
            let sequence = mark.load(Relaxed);
            if sequence > 0 {
                self.link.complete(function, node, sequence);
            }
        }
        self.link.settle_all(function);
    }

    /// Orders all earlier operations of this PE before all later ones on the same PE.
    pub fn fence(&self) {
        self.link.fence();
    }

    /// Takes replies that have come. A PE that waits for its memory calls it from time to time.
    pub fn nudge(&self) {
        self.link.nudge();
    }

    /// Leaves the launcher, which then lets the others continue when this process ends.
    pub fn part_from_launcher(&self) {
        let wireup = self.wireup.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut wireup) = wireup {
            wireup.leave();
        }
    }

    /// The node of a PE.
    pub(super) fn node_of(&self, pe: usize) -> usize {
        self.nodes.of_pe[pe]
    }

    /// Returns true if this PE runs the agent of its node.
    pub fn is_first(&self, me: usize) -> bool {
        self.nodes.first(self.node) == me
    }
}
