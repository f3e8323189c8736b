//! What only the origin's agent does: the memory map, the futex service, threads' places.

use std::collections::VecDeque;
use std::ops::Range;

use coherence::message::NodeId;

use super::{Agent, question};
use crate::addresses::{Addresses, PAGE};
use crate::context::Context;
use crate::desk::{Call, Request, THREADS_MAX};
use crate::frame::{Frame, Question, Word};
use crate::futexes::Futexes;
use crate::image::Part;
use crate::place::{Policy, Room, place};

/// Pages by which the segment grows, at least.
const GROWTH: u64 = 64 << 20 >> 12;

/// What the origin knows.
pub struct Origin {
    addresses: Addresses,
    start: u64,
    futexes: Futexes,
    policy: Policy,
    rooms: Vec<Room>,
    /// The node of each thread.
    nodes: Vec<Option<NodeId>>,
    /// How many changes of the memory map each node was told of, and has said to be done.
    told: Vec<u64>,
    done: Vec<u64>,
    waiting: VecDeque<Waiting>,
    status: i32,
}

/// A thread that waits until others have changed their memory map.
struct Waiting {
    thread: u32,
    answer: i64,
    /// Who, and how many changes.
    by: Vec<(NodeId, u64)>,
}

impl Origin {
    /// Of a program whose segment begins at `start`, with one thread, which is there.
    pub fn new(addresses: Addresses, start: u64, policy: Policy, mut rooms: Vec<Room>) -> Self {
        rooms[0].threads = 1;
        let mut nodes = vec![None; THREADS_MAX];
        nodes[0] = Some(0);
        Self {
            addresses,
            start,
            futexes: Futexes::default(),
            policy,
            nodes,
            told: vec![0; rooms.len()],
            done: vec![0; rooms.len()],
            rooms,
            waiting: VecDeque::new(),
            status: 0,
        }
    }
}

impl Agent {
    fn origin(&mut self) -> &mut Origin {
        self.origin.as_mut().expect("at the origin")
    }

    pub(super) fn requested_at_origin(&mut self, thread: u32, request: Request) {
        let invalid = -i64::from(libc::EINVAL);
        let no_memory = -i64::from(libc::ENOMEM);
        match request {
            Request::Map { bytes, protection } => match self.origin().addresses.map(bytes) {
                Some(given) => {
                    let answer = given.start as i64 | i64::from(given.is_used);
                    self.open(thread, given.start, bytes, protection, answer);
                }
                None => self.answer(thread, no_memory),
            },
            Request::MapAt { start, bytes, protection } => {
                match self.origin().addresses.map_at(start, bytes) {
                    Some(given) => {
                        let answer = given.start as i64 | i64::from(given.is_used);
                        self.open(thread, start, bytes, protection, answer);
                    }
                    None => self.answer(thread, no_memory),
                }
            }
            Request::Unmap { start, bytes } => match self.origin().addresses.unmap(start, bytes) {
                Some(range) => self.change(thread, range, Some(0), true, 0),
                None => self.answer(thread, invalid),
            },
            Request::Discard { start, bytes } => {
                match self.origin().addresses.range(start, bytes) {
                    Some(range) => self.change(thread, range, None, true, 0),
                    None => self.answer(thread, invalid),
                }
            }
            Request::Protect { start, bytes, protection } => {
                match self.origin().addresses.range(start, bytes) {
                    Some(range) => self.change(thread, range, Some(protection), false, 0),
                    None if bytes == 0 => self.answer(thread, 0),
                    None => self.answer(thread, no_memory),
                }
            }
            Request::HeapEnd => {
                let end = self.origin().addresses.heap_end();
                self.answer(thread, end as i64);
            }
            Request::Break(end) => match self.origin().addresses.set_heap_end(end) {
                Some((opened, closed, is_used)) => {
                    let answer = if is_used { 2 } else { 1 };
                    let protection = Some((libc::PROT_READ | libc::PROT_WRITE) as u32);
                    match (opened.is_empty(), closed.is_empty()) {
                        (true, true) => self.answer(thread, answer),
                        (false, _) => self.change(thread, opened, protection, false, answer),
                        (true, false) => self.change(thread, closed, Some(0), true, answer),
                    }
                }
                None => self.answer(thread, 0),
            },
            Request::Place => {
                let origin = self.origin();
                let answer = match origin.nodes.iter().position(Option::is_none) {
                    Some(free) => {
                        let node = place(origin.policy, &origin.rooms);
                        origin.rooms[node].threads += 1;
                        origin.nodes[free] = Some(node as NodeId);
                        free as i64 | (node as i64) << 32
                    }
                    None => -i64::from(libc::EAGAIN),
                };
                self.threads = self.origin().rooms[0].threads;
                self.answer(thread, answer);
            }
            Request::Vacate(other) => {
                self.vacate(other);
                self.answer(thread, 0);
            }
            Request::Begin(other) => {
                use std::sync::atomic::Ordering::Relaxed;
                let seat = self.desk.seat(other);
                let (tid, clear_tid) = (seat.tid.load(Relaxed), seat.clear_tid.load(Relaxed));
                // SAFETY: its shadow has left it there for this.
                let body = unsafe { Context::bytes(seat.context()) };
                let word = Word::Begin { thread: other, tid, clear_tid };
                self.send(seat.node.load(Relaxed), Frame::Word(word), body);
                self.answer(thread, 0);
            }
            Request::Done(result) => {
                if let Some(node) = self.origin().nodes[thread as usize] {
                    self.say(node, Word::Result { thread, result });
                }
                self.answer(thread, 0);
            }
            Request::Gone(status) => {
                self.answer(thread, 0);
                self.vacate(thread);
                let origin = self.origin();
                origin.status = status;
                if origin.nodes.iter().all(Option::is_none) {
                    self.end(status, "");
                }
            }
            Request::End(status) => self.end(status, ""),
            Request::Call(_) => unreachable!("it is made here"),
            request => {
                let question = question(request).expect("the futex service's");
                let answer = self.asked(thread, question);
                self.answer(thread, answer);
            }
        }
    }

    fn vacate(&mut self, thread: u32) {
        let origin = self.origin();
        origin.futexes.cancel(thread);
        if let Some(node) = origin.nodes[thread as usize].take() {
            origin.rooms[node as usize].threads -= 1;
        }
        self.threads = self.origin().rooms[0].threads;
    }

    pub(super) fn heard_at_origin(&mut self, from: NodeId, word: Word, body: &[u8]) {
        let is_theirs = |this: &Self, thread: u32| {
            let nodes = &this.origin.as_ref().expect("at the origin").nodes;
            nodes.get(thread as usize) == Some(&Some(from))
        };
        match word {
            Word::Call { thread, number, arguments } if is_theirs(self, thread) => {
                let seat = self.desk.seat(thread);
                if number == libc::SYS_clone as u64 {
                    // SAFETY: its shadow waits, and does not use it.
                    if !unsafe { Context::set(seat.context(), body) } {
                        self.nonsense(from, "registers");
                    }
                }
                seat.post(Call { number, arguments });
            }
            Word::Gone { thread, status } if is_theirs(self, thread) => {
                let number = libc::SYS_exit as u64;
                let arguments = [status as u64, 0, 0, 0, 0, 0];
                self.desk.seat(thread).post(Call { number, arguments });
            }
            Word::Ask { thread, question } if is_theirs(self, thread) => {
                let answer = self.asked(thread, question);
                self.say(from, Word::Answer { thread, answer });
            }
            Word::Protected => {
                self.origin().done[from as usize] += 1;
                self.answer_waiting();
            }
            _ => self.nonsense(from, "a word"),
        }
    }

    /// The futex service.
    fn asked(&mut self, thread: u32, question: Question) -> i64 {
        let futexes = &mut self.origin().futexes;
        match question {
            Question::Enqueue { word, bits } => {
                futexes.enqueue(thread, word, bits);
                0
            }
            Question::Cancel => futexes.cancel(thread).into(),
            Question::Wake { word, count, bits } => {
                let woken = futexes.wake(word, count, bits);
                self.wake(&woken)
            }
            Question::Requeue { word, count, to, moved } => {
                let woken = futexes.wake(word, count, u32::MAX);
                let moved = futexes.requeue(word, to, moved);
                self.wake(&woken) + i64::from(moved)
            }
        }
    }

    fn wake(&mut self, threads: &[u32]) -> i64 {
        for &thread in threads {
            match self.origin().nodes[thread as usize] {
                Some(0) => self.wakes(thread),
                Some(node) => self.say(node, Word::Woken { thread }),
                None => {}
            }
        }
        threads.len() as i64
    }

    fn open(&mut self, thread: u32, start: u64, bytes: u64, protection: u32, answer: i64) {
        let end = self.origin().addresses.end();
        let pages = (end - self.origin().start) / PAGE;
        let there = self.region.pages();
        if pages > there {
            let more = (pages - there).max(GROWTH).max(there / 4);
            for node in self.others() {
                self.say(node, Word::Grow { pages: more });
            }
            self.grow(more);
        }
        let range = start..start + bytes.next_multiple_of(PAGE);
        self.change(thread, range, Some(protection), false, answer);
    }

    fn others(&self) -> Range<NodeId> {
        1..self.names.len() as NodeId
    }

    /// Changes what may be done with addresses, on all nodes, and answers the thread when that
    /// is done where there are threads.
    fn change(
        &mut self,
        thread: u32,
        at: Range<u64>,
        protection: Option<u32>,
        clears: bool,
        answer: i64,
    ) {
        let start = self.origin().start;
        let (first, pages) = ((at.start - start) / PAGE, (at.end - at.start) / PAGE);
        // What was never used is closed, wherever it is.
        let pages = pages.min(self.region.pages().saturating_sub(first));
        self.protect(first, pages, protection, clears);
        let mut by = Vec::new();
        for node in self.others() {
            self.say(node, Word::Protect { first, pages, protection, clears });
            let origin = self.origin();
            origin.told[node as usize] += 1;
            if origin.rooms[node as usize].threads > 0 {
                by.push((node, origin.told[node as usize]));
            }
        }
        self.origin().waiting.push_back(Waiting { thread, answer, by });
        self.answer_waiting();
    }

    fn answer_waiting(&mut self) {
        let Origin { waiting, done, .. } = self.origin();
        let is_done =
            |it: &Waiting| it.by.iter().all(|&(node, count)| done[node as usize] >= count);
        let (ready, still) = std::mem::take(waiting).into_iter().partition(is_done);
        *waiting = still;
        let ready: VecDeque<Waiting> = ready;
        for Waiting { thread, answer, .. } in ready {
            self.answer(thread, answer);
        }
    }

    /// At the very beginning: what may be done with what was loaded.
    pub fn begin(&mut self, parts: &[Part]) {
        let start = self.origin().start;
        let pages = self.region.pages();
        for node in self.others() {
            self.say(node, Word::Grow { pages });
        }
        for part in parts {
            let (first, pages) = ((part.start - start) / PAGE, part.bytes / PAGE);
            let protection = Some(part.protection);
            self.protect(first, pages, protection, false);
            for node in self.others() {
                self.say(node, Word::Protect { first, pages, protection, clears: false });
                self.origin().told[node as usize] += 1;
            }
        }
    }
}
