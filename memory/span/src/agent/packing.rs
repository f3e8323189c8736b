//! Threads that get in each other's way are packed (`--place auto`): agents count what their
//! threads do, the origin asks for that while any of them waits much, and lets threads go where
//! [`packing`](crate::packing) says.
//!
//! How long threads have run is this process's time less the agent's own: two looks at the
//! kernel's clocks, however many threads there are and however they come and go, and a shadow's
//! calls are the program's work, too. While nobody waits for another node, nobody is asked, and
//! nothing is counted.

use std::collections::HashSet;

use coherence::message::NodeId;
use node::driver::Driver as _;
use rustix::time::{ClockId, clock_gettime};

use super::callers;
use super::packer::Packer;
use super::state::Agent;
use crate::frame::Message;
use crate::packing::{Change, Packing, Spent};
use crate::place::{Policy, Thread, arrange};
use crate::report::Placed;

/// Changes that are kept for a report.
const PLACED_MAX: usize = 1000;

impl Agent {
    /// At the origin: all are to say when their threads wait, if that matters.
    pub(super) fn watch_waits(&mut self) {
        let nodes = self.names.len();
        if self.origin().policy != Policy::Auto || nodes < 2 {
            return;
        }
        let processors = self.origin().rooms.iter().map(|room| room.processors).collect();
        self.packing = Some(Packer {
            packing: Packing::new(processors),
            spent: vec![Spent::default(); nodes],
            asked: HashSet::new(),
            sent: HashSet::new(),
            is_off: false,
            placed: Vec::new(),
        });
        self.reports_waits = true;
        for node in 1..nodes as NodeId {
            self.notify(node, Message::WatchWaits);
        }
    }

    fn packer(&mut self) -> Option<&mut Packer> {
        self.packing.as_mut().filter(|packer| !packer.is_off)
    }

    /// At the origin: new threads begin on the first so many nodes.
    pub(super) fn nodes_in_use(&mut self) -> usize {
        let all = self.names.len();
        self.packer().map_or(all, |packer| packer.packing.nodes())
    }

    /// When nodes are to be asked next.
    pub(super) fn packs_next(&self) -> Option<u64> {
        let packer = self.packing.as_ref()?;
        (!packer.is_off && packer.asked.is_empty()).then(|| packer.packing.next()).flatten()
    }

    /// Says that threads wait, or asks all nodes for what they do, if it is time; whether it was.
    pub(super) fn tend_packing(&mut self, now: u64) -> bool {
        if self.reports_waits && self.waits.take_long() {
            match self.origin {
                Some(_) => self.handle_long_waits(),
                None => self.notify(0, Message::LongWaits),
            }
        }
        if self.packs_next().is_none_or(|next| next > now) {
            return false;
        }
        let Some(packer) = self.packer() else { return false };
        let nodes = packer.packing.looks_at() as NodeId;
        packer.asked.extend(0..nodes);
        for node in 1..nodes {
            self.notify(node, Message::QueryUsage);
        }
        let spent = self.usage();
        self.take_usage(0, spent);
        true
    }

    /// What this node's threads have done until now.
    pub(super) fn usage(&self) -> Spent {
        let ns = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        Spent {
            at: self.now(),
            running: ns(ClockId::ProcessCPUTime).saturating_sub(ns(ClockId::ThreadCPUTime)),
            waited: self.waits.waited,
            stops: self.waits.stops,
            runnable: self.runnable().count() as u32,
        }
    }

    /// At the origin: threads of some node wait much.
    pub(super) fn handle_long_waits(&mut self) {
        let now = self.now();
        if let Some(packer) = self.packer() {
            packer.packing.waits(now);
        }
    }

    /// At the origin: a node has said what its threads have done; when all have, threads may go.
    pub(super) fn take_usage(&mut self, node: NodeId, spent: Spent) {
        let now = self.now();
        let Some(packer) = self.packer() else { return };
        packer.spent[node as usize] = spent;
        if !packer.asked.remove(&node) || !packer.asked.is_empty() {
            return;
        }
        if let Some(change) = packer.packing.look(now, &packer.spent) {
            if packer.placed.len() < PLACED_MAX {
                packer.placed.push(Placed::new(now, &change));
            }
            self.changes_nodes(&change);
        }
    }

    /// Threads go to as many nodes as are in use from now on.
    fn changes_nodes(&mut self, change: &Change) {
        let origin = self.origin.as_ref().expect("at the origin");
        let all = origin.nodes.iter().enumerate();
        // Of those that are elsewhere nothing is known.
        let thread = |(thread, node): (usize, &Option<NodeId>)| {
            let (slot, node) = (thread as u32, (*node)? as usize);
            let is_runnable = node != 0 || self.table.slot(slot).is_runnable();
            Some((slot, Thread { node, is_runnable }))
        };
        let (slots, threads): (Vec<u32>, Vec<Thread>) = all.filter_map(thread).unzip();
        let places = arrange(&origin.rooms[..change.nodes], &threads);
        for ((slot, thread), place) in slots.into_iter().zip(threads).zip(places) {
            if thread.node != place {
                if let Some(packer) = self.packer() {
                    packer.sent.insert(slot);
                }
                self.move_thread(slot, place as NodeId);
            }
        }
    }

    /// At the origin: this thread of another node calls more than it computes.
    pub(super) fn send_home(&mut self, thread: u32) {
        if let Some(packer) = self.packer() {
            packer.sent.insert(thread);
            self.move_thread(thread, 0);
        }
    }

    /// At the origin: a thread goes to another node. If it was not told to, the program or who runs
    /// it knows better.
    pub(super) fn note_move(&mut self, thread: u32) {
        if let Some(packer) = &mut self.packing
            && !packer.sent.remove(&thread)
        {
            packer.is_off = true;
        }
    }

    /// At the origin: the program says where threads go.
    pub(super) fn leave_alone(&mut self) {
        if let Some(packer) = &mut self.packing {
            packer.is_off = true;
        }
    }

    /// At the origin: a thread has ended.
    pub(super) fn forget_thread(&mut self, thread: u32) {
        if let Some(packer) = &mut self.packing {
            packer.sent.remove(&thread);
        }
    }
}

/// Threads that call more than they compute.
impl Agent {
    /// A thread of this node makes a call at the origin.
    pub(super) fn count_call(&mut self, thread: u32) {
        if !self.reports_waits {
            return;
        }
        let (now, tid) = (self.now(), self.table.slot(thread).live_tid());
        if self.callers.calls(thread, now, || callers::spent(tid)) {
            self.notify(0, Message::CallsOften { thread });
        }
    }
}
