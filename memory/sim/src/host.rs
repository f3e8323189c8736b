//! A simulated node: the state of the protocols, its memory, and the cost of its actions.
//!
//! [`scope`] and [`sequential`] carry out the actions of the two protocols.

mod scope;
mod sequential;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use coherence::message::{NodeId, Page};
use coherence::record::Recorder;
use coherence::ride;
use coherence::scope::event::Kept;
use coherence::scope::{Action, Node, Options};
use coherence::sequential::{MIGRATORY_MAX, Node as SequentialNode, Options as SequentialOptions};

use crate::frames::Frames;
use crate::protocol::{Consistency, NodeEvent, Packet};
use crate::report::RunError;
use crate::setup::Setup;

/// A node.
pub(crate) struct Host {
    pub options: Options,
    pub node: Node,
    /// The protocol that keeps the pages, if that is not `node`.
    pub sequential: Option<SequentialNode>,
    pub frames: Rc<RefCell<Frames>>,
    /// The time until which the protocol is busy.
    pub busy_until: u64,
    /// The processor time of each task that the protocol has used.
    pub stolen_ns: u64,
    pub is_lost: bool,
    pub recorder: Option<Recorder>,
    /// The allocations before the program starts.
    pub allocations: Vec<NodeEvent>,
    /// Bodies of messages that arrived ahead of a barrier.
    kept: BTreeMap<Kept, Vec<u8>>,
    /// The batches of diffs, by home.
    diffs: BTreeMap<NodeId, Diffs>,
    /// Reused, so that a step needs no allocation.
    actions: Vec<Action>,
}

/// A batch of diffs.
#[derive(Default)]
struct Diffs {
    pages: Vec<Page>,
    body: Vec<u8>,
    bytes: usize,
}

/// An effect of a step outside the node, or on its tasks. It has a time of its own.
pub(crate) enum Effect {
    /// Tasks that wait for the page retry.
    Wake(Page),
    /// The task resumes.
    Grant(u32),
    /// A message leaves.
    Send(Box<Packet>),
    /// Tasks have used the page, or had time to.
    Hold(Page),
    /// Tasks that wait for the page never resume.
    Gone(Page),
}

impl Host {
    /// Creates a node without pages. `has_contents` is true if the program has contents.
    pub fn new(options: Options, setup: &Setup, has_contents: bool) -> Self {
        Self {
            options,
            node: Node::new(options),
            sequential: sequential_node(setup, options.me),
            frames: Rc::new(RefCell::new(Frames::new(setup.page_bytes, has_contents))),
            busy_until: 0,
            stolen_ns: 0,
            is_lost: false,
            recorder: None,
            allocations: Vec::new(),
            kept: BTreeMap::new(),
            diffs: BTreeMap::new(),
            actions: Vec::new(),
        }
    }

    /// Performs a step that starts at the time `at`. Returns the time of its end.
    pub fn step(
        &mut self,
        setup: &Setup,
        at: u64,
        event: NodeEvent,
        packet: Option<&Packet>,
        effects: &mut Vec<(u64, Effect)>,
    ) -> Result<u64, RunError> {
        let received_ns = packet
            .map_or(0, |packet| setup.cluster.network.receive_ns + setup.message_ns(packet.bytes));
        let at = at + received_ns;
        match event {
            NodeEvent::Scope(event) => self.step_scope(setup, at, event, packet, effects),
            NodeEvent::Sequential(event) => self.step_sequential(setup, at, event, packet, effects),
        }
    }
}

/// Creates the protocol that keeps the pages under sequential consistency.
fn sequential_node(setup: &Setup, me: u32) -> Option<SequentialNode> {
    (setup.consistency == Consistency::Sequential).then(|| {
        SequentialNode::new(SequentialOptions {
            nodes: setup.nodes,
            me,
            pages_max: ride::pages_max(setup.page_bytes).min(32),
            copies_max: setup.copies_max,
            rides: setup.rides,
            migratory: MIGRATORY_MAX,
            // Ten round trips.
            rest: 20 * setup.cluster.network.latency_ns,
        })
    })
}
