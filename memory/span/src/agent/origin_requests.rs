//! Requests and messages that the origin's agent serves: the memory map, futex queues, and the
//! placement of threads.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use coherence::message::NodeId;
use node::driver::Driver as _;

use super::change::Effect;
use super::origin::Origin;
use super::state::Agent;
use crate::balance::THREAD;
use crate::call::{self, Call};
use crate::clock_offsets;
use crate::context::Context;
use crate::frame::{Frame, Message, Question};
use crate::futex;
use crate::image::{Part, Text};
use crate::packing::Spent;
use crate::request::Request;
use crate::request_table::THREADS_MAX;
use crate::shared;

impl Agent {
    /// Returns the data of the origin.
    ///
    /// # Panics
    /// This node is not the origin.
    pub(super) fn origin(&mut self) -> &mut Origin {
        self.origin.as_mut().expect("at the origin")
    }

    /// Serves a request of a thread at the origin, or of a shadow.
    pub(super) fn serve_request_at_origin(&mut self, thread: u32, request: Request) {
        let Some(request) = self.serve_map_request(thread, request) else { return };
        match request {
            Request::Text { descriptor, start, offset, bytes } => {
                self.mapped_file(thread, descriptor, start, offset, bytes);
            }
            Request::Lease { descriptor, start, offset, bytes } => {
                self.lease(thread, descriptor, start, offset, bytes);
            }
            Request::Name { start, bytes, offset, name } => {
                assert!(name as usize <= size_of::<Context>(), "a name fits into the context");
                let at = self.table.slot(thread).context().cast::<u8>();
                // SAFETY: `names::name` has stored `name` bytes in the slot's context, and its
                // thread waits for the answer.
                let name = unsafe { std::slice::from_raw_parts(at, name as usize) };
                self.named(start, bytes, offset, name);
                self.answer(thread, 0);
            }
            Request::PlaceThread => self.place_thread(thread),
            Request::ReleaseSlot(other) => {
                self.vacate(other);
                self.answer(thread, 0);
            }
            Request::StartThread(other) => {
                self.send_new_thread(other);
                self.answer(thread, 0);
            }
            Request::Bind(other) => {
                self.bind_thread(other);
                self.answer(thread, 0);
            }
            Request::ForwardSignal => self.forward_signal(thread),
            Request::Move(node) => {
                self.answer(thread, 0);
                self.resume_on(thread, node);
            }
            Request::Completed(result) => self.complete_call(thread, result),
            Request::Exited(status) => self.thread_exited(thread, status),
            Request::Exit(status) => self.end(status, ""),
            Request::Fork => self.request_fork(thread),
            Request::ForkDone => self.finish_fork(thread),
            Request::Call(_) => unreachable!("a thread at the origin makes its calls itself"),
            request => {
                let question = Question::of(request).expect("all other requests are matched");
                let answer = self.serve_futex(thread, question);
                self.answer(thread, answer);
            }
        }
    }

    /// Assigns a slot and a node to the new thread whose context is in `thread`'s slot.
    fn place_thread(&mut self, thread: u32) {
        // SAFETY: the thread has stored the context of its child there, and waits for the answer.
        let stack = unsafe { (*self.table.slot(thread).context()).stack_pointer() };
        // Nagaya writes signal frames to the stack, which must not leave the origin then.
        let has_shared_stack = shared::contains(stack.wrapping_sub(1));
        let wanted = if has_shared_stack { 0 } else { self.place_for(thread) };
        self.note_start();
        let free = self.free_slot();
        if wanted > 0 {
            self.share_memory();
        }
        let origin = self.origin();
        let answer = match free {
            Some(free) => {
                origin.rooms[wanted].threads += 1;
                // An estimate, until the node counts the thread.
                origin.rooms[wanted].busy += THREAD;
                origin.is_used[wanted] = true;
                origin.nodes[free] = Some(wanted as NodeId);
                free as i64 | (wanted as i64) << 32
            }
            None => -i64::from(libc::EAGAIN),
        };
        self.threads = self.origin().rooms[0].threads;
        self.answer(thread, answer);
    }

    /// Sends a new thread to the node on which it starts.
    fn send_new_thread(&mut self, thread: u32) {
        let slot = self.table.slot(thread);
        let (tid, clear_tid) = (slot.tid.load(Relaxed), slot.clear_tid.load(Relaxed));
        // SAFETY: `threads::clone` has copied the context there, and the shadow does not use it.
        let body = unsafe { Context::bytes(slot.context()) };
        let message = Message::StartThread { thread, tid, clear_tid, robust: 0 };
        let node = slot.node.load(Relaxed);
        assert_ne!(node, 0, "a thread of the origin starts there itself");
        self.send(node, Frame::Word(message), body);
        // A request to move it may have come before.
        if let Some(&to) = self.origin().bound.get(&thread) {
            self.notify(node, Message::MoveThread { thread, node: to });
        }
    }

    /// A shadow has made a call.
    fn complete_call(&mut self, thread: u32, result: i64) {
        if let Some(node) = self.origin().nodes[thread as usize] {
            self.notify(node, Message::Result { thread, result });
        }
        self.waits.is_answered(thread, self.now());
        let origin = self.origin();
        origin.at_work = origin.at_work.saturating_sub(1);
        self.table.release(thread);
    }

    /// A thread has exited; the program ends with its last thread.
    fn thread_exited(&mut self, thread: u32, status: i32) {
        let table = self.table;
        if self.origin().runs_here(thread) {
            self.with_counts(|seen, _| seen.ends(table, thread));
        }
        self.answer(thread, 0);
        self.vacate(thread);
        let origin = self.origin();
        origin.status = status;
        if origin.nodes.iter().all(Option::is_none) {
            self.end(status, "");
        }
    }

    /// Returns a free slot; none if there are too many threads, or no memory for one more.
    fn free_slot(&mut self) -> Option<usize> {
        let nodes = &mut self.origin().nodes;
        let free = nodes.iter().position(Option::is_none).unwrap_or(nodes.len());
        if free == nodes.len() && free < THREADS_MAX {
            nodes.push(None);
        }
        (free < THREADS_MAX && self.table.allocate(free as u32).is_ok()).then_some(free)
    }

    /// Releases the slot of a thread that has exited or could not be created.
    fn vacate(&mut self, thread: u32) {
        let origin = self.origin();
        origin.futexes.cancel(thread);
        origin.signalled.remove(&thread);
        origin.bound.remove(&thread);
        if let Some(node) = origin.nodes[thread as usize].take() {
            origin.rooms[node as usize].threads -= 1;
        }
        self.threads = self.origin().rooms[0].threads;
        self.forget_thread(thread);
    }

    /// Handles a message to the origin.
    pub(super) fn handle_at_origin(&mut self, from: NodeId, message: Message, body: &[u8]) {
        let is_theirs = |this: &Self, thread: u32| {
            let nodes = &this.origin.as_ref().expect("at the origin").nodes;
            nodes.get(thread as usize) == Some(&Some(from))
        };
        if let Message::Call { thread, .. }
        | Message::Move { thread, .. }
        | Message::Exited { thread, .. } = message
            && is_theirs(self, thread)
            && self.table.slot(thread).call_posted().load(SeqCst) != 0
        {
            self.violation(from, "a second call of one thread");
        }
        match message {
            Message::Call { thread, number, arguments } if is_theirs(self, thread) => {
                let slot = self.table.slot(thread);
                if call::takes_context(&Call { number, arguments }) {
                    // SAFETY: no call is posted, so the shadow does not use the context.
                    if !unsafe { Context::set(slot.context(), body) } {
                        self.violation(from, "registers");
                    }
                }
                if number == call::TAKEN {
                    self.origin().signalled.remove(&thread);
                }
                slot.post_call(Call { number, arguments });
                self.origin().at_work += 1;
                self.has_posted = true;
            }
            Message::Move { thread, node, clear_tid, robust } if is_theirs(self, thread) => {
                self.take_over(thread, node, [clear_tid, robust], from, body);
            }
            Message::Load { busy } => self.take_load(from, busy),
            Message::LongWaits => self.handle_long_waits(),
            Message::CallsOften { thread } if is_theirs(self, thread) => self.send_home(thread),
            Message::Usage { at, running, waited, stops, delayed, runnable } => {
                self.take_usage(from, Spent { at, running, waited, stops, delayed, runnable });
            }
            Message::Exited { thread, status } if is_theirs(self, thread) => {
                let number = call::END;
                let arguments = [status as u64, 0, 0, 0, 0, 0];
                self.table.slot(thread).post_call(Call { number, arguments });
            }
            Message::Ask { thread, question } if is_theirs(self, thread) => {
                let answer = self.serve_futex(thread, question);
                self.notify(from, Message::Answer { thread, answer });
            }
            Message::Acknowledge { change } => self.done(from, change),
            Message::FetchCopies { first, pages } => self.send_copies(from, first, pages),
            Message::Dropped { lease } => self.leases.acknowledge_drop(lease),
            Message::Lost { node } if (1..self.names.len()).contains(&(node as usize)) => {
                self.lost(node, &String::from_utf8_lossy(body));
            }
            Message::Begun => self.note_begun(from),
            Message::QueryTime => {
                self.notify(from, Message::Time { times: clock_offsets::times() })
            }
            Message::Touched => self.touched_by(from, body),
            _ => self.violation(from, "a message"),
        }
    }

    /// Serves a request to the futex queues, and to the kernel's waiters, which are the origin's
    /// threads. Returns the answer.
    fn serve_futex(&mut self, thread: u32, question: Question) -> i64 {
        let futexes = &mut self.origin().futexes;
        match question {
            Question::Enqueue { word, bits } => {
                futexes.enqueue(thread, word, bits);
                0
            }
            Question::Cancel => futexes.cancel(thread).into(),
            Question::Wake { word, count, bits } => {
                let woken = futexes.wake(word, count, bits);
                match count - woken.len() as u32 {
                    0 => self.wake(&woken),
                    rest => self.wake(&woken) + futex::wake_in_kernel(word, rest, bits).max(0),
                }
            }
            Question::Requeue { word, count, to, moved } => {
                let woken = futexes.wake(word, count, u32::MAX);
                let gone = futexes.requeue(word, to, moved);
                let rest = (count - woken.len() as u32, moved - gone);
                let theirs = futex::requeue_in_kernel(word, rest.0, to, rest.1).max(0);
                self.wake(&woken) + i64::from(gone) + theirs
            }
        }
    }

    fn wake(&mut self, threads: &[u32]) -> i64 {
        for &thread in threads {
            match self.origin().nodes[thread as usize] {
                Some(0) => self.wake_thread(thread),
                Some(node) => self.notify(node, Message::Woken { thread }),
                None => {}
            }
        }
        threads.len() as i64
    }

    /// Before the program starts: sets the protection of the parts that were loaded, moves mapped
    /// ones to their places, and announces limits, counts and texts to the other nodes.
    pub fn begin(&mut self, parts: &[Part], texts: Vec<Text>, memory: Option<u64>) {
        self.pages.residency.limit_bytes = memory;
        if memory.is_some() {
            self.share_memory();
        }
        self.want_counts();
        self.watch_waits();
        for node in 1..self.names.len() as NodeId {
            if self.wanted.is_some() {
                self.notify(node, Message::StartCounting);
            }
            if let Some(bytes) = memory {
                self.notify(node, Message::Limit { bytes });
            }
        }
        if self.wanted.is_some() {
            self.start_counting();
        }
        for part in parts {
            let range = part.start..part.start + part.bytes;
            if part.protection & libc::PROT_WRITE as u32 == 0 {
                self.origin().addresses.is_of_file(range.clone());
            }
            let pages = self.pages_of(&range);
            self.change(Effect::Protect(part.protection), pages, 0, None);
        }
        for mut text in texts {
            if let Some(mapped) = text.mapped.take() {
                self.lay_text(&text, mapped);
            }
            if let Ok(file) = std::fs::File::open(&text.path) {
                self.announce_text(&text, &file);
            }
        }
    }
}
