//! Balancing by load (`--place load`): agents count their runnable threads and report the average;
//! the origin moves threads to nodes with less load.

use coherence::message::NodeId;
use node::driver::Driver as _;

use super::state::Agent;
use crate::balance::{Load, THREAD};
use crate::frame::Message;
use crate::place::{Policy, Room};
use crate::slot::Slot;

/// Interval of counts.
const COUNT_NS: u64 = 20_000_000;
/// Counts between two reports to the origin.
const TELLS: u32 = 5;
/// The weight of a count in the average is one in this number.
const WEIGHT: u32 = 8;
/// Minimum time that a thread stays on a node.
const STAYS_NS: u64 = 1_000_000_000;

impl Agent {
    /// At the origin, with `--place load`: makes all nodes count.
    pub(super) fn want_counts(&mut self) {
        if self.origin().policy == Policy::Load && self.names.len() > 1 {
            self.counts.next = Some(0);
            for node in 1..self.names.len() as NodeId {
                self.notify(node, Message::CountRunnable);
            }
        }
    }

    /// Counts if it is time. Returns true if it was.
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

    /// Returns the runnable threads of this node.
    pub(super) fn runnable(&self) -> impl Iterator<Item = u32> {
        let nodes = self.origin.as_ref().map(|origin| &origin.nodes);
        let runs = move |slot: &&Slot| {
            let node = |nodes: &Vec<Option<NodeId>>| nodes.get(slot.index as usize).copied();
            let is_here = nodes.is_none_or(|nodes| node(nodes) == Some(Some(0)));
            is_here && slot.is_runnable()
        };
        self.table.slots().filter(runs).map(|slot| slot.index)
    }

    /// At the origin: takes the load of a node. When it takes its own, it compares all nodes.
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

    /// Moves the thread that has been on this node longest to another one.
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

    /// Notes that a thread has come to this node.
    pub(super) fn note_arrival(&mut self, thread: u32) {
        let now = self.now();
        self.counts.moved.insert(thread, now);
        self.callers.forget(thread);
    }
}
