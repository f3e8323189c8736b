//! Threads that go from node to node, where the program binds them too, and signals that follow
//! them.

use std::sync::atomic::Ordering;

use coherence::message::NodeId;

use super::Agent;
use crate::context::Context;
use crate::desk::{Call, Seat};
use crate::frame::{Frame, Word};
use crate::here::Here;
use crate::place::{Room, place};
use crate::shadow;
use crate::signals::Signal;

impl Agent {
    /// A thread of this node is to go elsewhere. It looks when it next comes from a call, or at
    /// once if it is in none.
    pub(super) fn goes(&mut self, thread: u32, node: NodeId) {
        let seat = self.desk.seat(thread);
        seat.go_to(node);
        if seat.in_call.load(Ordering::SeqCst) == 0 {
            seat.poke();
        }
    }

    /// At the origin: a thread, wherever it is, is to go to this node.
    pub(super) fn sends(&mut self, thread: u32, node: NodeId) {
        match self.origin().nodes[thread as usize] {
            Some(0) => self.goes(thread, node),
            Some(there) => self.say(there, Word::Go { thread, node }),
            None => {}
        }
    }

    /// At the origin: the node for a new thread of this one's, or for itself: one that its mask
    /// allows.
    pub(super) fn place_for(&mut self, thread: u32) -> usize {
        let (here, seat) = (Here::get(), self.desk.seat(thread));
        let all = 0..self.nodes_in_use();
        let mut nodes: Vec<usize> = all.clone().filter(|&it| here.lets_on(seat, it)).collect();
        if nodes.is_empty() {
            // Somebody is changing the mask.
            nodes.extend(all);
        }
        let origin = self.origin();
        let rooms: Vec<Room> = nodes.iter().map(|&node| origin.rooms[node]).collect();
        nodes[place(origin.policy, &rooms)]
    }

    /// At the origin: the program has said on which processors it wants a thread. It goes to a node
    /// of theirs, if it is on none. Who says so knows better where threads are to be than we do.
    pub(super) fn is_bound(&mut self, thread: u32) {
        let (here, seat) = (Here::get(), self.desk.seat(thread));
        if (0..self.names.len()).all(|node| here.lets_on(seat, node)) {
            return;
        }
        self.leave_alone();
        let origin = self.origin();
        origin.binds = true;
        let Some(node) = origin.nodes[thread as usize] else { return };
        let goes_to = origin.bound.get(&thread).copied().unwrap_or(node);
        if !here.lets_on(seat, goes_to as usize) {
            let is_here = here.lets_on(seat, node as usize);
            let to = if is_here { node } else { self.place_for(thread) as NodeId };
            self.origin().bound.insert(thread, to);
            self.sends(thread, to);
        }
    }

    /// A thread of this node has a signal.
    pub(super) fn signalled(&mut self, thread: u32, body: &[u8]) {
        let Some(signal) = Signal::parse(body) else { self.nonsense(0, "a signal") };
        let seat = self.desk.seat(thread);
        // If it is on its way to another node, so is another copy.
        if !seat.has(Seat::SIGNAL) {
            seat.put(&signal);
            seat.poke();
        }
    }

    /// A thread goes from this node, which is not the origin.
    pub(super) fn leaves(&mut self, thread: u32, node: NodeId) {
        let seat = self.desk.seat(thread);
        let clear_tid = seat.clear_tid.load(Ordering::Relaxed);
        let robust = seat.robust.load(Ordering::Relaxed);
        // SAFETY: it has put it there for this.
        let body = unsafe { Context::bytes(seat.context()) };
        let desk = self.desk;
        self.seen(|seen, _| seen.ends(desk, thread));
        self.send(0, Frame::Word(Word::Move { thread, node, clear_tid, robust }), body);
        self.threads -= 1;
        self.answer(thread, 0);
    }

    /// At the origin: a shadow has a signal for its other half.
    pub(super) fn hand_on(&mut self, thread: u32) {
        let node = self.origin().nodes[thread as usize];
        match node {
            Some(node) if node != 0 => {
                self.origin().signalled.insert(thread);
                self.say_signal(node, thread);
                self.answer(thread, 0);
            }
            _ => self.answer(thread, 1),
        }
    }

    fn say_signal(&mut self, node: NodeId, thread: u32) {
        if let Some(signal) = self.desk.seat(thread).signal() {
            self.send(node, Frame::Word(Word::Signal { thread }), signal.bytes());
        }
    }

    /// At the origin: a thread comes from another node, to go on here or on a third.
    pub(super) fn arrives(
        &mut self,
        thread: u32,
        node: NodeId,
        [clear_tid, robust]: [u64; 2],
        from: NodeId,
        body: &[u8],
    ) {
        let seat = self.desk.seat(thread);
        seat.clear_tid.store(clear_tid, Ordering::Relaxed);
        seat.robust.store(robust, Ordering::Relaxed);
        // SAFETY: its shadow waits, and does not use it.
        let is_whole = unsafe { Context::set(seat.context(), body) };
        if !is_whole || node as usize >= self.names.len() {
            self.nonsense(from, "registers");
        }
        self.goes_on(thread, node);
    }

    /// At the origin: a thread, whose context is at its seat, goes on on this node.
    pub(super) fn goes_on(&mut self, thread: u32, node: NodeId) {
        let seat = self.desk.seat(thread);
        self.has_moved(thread);
        let origin = self.origin();
        let before = origin.nodes[thread as usize].replace(node).expect("it is somewhere");
        origin.rooms[before as usize].threads -= 1;
        origin.rooms[node as usize].threads += 1;
        origin.is_used[node as usize] = true;
        // On its way it has heard nothing.
        let bound = origin.bound.remove(&thread).filter(|&to| to != node);
        self.threads = self.origin().rooms[0].threads;
        if before == 0 {
            seat.wanted_elsewhere();
            let desk = self.desk;
            self.seen(|seen, _| seen.ends(desk, thread));
        }
        if node == 0 {
            self.origin().signalled.remove(&thread);
            self.has_come(thread);
            seat.post(Call { number: shadow::HOME, arguments: [0; 6] });
            return self.goes_where_bound(thread, node, bound);
        }
        let tid = seat.tid.load(Ordering::Relaxed);
        let clear_tid = seat.clear_tid.load(Ordering::Relaxed);
        let robust = seat.robust.load(Ordering::Relaxed);
        // SAFETY: it, or another node, has put it there for this.
        let body = unsafe { Context::bytes(seat.context()) };
        let word = Word::Begin { thread, tid, clear_tid, robust };
        self.send(node, Frame::Word(word), body);
        if self.origin().signalled.contains(&thread) {
            self.say_signal(node, thread);
        }
        self.goes_where_bound(thread, node, bound);
    }

    /// At the origin: a thread has come to this node that was told meanwhile to go to another.
    fn goes_where_bound(&mut self, thread: u32, node: NodeId, to: Option<NodeId>) {
        let is_let = Here::get().lets_on(self.desk.seat(thread), node as usize);
        if let Some(to) = to.filter(|_| !is_let) {
            self.origin().bound.insert(thread, to);
            self.sends(thread, to);
        }
    }
}
