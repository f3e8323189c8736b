//! PEs on other nodes. A node is a space.
//!
//! Each node has an *agent*, a thread of its first PE. It serves the requests of PEs of other nodes
//! directly on the memory of its node's PEs, since all of them share an address space. So an
//! operation makes progress without any call of its target. A PE sends its requests over its own
//! connection to the agent of the target's node; it needs no thread for that. The crate
//! `shmem_wire` has the messages, and the order and completion of operations.
//!
//! | module | topic |
//! |---|---|
//! | `join` | the nodes of the job, by the launcher's exchange |
//! | `link` | this PE's connections to agents |
//! | `operation` | put, get and atomic operations on PEs of other nodes |
//! | `agent` | serves this node's memory, and watches its PEs and the other nodes |
//! | `leave` | the end of a job over several nodes, in order or not |

mod agent;
pub mod join;
mod leave;
mod link;
pub mod operation;

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use net::fabric::Fabric;
use net::secret::Secret;
use net::wireup::Wireup;
use shmem_wire::card::Nodes;

pub use agent::start as start_agent;
pub use leave::{end_nodes, leave, part_from_launcher, watch_first};

use link::Link;

/// The identifier of the fabric of PE 0. Those of agents are the numbers of their nodes.
const PES: u64 = 1 << 32;
/// The identifier of the fabric by which PE 0 ends other nodes.
const ENDERS: u64 = 2 << 32;

/// The other nodes, as this PE reaches them.
pub struct Far {
    /// All nodes of the job.
    pub nodes: Nodes,
    /// The node of this PE.
    pub node: usize,
    /// Names of the nodes for messages.
    names: Vec<String>,
    secret: Secret,
    /// The addresses of the agents, by node.
    addresses: Vec<Vec<u8>>,
    link: Link,
    /// The operations in the default context.
    marks: Marks,
    /// The agent's fabric, until its thread starts; only in the first PE of a node.
    agent: Mutex<Option<Fabric>>,
    /// Progress of the agent's end: 0, [`agent::LEAVES`], [`agent::LEFT`].
    ending: AtomicU32,
    /// Wakes the agent, which sleeps in poll(2).
    wakes_agent: OwnedFd,
    wireup: Mutex<Option<Wireup>>,
}

/// The last operation of a context on each node.
#[derive(Debug)]
pub struct Marks(Box<[AtomicU64]>);

impl Marks {
    /// No operation on any of these nodes.
    pub fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| AtomicU64::new(0)).collect())
    }

    fn note(&self, node: usize, sequence: u64) {
        self.0[node].fetch_max(sequence, Relaxed);
    }
}

impl Far {
    /// Returns the operations of a new context.
    pub fn new_marks(&self) -> Marks {
        Marks::new(self.nodes.n())
    }

    /// Completes all operations of a context; of the default one if there is none.
    pub fn quiet(&self, function: &str, marks: Option<&Marks>) {
        for (node, mark) in marks.unwrap_or(&self.marks).0.iter().enumerate() {
            let sequence = mark.load(Relaxed);
            if sequence > 0 {
                self.link.complete(function, node, sequence);
            }
        }
    }

    /// Orders all earlier operations of this PE before all later ones on the same PE.
    pub fn fence(&self) {
        self.link.fence();
    }

    /// Takes replies that have come. A PE that waits for its memory calls it from time to time.
    pub fn nudge(&self) {
        self.link.nudge();
    }

    /// The node of a PE.
    fn node_of(&self, pe: usize) -> usize {
        self.nodes.of_pe[pe]
    }

    /// Returns true if this PE runs the agent of its node.
    fn is_first(&self, me: usize) -> bool {
        self.nodes.first(self.node) == me
    }
}
