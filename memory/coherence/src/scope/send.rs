//! The messages that a node sends: at once, after its diffs are applied, or to itself.

use super::event::{Action, Body};
use super::node::{Later, Node};
use crate::content::Content;
use crate::message::{Header, Lock, NodeId, Op};
use crate::ride::Ride;

impl Node {
    /// Returns the header of a message.
    pub(super) fn header(&self, to: NodeId, op: Op, lock: Lock) -> Header {
        Header { op, from: self.options.me, to, lock, scope: 0, epoch: self.epoch, rides: 0 }
    }

    /// Sends a message without rides.
    pub(super) fn send(
        &mut self,
        to: NodeId,
        op: Op,
        lock: Lock,
        scope: u64,
        body: Body,
        actions: &mut Vec<Action>,
    ) {
        let header = Header { scope, ..self.header(to, op, lock) };
        self.post(header, body, Vec::new(), actions);
    }

    /// Sends a message. A message to this node is handled at the end of the step.
    pub(super) fn post(
        &mut self,
        mut header: Header,
        body: Body,
        mut rides: Vec<Ride>,
        actions: &mut Vec<Action>,
    ) {
        debug_assert!(header.to < self.options.nodes, "{header:?} has no receiver");
        if header.to != self.options.me {
            self.counts.messages[header.op as usize - 1] += 1;
            rides.extend(self.rides.take_fates(header.to, header.op));
            header.rides = u8::try_from(rides.len()).expect("at most ride::MOST records");
            actions.push(Action::Send(header, body, rides));
            return;
        }
        debug_assert!(rides.is_empty(), "a node sends itself no rides");
        let content = match body {
            Body::Empty => Content::Empty,
            Body::Runs(runs) => Content::Runs(runs),
            Body::Page(_) | Body::Diffs => unreachable!("a node sends itself no pages"),
        };
        self.to_self.push_back((header, content));
    }

    /// Sends a message as soon as all diffs that were sent before are applied.
    pub(super) fn send_later(&mut self, to: NodeId, op: Op, lock: Lock, body: Body) {
        let header = self.header(to, op, lock);
        self.later.push_back(Later { after: self.diffs_sent, header, body });
    }

    /// Sends the batch of diffs for a home.
    pub(super) fn send_diffs(&mut self, home: NodeId, actions: &mut Vec<Action>) {
        self.diffs_sent += 1;
        self.diffs_applied.push_back(Some(home));
        self.send(home, Op::Diff, 0, self.diffs_sent, Body::Diffs, actions);
    }

    /// Sends the batched diffs. Call this before any message that tells another node that they were
    /// sent.
    pub(super) fn send_batched_diffs(&mut self, actions: &mut Vec<Action>) {
        while let Some((home, _)) = self.batched_diffs.pop_first() {
            self.send_diffs(home, actions);
        }
    }
}
