//! How much there is to do on each node: every agent counts its threads that could run, the
//! origin hears of it and lets threads go where there is less (`--place load`).

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use coherence::message::NodeId;
use node::driver::Driver as _;

use super::Agent;
use crate::balance::{Load, THREAD};
use crate::desk::Seat;
use crate::frame::Word;
use crate::place::Policy;

/// Between two counts, in ns.
const COUNT_NS: u64 = 20_000_000;
/// Counts after which the origin is told.
const TELLS: u32 = 5;
/// A count's part in the average.
const WEIGHT: u32 = 8;
/// How long a thread stays where it has come, at least, in ns.
const STAYS_NS: u64 = 1_000_000_000;

/// What an agent knows of its own node's.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// When the next count is due, if anybody wants to know.
    pub next: Option<u64>,
    average: u32,
    count: u32,
    /// When threads were sent away from here, or came.
    moved: HashMap<u32, u64>,
}

impl Agent {
    /// At the origin, if threads go by load: all are to count.
    pub(super) fn want_counts(&mut self) {
        if self.origin().policy == Policy::Load && self.names.len() > 1 {
            self.counts.next = Some(0);
            for node in 1..self.names.len() as NodeId {
                self.say(node, Word::Count);
            }
        }
    }

    /// Whether the count was due.
    pub(super) fn count(&mut self, now: u64) -> bool {
        if self.counts.next.is_none_or(|next| next > now) {
            return false;
        }
        self.counts.next = Some(now + COUNT_NS);
        let runnable = self.runnable().count() as u32 * THREAD;
        self.counts.average = (self.counts.average * (WEIGHT - 1) + runnable) / WEIGHT;
        self.counts.count += 1;
        if self.counts.count.is_multiple_of(TELLS) {
            let busy = self.counts.average;
            match self.origin {
                Some(_) => self.busy(0, busy),
                None => self.say(0, Word::Busy { busy }),
            }
        }
        true
    }

    /// The program's threads that are here and wait for nothing.
    pub(super) fn runnable(&self) -> impl Iterator<Item = u32> {
        let nodes = self.origin.as_ref().map(|origin| &origin.nodes);
        let runs = move |seat: &&Seat| {
            let node = |nodes: &Vec<Option<NodeId>>| nodes.get(seat.index as usize).copied();
            let is_here = nodes.is_none_or(|nodes| node(nodes) == Some(Some(0)));
            is_here && seat.is_runnable()
        };
        self.desk.seats().filter(runs).map(|seat| seat.index)
    }

    /// At the origin: so busy is that node. The origin itself says so as often as others, and
    /// then all are compared.
    pub(super) fn busy(&mut self, node: NodeId, busy: u32) {
        let origin = self.origin();
        origin.rooms[node as usize].busy = busy;
        if node != 0 || origin.binds {
            return;
        }
        let load =
            |room: &crate::place::Room| Load { processors: room.processors, busy: room.busy };
        let loads: Vec<Load> = origin.rooms.iter().map(load).collect();
        match origin.balance.look(&loads) {
            Some((0, to)) => self.shed(to as NodeId),
            Some((from, to)) => self.say(from as NodeId, Word::Shed { node: to as NodeId }),
            None => {}
        }
    }

    /// One of this node's threads goes to that one: who has been here longest.
    pub(super) fn shed(&mut self, node: NodeId) {
        let now = self.now();
        let moved = &self.counts.moved;
        let since = |thread: u32| moved.get(&thread).copied().unwrap_or(0);
        let may_go = |&thread: &u32| since(thread) == 0 || since(thread) + STAYS_NS < now;
        if let Some(thread) = self.runnable().filter(may_go).min_by_key(|&it| since(it)) {
            self.counts.moved.insert(thread, now);
            self.goes(thread, node);
        }
    }

    /// A thread has come here.
    pub(super) fn has_come(&mut self, thread: u32) {
        let now = self.now();
        self.counts.moved.insert(thread, now);
        self.callers.forget(thread);
    }
}

impl crate::desk::Seat {
    /// Whether somebody sits here who waits for nothing that we know of.
    pub(super) fn is_runnable(&self) -> bool {
        self.kernel() != 0 && !self.asks() && self.in_call.load(Ordering::SeqCst) == 0
    }
}
