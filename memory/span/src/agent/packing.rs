//! Packing threads on fewer nodes (`--place auto`). Agents measure the processor time and the waits
//! of their threads. While threads wait long, the origin queries that, and moves threads as
//! [`packing`](crate::packing) decides.
//!
//! The processor time of threads is the process's CPU time less the agent's, and less that of
//! threads that drove the engine: two clocks, whatever the number of threads. Calls of shadows
//! count as the program's work. The time for which threads wait for processors is in /proc. While
//! threads are on all nodes and none waits for another node, nothing is queried.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use coherence::message::NodeId;
use node::driver::Driver as _;
use rustix::time::{ClockId, clock_gettime};

use super::callers;
use super::packer::Packer;
use super::state::Agent;
use crate::frame::Message;
use crate::packing::{Change, Packing, Spent, UNKNOWN};
use crate::place::{Policy, Thread, arrange};
use crate::report::Placed;
use crate::slot::Slot;

/// Threads whose waits for processors are read.
const SAMPLE: usize = 32;
/// The most changes that a report shows.
const PLACED_MAX: usize = 1000;

impl Agent {
    /// At the origin, with `--place auto`: makes all nodes report long waits.
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

    /// At the origin: returns true while threads are on several nodes as a trial. Memory that they
    /// free then stays the origin's, so that it can become local again.
    pub(super) fn tries_nodes(&self) -> bool {
        self.packing.as_ref().is_some_and(|packer| !packer.is_off && packer.packing.is_trying())
    }

    fn packer(&mut self) -> Option<&mut Packer> {
        self.packing.as_mut().filter(|packer| !packer.is_off)
    }

    /// At the origin: returns the number of nodes on which new threads may start.
    pub(super) fn nodes_in_use(&mut self) -> usize {
        let all = self.names.len();
        self.packer().map_or(all, |packer| packer.packing.nodes())
    }

    /// Returns the time of the next query.
    pub(super) fn packs_next(&self) -> Option<u64> {
        let packer = self.packing.as_ref()?;
        (!packer.is_off && packer.asked.is_empty()).then(|| packer.packing.next()).flatten()
    }

    /// Reports long waits; queries the nodes if it is time. Returns true if it was.
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

    /// Returns the processor time and the waits of this node's threads until now.
    pub(super) fn usage(&self) -> Spent {
        let ns = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        Spent {
            at: self.now(),
            running: ns(ClockId::ProcessCPUTime)
                .saturating_sub(ns(ClockId::ThreadCPUTime))
                .saturating_sub(self.driving.spent_ns),
            waited: self.waits.waited,
            stops: self.waits.stops,
            delayed: self.delayed().unwrap_or(UNKNOWN),
            runnable: self.runnable().count() as u32,
        }
    }

    /// Returns the time for which this node's threads have waited for a processor, in ns. Of many
    /// threads, the first ones stand for all.
    fn delayed(&self) -> Option<u64> {
        let live = || self.table.slots().map(Slot::live_tid).filter(|&tid| tid != 0);
        let (mut count, mut delayed) = (0, 0);
        for tid in live().take(SAMPLE) {
            // A thread may be exiting.
            if let Some(spent) = callers::spent(tid) {
                count += 1;
                delayed += spent.waiting;
            }
        }
        match count {
            0 => None,
            SAMPLE => Some(delayed * live().count() as u64 / SAMPLE as u64),
            _ => Some(delayed),
        }
    }

    /// At the origin: a thread starts.
    pub(super) fn note_start(&mut self) {
        let now = self.now();
        if let Some(packer) = self.packer() {
            packer.packing.starts_thread(now);
        }
    }

    /// At the origin: threads of some node wait long.
    pub(super) fn handle_long_waits(&mut self) {
        let now = self.now();
        if let Some(packer) = self.packer() {
            packer.packing.waits(now);
        }
    }

    /// At the origin: takes a node's answer to a query. After the last answer it decides.
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
            if change.nodes == 1 {
                self.return_memory();
            }
        }
    }

    /// Moves threads to the nodes that are in use from now on.
    fn changes_nodes(&mut self, change: &Change) {
        let origin = self.origin.as_ref().expect("at the origin");
        let all = origin.nodes.iter().enumerate();
        // Threads of other nodes are taken as runnable.
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

    /// At the origin: moves a thread here that has come to a node which is not in use any more. The
    /// order to return did not reach it on its way there.
    pub(super) fn send_back(&mut self, thread: u32, node: NodeId) {
        if let Some(packer) = self.packer()
            && node as usize >= packer.packing.nodes()
        {
            packer.sent.insert(thread);
            self.move_thread(thread, 0);
        }
    }

    /// At the origin: a thread has come here.
    pub(super) fn note_home(&mut self) {
        let are_home = self.origin().rooms[1..].iter().all(|room| room.threads == 0);
        let now = self.now();
        if let Some(packer) = self.packer().filter(|_| are_home)
            && packer.packing.nodes() > 1
        {
            packer.packing.are_home(now);
            self.return_memory();
        }
    }

    /// At the origin: moves a thread here that makes many calls and computes little.
    pub(super) fn send_home(&mut self, thread: u32) {
        if let Some(packer) = self.packer() {
            packer.sent.insert(thread);
            self.move_thread(thread, 0);
        }
    }

    /// At the origin: notes that a thread moves. If packing did not request that, the program or
    /// its user places threads, and packing stops. Threads come to the origin by themselves if they
    /// use shared mappings, which is no such wish.
    pub(super) fn note_move(&mut self, thread: u32, node: NodeId) {
        if let Some(packer) = &mut self.packing
            && !packer.sent.remove(&thread)
            && node != 0
        {
            packer.is_off = true;
        }
    }

    /// At the origin: stops packing, since the program places threads itself.
    pub(super) fn leave_alone(&mut self) {
        if let Some(packer) = &mut self.packing {
            packer.is_off = true;
        }
    }

    /// At the origin: forgets a thread that has exited.
    pub(super) fn forget_thread(&mut self, thread: u32) {
        if let Some(packer) = &mut self.packing {
            packer.sent.remove(&thread);
        }
    }
}

/// Threads that make many calls and compute little.
impl Agent {
    /// Counts a call at the origin of a thread of this node.
    pub(super) fn count_call(&mut self, thread: u32) {
        if !self.reports_waits {
            return;
        }
        let (now, slot) = (self.now(), self.table.slot(thread));
        let driven_ns = slot.driven_ns.load(Ordering::Relaxed);
        let spent = || {
            let spent = callers::spent(slot.live_tid())?;
            Some(callers::Spent { running: spent.running.saturating_sub(driven_ns), ..spent })
        };
        if self.callers.calls(thread, now, spent) {
            self.notify(0, Message::CallsOften { thread });
        }
    }
}
