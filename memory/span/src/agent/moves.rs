//! Moves of threads between nodes: by policy, by affinity masks and by `--move`; and signals that
//! follow the threads.

use std::sync::atomic::Ordering;

use coherence::message::NodeId;

use super::orders::{self, Orders};
use super::state::Agent;
use crate::call::{self, Call};
use crate::context::Context;
use crate::frame::{Frame, Message};
use crate::here::Here;
use crate::place::{Room, place};
use crate::signal::Signal;
use crate::slot::Slot;

impl Agent {
    /// Makes a thread of this node move: after its present call or, if it is in none or waits in
    /// a futex queue, at once.
    pub(super) fn move_own_thread(&mut self, thread: u32, node: NodeId) {
        let slot = self.table.slot(thread);
        slot.set_destination(node);
        if slot.in_call.load(Ordering::SeqCst) == 0 || self.waits.queued.contains(&thread) {
            slot.interrupt();
        }
    }

    /// At the origin: makes a thread of any node move to this one.
    pub(super) fn move_thread(&mut self, thread: u32, node: NodeId) {
        match self.origin().nodes[thread as usize] {
            Some(0) => self.move_own_thread(thread, node),
            Some(there) => self.notify(there, Message::MoveThread { thread, node }),
            None => {}
        }
    }

    /// At the origin: returns a node that the thread's affinity mask allows, for the thread or for
    /// a new thread that it creates.
    pub(super) fn place_for(&mut self, thread: u32) -> usize {
        let (here, slot) = (Here::get(), self.table.slot(thread));
        let all = 0..self.nodes_in_use();
        let mut nodes: Vec<usize> = all.clone().filter(|&it| here.lets_on(slot, it)).collect();
        if nodes.is_empty() {
            // Another thread is changing the mask.
            nodes.extend(all);
        }
        let origin = self.origin();
        let rooms: Vec<Room> = nodes.iter().map(|&node| origin.rooms[node]).collect();
        nodes[place(origin.policy, &rooms)]
    }

    /// At the origin: the program has set the affinity mask of a thread. If the mask excludes the
    /// thread's node, the thread moves. If it excludes any node, policies move no threads any more.
    pub(super) fn bind_thread(&mut self, thread: u32) {
        let (here, slot) = (Here::get(), self.table.slot(thread));
        if (0..self.names.len()).all(|node| here.lets_on(slot, node)) {
            return;
        }
        self.leave_alone();
        let origin = self.origin();
        origin.binds = true;
        let Some(node) = origin.nodes[thread as usize] else { return };
        let goes_to = origin.bound.get(&thread).copied().unwrap_or(node);
        if !here.lets_on(slot, goes_to as usize) {
            let is_here = here.lets_on(slot, node as usize);
            let to = if is_here { node } else { self.place_for(thread) as NodeId };
            self.origin().bound.insert(thread, to);
            self.move_thread(thread, to);
        }
    }

    /// Delivers a signal that the shadow has forwarded to a thread of this node.
    pub(super) fn deliver_signal(&mut self, thread: u32, body: &[u8]) {
        let Some(signal) = Signal::parse(body) else { self.violation(0, "a signal") };
        let slot = self.table.slot(thread);
        // If the thread is moving to another node, the origin sends the signal there, too.
        if !slot.has(Slot::SIGNAL) {
            slot.set_signal(&signal);
            slot.interrupt();
        }
    }

    /// Sends a thread of this node to the origin, which resumes it on `node`.
    pub(super) fn hand_over(&mut self, thread: u32, node: NodeId) {
        let slot = self.table.slot(thread);
        let clear_tid = slot.clear_tid.load(Ordering::Relaxed);
        let robust = slot.robust.load(Ordering::Relaxed);
        // SAFETY: `moves::go` has stored the context, and the thread does not use it any more.
        let body = unsafe { Context::bytes(slot.context()) };
        let table = self.table;
        self.with_counts(|seen, _| seen.ends(table, thread));
        proc::log_line!(Debug, "span", "thread {thread} leaves node {} for {node}", self.me);
        self.send(0, Frame::Word(Message::Move { thread, node, clear_tid, robust }), body);
        self.threads -= 1;
        self.answer(thread, 0);
    }

    /// At the origin: forwards the signal that a shadow has received to its thread.
    pub(super) fn forward_signal(&mut self, thread: u32) {
        let node = self.origin().nodes[thread as usize];
        match node {
            Some(node) if node != 0 => {
                self.origin().signalled.insert(thread);
                self.send_signal(node, thread);
                self.answer(thread, 0);
            }
            _ => self.answer(thread, 1),
        }
    }

    fn send_signal(&mut self, node: NodeId, thread: u32) {
        if let Some(signal) = self.table.slot(thread).signal() {
            self.send(node, Frame::Word(Message::Signal { thread }), signal.bytes());
        }
    }

    /// At the origin: resumes a thread that comes from another node, here or on a third node.
    pub(super) fn take_over(
        &mut self,
        thread: u32,
        node: NodeId,
        [clear_tid, robust]: [u64; 2],
        from: NodeId,
        body: &[u8],
    ) {
        let slot = self.table.slot(thread);
        slot.clear_tid.store(clear_tid, Ordering::Relaxed);
        slot.robust.store(robust, Ordering::Relaxed);
        // SAFETY: no call is posted, so the shadow does not use the context.
        let is_whole = unsafe { Context::set(slot.context(), body) };
        if !is_whole || node as usize >= self.names.len() {
            self.violation(from, "registers");
        }
        self.resume_on(thread, node);
    }

    /// At the origin: resumes a thread, whose context is in its slot, on this node.
    pub(super) fn resume_on(&mut self, thread: u32, node: NodeId) {
        let slot = self.table.slot(thread);
        self.note_move(thread, node);
        if node > 0 {
            self.share_memory();
        }
        let origin = self.origin();
        let before = origin.nodes[thread as usize].replace(node).expect("it is somewhere");
        origin.rooms[before as usize].threads -= 1;
        origin.rooms[node as usize].threads += 1;
        origin.is_used[node as usize] = true;
        // Requests to move it did not reach it on its way.
        let bound = origin.bound.remove(&thread).filter(|&to| to != node);
        self.threads = self.origin().rooms[0].threads;
        if before == 0 {
            slot.take_destination();
            let table = self.table;
            self.with_counts(|seen, _| seen.ends(table, thread));
        }
        if node == 0 {
            self.origin().signalled.remove(&thread);
            self.note_arrival(thread);
            self.note_home();
            slot.post_call(Call { number: call::HOME, arguments: [0; 6] });
            return self.goes_where_bound(thread, node, bound);
        }
        let tid = slot.tid.load(Ordering::Relaxed);
        let clear_tid = slot.clear_tid.load(Ordering::Relaxed);
        let robust = slot.robust.load(Ordering::Relaxed);
        // SAFETY: the thread or `take_over` has stored the context; its shadow does not use it.
        let body = unsafe { Context::bytes(slot.context()) };
        let message = Message::StartThread { thread, tid, clear_tid, robust };
        self.send(node, Frame::Word(message), body);
        if self.origin().signalled.contains(&thread) {
            self.send_signal(node, thread);
        }
        self.goes_where_bound(thread, node, bound);
    }

    /// At the origin: repeats a request to move a thread that did not reach it on its way.
    fn goes_where_bound(&mut self, thread: u32, node: NodeId, to: Option<NodeId>) {
        self.send_back(thread, node);
        let is_let = Here::get().lets_on(self.table.slot(thread), node as usize);
        if let Some(to) = to.filter(|_| !is_let) {
            self.origin().bound.insert(thread, to);
            self.move_thread(thread, to);
        }
    }
}

/// Orders of `nagaya span --move`.
impl Agent {
    /// Carries out the next order, if there is one.
    pub(super) fn take_order(&mut self) {
        let Some((text, user, from)) = self.orders.as_ref().and_then(Orders::take) else { return };
        let answer = match self.obey(&text, user) {
            Ok(()) => orders::DONE.to_owned(),
            Err(line) => line,
        };
        if let Some(orders) = &self.orders {
            orders.answer(&answer, &from);
        }
    }

    fn obey(&mut self, text: &str, user: u32) -> Result<(), String> {
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            return Err("it is another user's".to_owned());
        }
        let numbers = text.split_once('=').map(|(thread, node)| (thread.parse(), node.parse()));
        let Some((Ok(tid), Ok(node))) = numbers else { return Err("that is no order".to_owned()) };
        let (tid, node): (i32, u32) = (tid, node);
        if node as usize >= self.names.len() {
            return Err(format!("there is no node {node}: there are {}", self.names.len()));
        }
        let nodes = &self.origin.as_ref().expect("at the origin").nodes;
        let is_it = |thread: &u32| {
            let tid_there = self.table.slot(*thread).tid.load(Ordering::Relaxed);
            nodes[*thread as usize].is_some() && tid_there == tid
        };
        let found = (0..nodes.len() as u32).find(is_it);
        let thread = found.ok_or_else(|| format!("there is no thread {tid}"))?;
        self.move_thread(thread, node);
        Ok(())
    }
}
