//! How much there is to do on each node: every agent counts its threads that could run, the
//! origin hears of it and lets threads go where there is less (`--place load`).

use coherence::message::NodeId;
use node::driver::Driver as _;

use super::state::Agent;
use crate::balance::{Load, THREAD};
use crate::frame::Message;
use crate::place::{Policy, Room};
use crate::slot::Slot;

/// Between two counts, in ns.
const COUNT_NS: u64 = 20_000_000;
/// Counts after which the origin is told.
const TELLS: u32 = 5;
/// A count's part in the average.
const WEIGHT: u32 = 8;
/// How long a thread stays where it has come, at least, in ns.
const STAYS_NS: u64 = 1_000_000_000;

impl Agent {
    /// At the origin, if threads go by load: all are to count.
    pub(super) fn want_counts(&mut self) {
        if self.origin().policy == Policy::Load && self.names.len() > 1 {
            self.counts.next = Some(0);
            for node in 1..self.names.len() as NodeId {
                self.notify(node, Message::CountRunnable);
            }
        }
    }

    /// Whether the count was due.
    pub(super) fn tend_counts(&mut self, now: u64) -> bool {
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
                Some(_) => self.take_load(0, busy),
                None => self.notify(0, Message::Load { busy }),
            }
        }
        true
    }

    /// The program's threads that are here and wait for nothing.
    pub(super) fn runnable(&self) -> impl Iterator<Item = u32> {
        let nodes = self.origin.as_ref().map(|origin| &origin.nodes);
        let runs = move |slot: &&Slot| {
            let node = |nodes: &Vec<Option<NodeId>>| nodes.get(slot.index as usize).copied();
            let is_here = nodes.is_none_or(|nodes| node(nodes) == Some(Some(0)));
            is_here && slot.is_runnable()
        };
        self.table.slots().filter(runs).map(|slot| slot.index)
    }

    /// At the origin: so busy is that node. The origin itself says so as often as others, and
    /// then all are compared.
    pub(super) fn take_load(&mut self, node: NodeId, busy: u32) {
        let origin = self.origin();
        origin.rooms[node as usize].busy = busy;
        if node != 0 || origin.binds {
            return;
        }
        let load = |room: &Room| Load { processors: room.processors, busy: room.busy };
        let loads: Vec<Load> = origin.rooms.iter().map(load).collect();
        match origin.balance.look(&loads) {
            Some((0, to)) => self.give_thread(to as NodeId),
            Some((from, to)) => {
                self.notify(from as NodeId, Message::GiveThread { node: to as NodeId })
            }
            None => {}
        }
    }

    /// One of this node's threads goes to that one: who has been here longest.
    pub(super) fn give_thread(&mut self, node: NodeId) {
        let now = self.now();
        let moved = &self.counts.moved;
        let since = |thread: u32| moved.get(&thread).copied().unwrap_or(0);
        let may_go = |&thread: &u32| since(thread) == 0 || since(thread) + STAYS_NS < now;
        if let Some(thread) = self.runnable().filter(may_go).min_by_key(|&it| since(it)) {
            self.counts.moved.insert(thread, now);
            self.move_own_thread(thread, node);
        }
    }

    /// A thread has come here.
    pub(super) fn note_arrival(&mut self, thread: u32) {
        let now = self.now();
        self.counts.moved.insert(thread, now);
        self.callers.forget(thread);
    }
}
