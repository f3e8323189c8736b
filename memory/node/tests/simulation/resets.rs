//! Resets of pages on all nodes while tasks use them. The first node coordinates them, as the home
//! of a segment does in `cluster`.

use std::ops::Range;

use coherence::message::{NodeId, Page};
use net::simulation::Network;
use node::changes::{Changes, Next, RESET, Step};
use node::driver::Driver as _;
use node::memory::Memory as _;
use node::sequential::Replica as _;

use crate::replica::ReplicaNode;

/// The first byte of the messages.
pub const RESETS: u8 = 202;
/// The node that coordinates all resets.
const COORDINATOR: NodeId = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Kind {
    Close,
    Reset,
    Open,
    Acknowledge,
}

/// The resets that a node coordinates.
#[derive(Default)]
pub struct Resets {
    pub changes: Changes<()>,
    /// Number of resets that are to begin, and of those that have not ended.
    pub left: u64,
    pub in_progress: u64,
}

impl ReplicaNode {
    /// Begins a reset of random pages at times.
    pub fn begin_reset(&mut self, network: &Network) {
        if self.resets.left == 0 || network.below(20) > 0 {
            return;
        }
        self.resets.left -= 1;
        self.resets.in_progress += 1;
        let pages = self.pages_mut().node.pages();
        let first = network.below(pages);
        let end = (first + 1 + network.below(3)).min(pages);
        self.resets.changes.add(RESET, first..end, ());
        self.begin_next_reset();
    }

    fn begin_next_reset(&mut self) {
        let nodes = self.pages_mut().node.options().nodes;
        while let Some((number, step)) = self.resets.changes.begin_next(|| (0..nodes).collect()) {
            self.take_step(number, step);
        }
    }

    fn take_step(&mut self, number: u64, step: Step) {
        let pages = self.resets.changes.get_mut(number).expect("it is in progress").pages.clone();
        let kind = match step {
            Step::Close => Kind::Close,
            Step::Reset => Kind::Reset,
            Step::Apply => unreachable!("a reset has no such step"),
        };
        self.broadcast(kind, number, &pages);
    }

    /// Sends a step to all nodes, and takes it.
    fn broadcast(&mut self, kind: Kind, number: u64, pages: &Range<Page>) {
        let words = [kind as u64, number, pages.start, pages.end];
        for node in 1..self.pages_mut().node.options().nodes {
            self.engine_mut().send(node, &header(words), Vec::new());
        }
        self.handle_reset(COORDINATOR, words);
    }

    /// Handles the message of a reset.
    pub fn receive_reset(&mut self, from: NodeId, header: &[u8]) {
        let word = |at: usize| {
            let bytes = header[1 + 8 * at..][..8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        self.handle_reset(from, [0, 1, 2, 3].map(word));
    }

    fn handle_reset(&mut self, from: NodeId, [kind, number, first, end]: [u64; 4]) {
        let pages = first..end;
        if kind == Kind::Close as u64 {
            self.close_pages(from, number, pages);
            self.acknowledge_quiet();
        } else if kind == Kind::Reset as u64 {
            assert!(self.pages_mut().node.is_quiet(&pages), "closed pages stay quiet");
            if let Err(error) = self.reset_pages(pages, COORDINATOR) {
                self.failed(&error);
            }
            self.acknowledge(number);
        } else if kind == Kind::Open as u64 {
            self.open_pages(&pages);
            for page in pages {
                if let Err(error) = self.engine_mut().memory.retry(page) {
                    self.failed(&error);
                }
            }
        } else {
            self.acknowledged(from, number);
        }
    }

    /// Acknowledges closed pages without a request in flight. Returns true if there were any.
    pub fn acknowledge_quiet(&mut self) -> bool {
        let quiet = self.take_quiet();
        quiet.iter().for_each(|&(_, number)| self.acknowledge(number));
        !quiet.is_empty()
    }

    fn acknowledge(&mut self, number: u64) {
        match self.pages_mut().node.options().me {
            COORDINATOR => self.acknowledged(COORDINATOR, number),
            _ => {
                let words = [Kind::Acknowledge as u64, number, 0, 0];
                self.engine_mut().send(COORDINATOR, &header(words), Vec::new());
            }
        }
    }

    fn acknowledged(&mut self, from: NodeId, number: u64) {
        match self.resets.changes.acknowledge(from, number).expect("each node does so once") {
            None => {}
            Some(Next::Step(step)) => self.take_step(number, step),
            Some(Next::Finished(change)) => {
                // No node has the pages: all bytes are zero, as if a task had written that now.
                let mut values = self.values.borrow_mut();
                let bytes = (values.len() as u64 / self.engine.memory.pages()) as usize;
                for page in change.pages.clone() {
                    values[page as usize * bytes..][..bytes].fill(0);
                }
                drop(values);
                self.resets.in_progress -= 1;
                self.broadcast(Kind::Open, number, &change.pages);
                self.begin_next_reset();
            }
        }
    }
}

fn header(words: [u64; 4]) -> Vec<u8> {
    std::iter::once(RESETS).chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
}
