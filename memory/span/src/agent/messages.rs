//! Messages between agents: sending them, and handling those from the origin. Messages to the
//! origin are handled in `origin_requests`.

use coherence::message::NodeId;
use net::mesh::Received;
use net::slice;
use node::driver::Server as _;
use node::sequential::Replica as _;

use super::driving;
use super::state::Agent;
use crate::context::Context;
use crate::frame::{Frame, Message};
use crate::packing::Spent;
use crate::request_table::THREADS_MAX;
use crate::{raw, scheduling, threads};

/// Messages about the memory map that are sent together, at most.
const LATE_MAX: usize = 256;

impl Agent {
    /// Serves until the program ends, which ends the process.
    pub fn run(mut self) -> ! {
        scheduling::remember();
        slice::shorten();
        match self.me {
            0 => self.note_begun(0),
            _ => self.notify(0, Message::Begun),
        }
        if self.may_be_driven() {
            driving::serve(self)
        }
        self.serve();
        unreachable!("the process ends with the program")
    }

    /// Sends a message with a body. Messages about the memory map to a node without threads are
    /// sent together, and before any other.
    pub(super) fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        if let Some(origin) = &mut self.origin
            && !origin.is_used[to as usize]
            && let Frame::Word(message) = &frame
            && let Some(message) = message.unacknowledged()
        {
            let late = &mut origin.late[to as usize];
            late.push((message, body));
            if late.len() >= LATE_MAX {
                self.send_late(to);
            }
            return;
        }
        self.send_late(to);
        self.engine.send(to, &frame.bytes(), body);
    }

    fn send_late(&mut self, to: NodeId) {
        let Some(origin) = &mut self.origin else { return };
        for (message, body) in std::mem::take(&mut origin.late[to as usize]) {
            self.engine.send(to, &Frame::Word(message).bytes(), body);
        }
    }

    /// Sends a message without a body.
    pub(super) fn notify(&mut self, to: NodeId, message: Message) {
        self.send(to, Frame::Word(message), Vec::new());
    }

    /// Handles a message of another node.
    pub fn handle(&mut self, message: Received) {
        let Received { from, header, body } = message;
        let at_origin = self.origin.is_some();
        match Frame::parse(&header) {
            Some(Frame::Page(header)) => self.receive(from, header, &body),
            Some(Frame::Batch) => self.receive_batch(from, &body),
            Some(Frame::Word(Message::Alive)) => {}
            Some(Frame::Word(Message::Exit { status })) if at_origin => {
                self.end(status, &String::from_utf8_lossy(&body));
            }
            Some(Frame::Word(Message::Exit { status })) if from == 0 => self.exit_as_told(status),
            Some(Frame::Word(message)) if at_origin => self.handle_at_origin(from, message, &body),
            Some(Frame::Word(message)) if from == 0 => self.handle_from_origin(message, &body),
            _ => self.violation(from, "a header"),
        }
    }

    fn handle_from_origin(&mut self, message: Message, body: &[u8]) {
        // Messages to a thread may come before the thread.
        if let Message::StartThread { thread, .. }
        | Message::MoveThread { thread, .. }
        | Message::Signal { thread } = message
        {
            self.allocate_slot(thread);
        }
        match message {
            Message::Result { thread, result: answer } | Message::Answer { thread, answer } => {
                let slot = self.table.get(thread);
                if !slot.is_some_and(|slot| slot.awaits_answer()) {
                    self.violation(0, "an answer without a request");
                }
                self.answer(thread, answer);
            }
            Message::Woken { thread } if self.table.get(thread).is_some() => {
                self.wake_thread(thread);
            }
            Message::StartThread { thread, tid, clear_tid, robust } => {
                self.start_thread(thread, tid, clear_tid, robust, body);
            }
            Message::CountRunnable => self.counts.next = Some(0),
            Message::WatchWaits => self.reports_waits = true,
            Message::QueryUsage => {
                let Spent { at, running, waited, stops, delayed, runnable } = self.usage();
                self.notify(0, Message::Usage { at, running, waited, stops, delayed, runnable });
            }
            Message::GiveThread { node } => self.give_thread(node),
            Message::MoveThread { thread, node } => self.move_own_thread(thread, node),
            Message::Signal { thread } => self.deliver_signal(thread, body),
            Message::Text { first, pages, offset, bytes } => {
                self.set_text(first, pages, offset, bytes, body);
            }
            Message::Lease { first, pages } => self.set_leased(first, pages),
            Message::Copies { first, pages } => self.take_copies(first, pages, body),
            Message::Recall { lease, first, pages } => self.recall_copies(lease, first, pages),
            Message::QueryTouched => self.send_touched(),
            Message::StartCounting => self.start_counting(),
            Message::Limit { bytes } => self.pages.residency.limit_bytes = Some(bytes),
            Message::QueryCounts => self.send_counts(),
            message => {
                if !self.apply_change(message) {
                    self.violation(0, "a message");
                }
            }
        }
    }

    /// Allocates the slot of a thread of this node.
    fn allocate_slot(&mut self, thread: u32) {
        if thread as usize >= THREADS_MAX {
            self.violation(0, "a thread beyond the limit");
        }
        if let Err(why) = self.table.allocate(thread) {
            let line = format!("no memory for thread {thread}: {why}");
            self.end(1, &format!("{}: {line}", self.names[self.me as usize]));
        }
    }

    /// Wakes a thread of this node that waits in a futex queue.
    pub(super) fn wake_thread(&mut self, thread: u32) {
        self.waits.queued.remove(&thread);
        let slot = self.table.slot(thread);
        slot.woken.store(1, std::sync::atomic::Ordering::SeqCst);
        self.wake_at(&slot.woken, thread);
    }

    /// Starts a thread of the program that comes to this node.
    fn start_thread(&mut self, thread: u32, tid: i32, clear_tid: u64, robust: u64, body: &[u8]) {
        use std::sync::atomic::Ordering::Relaxed;
        let slot = self.table.slot(thread);
        slot.wait_until_vacant();
        slot.reset();
        slot.robust.store(robust, Relaxed);
        slot.node.store(self.me, Relaxed);
        slot.tid.store(tid, Relaxed);
        slot.clear_tid.store(clear_tid, Relaxed);
        // SAFETY: the slot is vacant, so nothing uses its context and its stack; `arrived` never
        // returns.
        let began = unsafe {
            if !Context::set(slot.context(), body) {
                self.violation(0, "registers");
            }
            let word = slot.live_tid_word();
            raw::thread(word, slot.stack_end(), threads::arrived, thread as usize)
        };
        self.threads += 1;
        self.note_arrival(thread);
        self.with_counts(|seen, _| seen.begins(thread));
        if began < 0 {
            let why = std::io::Error::from_raw_os_error(-began as i32);
            self.end(1, &format!("{}: cannot make a thread: {why}", self.names[self.me as usize]));
        }
    }
}
