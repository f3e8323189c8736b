//! What only the origin's agent does: the memory map, the futex service, threads' places.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use coherence::message::{NodeId, Page};
use node::driver::Driver as _;

use super::forks::Forks;
use super::mapping::{Changes, What};
use super::{Agent, question};
use crate::addresses::{Addresses, PAGE, Refusal};
use crate::balance::{Balance, THREAD};
use crate::clocks;
use crate::context::Context;
use crate::desk::{Call, Request, THREADS_MAX};
use crate::frame::{Frame, Question, Word};
use crate::futexes::Futexes;
use crate::image::{Part, Text};
use crate::limits;
use crate::packing::Spent;
use crate::place::{Policy, Room};
use crate::ranges::Ranges;
use crate::shadow;
use crate::shared;
use crate::snapshot::MemoryMap;

/// What the origin knows.
pub struct Origin {
    pub(super) addresses: Addresses,
    /// Addresses with which something may be done, by what that is: as mprotect(2) has it.
    pub(super) protections: [Ranges; 8],
    map: MemoryMap,
    futexes: Futexes,
    pub(super) policy: Policy,
    pub(super) balance: Balance,
    pub(super) rooms: Vec<Room>,
    /// The node of each thread.
    pub(super) nodes: Vec<Option<NodeId>>,
    /// Which nodes have had threads.
    pub(super) is_used: Vec<bool>,
    pub(super) changes: Changes,
    /// Segments of System V shared memory: where each begins, and its bytes.
    attached: BTreeMap<u64, u64>,
    /// Calls that shadows make now.
    pub(super) at_work: u32,
    pub(super) forks: Forks,
    /// Threads that have been sent a signal, and have not said that they handle it.
    pub(super) signalled: HashSet<u32>,
    /// Threads that the program has bound to other nodes than theirs, and where they go.
    pub(super) bound: HashMap<u32, NodeId>,
    /// It has bound some thread, so it knows better.
    pub(super) binds: bool,
    status: i32,
}

impl Origin {
    /// Of a program with one thread, which is there; `map` is how its children are seen.
    pub fn new(addresses: Addresses, map: MemoryMap, policy: Policy, mut rooms: Vec<Room>) -> Self {
        rooms[0].threads = 1;
        let nodes = vec![Some(0)];
        Self {
            addresses,
            protections: Default::default(),
            map,
            futexes: Futexes::default(),
            policy,
            balance: Balance::default(),
            nodes,
            is_used: (0..rooms.len()).map(|node| node == 0).collect(),
            rooms,
            changes: Changes::default(),
            attached: BTreeMap::new(),
            at_work: 0,
            forks: Forks::default(),
            signalled: HashSet::new(),
            bound: HashMap::new(),
            binds: false,
            status: 0,
        }
    }
}

impl Origin {
    /// A thread runs on the origin.
    pub(super) fn runs_here(&self, thread: u32) -> bool {
        self.nodes.get(thread as usize) == Some(&Some(0))
    }

    /// Whether its limit lets the program have so many bytes of addresses more.
    fn may_have(&self, bytes: u64) -> bool {
        let bytes = bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        limits::allows(|| self.addresses.taken_bytes(), bytes)
    }

    /// Whether it lets the heap end there. It may always shrink.
    fn may_have_heap(&self, end: u64) -> bool {
        let more = end.saturating_sub(self.addresses.heap_end());
        more == 0 || self.may_have(more)
    }

    /// Where the heap is.
    pub(super) fn heap(&self) -> Range<u64> {
        self.addresses.heap()
    }

    /// How a child is to be seen now.
    pub(super) fn memory_map(&self) -> MemoryMap {
        let heap = self.heap();
        MemoryMap { heap: [heap.start, heap.end], ..self.map }
    }

    /// The answer to [`Request::Look`].
    fn looks(&self, address: u64) -> i64 {
        let page = address..address + 1;
        let has = |ranges: &Ranges| ranges.covers(&page);
        let protection = self.protections.iter().position(has).unwrap_or(0);
        let is_file = self.addresses.not_of_file(page.clone()).is_empty();
        protection as i64 | if is_file { Request::OF_FILE } else { 0 }
    }

    /// This may be done with these addresses from now on.
    pub(super) fn protects(&mut self, range: &Range<u64>, protection: u32) {
        self.protections.iter_mut().for_each(|ranges| ranges.remove(range.clone()));
        if let Some(ranges) = self.protections.get_mut(protection as usize)
            && protection != 0
        {
            ranges.insert(range.clone());
        }
    }
}

impl Agent {
    pub(super) fn origin(&mut self) -> &mut Origin {
        self.origin.as_mut().expect("at the origin")
    }

    pub(super) fn requested_at_origin(&mut self, thread: u32, request: Request) {
        let invalid = -i64::from(libc::EINVAL);
        let no_memory = -i64::from(libc::ENOMEM);
        let there = -i64::from(libc::EEXIST);
        match request {
            Request::Map { bytes, .. } if !self.origin().may_have(bytes) => {
                self.answer(thread, no_memory);
            }
            Request::Map { bytes, protection, is_file, wish } => {
                match self.origin().addresses.map(bytes, wish) {
                    Some(start) => {
                        let range = start..start + bytes.next_multiple_of(PAGE);
                        self.open(thread, range, What::Protect(protection), is_file);
                    }
                    None => self.answer(thread, no_memory),
                }
            }
            Request::MapAt { start, bytes, protection, replaces, is_file } => {
                let range = match self.origin().addresses.fixed(start, bytes) {
                    Ok(range) => range,
                    Err(Refusal::Invalid) => return self.answer(thread, invalid),
                    Err(Refusal::None) if !replaces => return self.answer(thread, there),
                    Err(Refusal::None) => return self.answer(thread, no_memory),
                    Err(Refusal::Forbidden) => {
                        return self.answer(thread, -i64::from(libc::EPERM));
                    }
                };
                let pages = self.pages_of(&range);
                let new_bytes = self.origin().addresses.free_bytes(&range);
                if !self.may_end(&pages) || !self.origin().may_have(new_bytes) {
                    return self.answer(thread, no_memory);
                }
                let addresses = &mut self.origin().addresses;
                let what = match (addresses.is_free(&range), replaces) {
                    (true, _) => What::Protect(protection),
                    (false, true) => What::Renew(Some(protection)),
                    (false, false) => return self.answer(thread, there),
                };
                // Something of ours may stand there after all.
                if self.engine.memory.open(pages).is_err() {
                    return self.answer(thread, no_memory);
                }
                let addresses = &mut self.origin().addresses;
                addresses.map_at(range.clone());
                self.origin().attached.retain(|start, _| !range.contains(start));
                self.open(thread, range, what, is_file);
            }
            Request::Unmap { start, bytes } => match self.origin().addresses.range(start, bytes) {
                Some(range) => {
                    let pages = self.pages_of(&range);
                    if !self.may_end(&pages) {
                        return self.answer(thread, no_memory);
                    }
                    let origin = self.origin();
                    origin.addresses.unmap(range.clone());
                    origin.attached.retain(|start, _| !range.contains(start));
                    self.becomes(thread, What::Unmap, range, 0);
                }
                None => self.answer(thread, invalid),
            },
            Request::Discard { start, bytes } => {
                let addresses = &self.origin().addresses;
                match addresses.range(start, bytes) {
                    Some(range) => {
                        // Of a file it would be the file's again, not zeros: it stays.
                        let range = addresses.not_of_file(range);
                        let answer = (range.end - start) as i64;
                        self.becomes(thread, What::Renew(None), range, answer);
                    }
                    None => self.answer(thread, invalid),
                }
            }
            Request::Protect { start, bytes, protection } => {
                let addresses = &self.origin().addresses;
                match addresses.range(start, bytes).filter(|range| addresses.is_taken(range)) {
                    Some(range) => self.becomes(thread, What::Protect(protection), range, 0),
                    None if bytes == 0 => self.answer(thread, 0),
                    None => self.answer(thread, no_memory),
                }
            }
            Request::Lay { start, bytes, kind } => {
                match self.origin().addresses.range(start, bytes) {
                    Some(range) if self.has_few_laid(kind) => {
                        self.becomes(thread, What::Lay(kind), range, 0);
                    }
                    _ => self.answer(thread, no_memory),
                }
            }
            Request::Inherit { start, bytes, advice } => {
                let addresses = &mut self.origin().addresses;
                let done = match addresses.range(start, bytes) {
                    Some(range) => addresses.is_inherited(range, advice),
                    None => Err(libc::ENOMEM),
                };
                self.answer(thread, done.map_or_else(|errno| -i64::from(errno), |()| 0));
            }
            Request::Look(address) => {
                let answer = self.origin().looks(address);
                self.answer(thread, answer);
            }
            Request::Attached { start, bytes } => {
                self.origin().attached.insert(start, bytes);
                self.answer(thread, 0);
            }
            Request::Detached(start) => {
                let bytes = self.origin().attached.remove(&start);
                self.answer(thread, bytes.map_or(invalid, |bytes| bytes as i64));
            }
            Request::Text { descriptor, start, offset, bytes } => {
                self.mapped_file(thread, descriptor, start, offset, bytes);
            }
            Request::Lease { descriptor, start, offset, bytes } => {
                self.lease(thread, descriptor, start, offset, bytes);
            }
            Request::Name { start, bytes, offset, name } => {
                let at = self.desk.seat(thread).context().cast::<u8>();
                // SAFETY: what the thread has written there, and it waits.
                let name = unsafe { std::slice::from_raw_parts(at, name as usize) };
                self.named(start, bytes, offset, name);
                self.answer(thread, 0);
            }
            Request::HeapEnd => {
                let end = self.origin().addresses.heap_end();
                self.answer(thread, end as i64);
            }
            Request::Break(end) if !self.origin().may_have_heap(end) => {
                self.answer(thread, 0);
            }
            Request::Break(end) => match self.origin().addresses.set_heap_end(end) {
                Some((opened, closed)) if closed.is_empty() => {
                    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u32;
                    self.becomes(thread, What::Protect(protection), opened, 1);
                }
                Some((_, closed)) => self.becomes(thread, What::Unmap, closed, 1),
                None => self.answer(thread, 0),
            },
            Request::Place => {
                // SAFETY: its new thread's, which it has put there.
                let stack = unsafe { (*self.desk.seat(thread).context()).stack_pointer() };
                // Signals put their frames there.
                let has_shared_stack = shared::contains(stack.wrapping_sub(1));
                let wanted = if has_shared_stack { 0 } else { self.place_for(thread) };
                let free = self.free_slot();
                let origin = self.origin();
                let answer = match free {
                    Some(free) => {
                        origin.rooms[wanted].threads += 1;
                        // Until it is counted.
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
                let word = Word::Begin { thread: other, tid, clear_tid, robust: 0 };
                let node = seat.node.load(Relaxed);
                self.send(node, Frame::Word(word), body);
                // What it was told before, nobody heard.
                if let Some(&to) = self.origin().bound.get(&other) {
                    self.say(node, Word::Go { thread: other, node: to });
                }
                self.answer(thread, 0);
            }
            Request::Bind(other) => {
                self.is_bound(other);
                self.answer(thread, 0);
            }
            Request::Signal => self.hand_on(thread),
            Request::Move(node) => {
                self.answer(thread, 0);
                self.goes_on(thread, node);
            }
            Request::Done(result) => {
                if let Some(node) = self.origin().nodes[thread as usize] {
                    self.say(node, Word::Result { thread, result });
                }
                self.waits.is_answered(thread, self.now());
                let origin = self.origin();
                origin.at_work = origin.at_work.saturating_sub(1);
                self.desk.took(thread);
            }
            Request::Gone(status) => {
                let desk = self.desk;
                if self.origin().runs_here(thread) {
                    self.seen(|seen, _| seen.ends(desk, thread));
                }
                self.answer(thread, 0);
                self.vacate(thread);
                let origin = self.origin();
                origin.status = status;
                if origin.nodes.iter().all(Option::is_none) {
                    self.end(status, "");
                }
            }
            Request::End(status) => self.end(status, ""),
            Request::Fork => self.forks(thread),
            Request::Forked => self.has_forked(thread),
            Request::Call(_) => unreachable!("it is made here"),
            request => {
                let question = question(request).expect("the futex service's");
                let answer = self.asked(thread, question);
                self.answer(thread, answer);
            }
        }
    }

    /// A slot for a new thread; none if there are too many threads, or no memory for one more.
    fn free_slot(&mut self) -> Option<usize> {
        let nodes = &mut self.origin().nodes;
        let free = nodes.iter().position(Option::is_none).unwrap_or(nodes.len());
        if free == nodes.len() && free < THREADS_MAX {
            nodes.push(None);
        }
        (free < THREADS_MAX && self.desk.make(free as u32).is_ok()).then_some(free)
    }

    fn vacate(&mut self, thread: u32) {
        let origin = self.origin();
        origin.futexes.cancel(thread);
        origin.signalled.remove(&thread);
        origin.bound.remove(&thread);
        if let Some(node) = origin.nodes[thread as usize].take() {
            origin.rooms[node as usize].threads -= 1;
        }
        self.threads = self.origin().rooms[0].threads;
        self.is_over(thread);
    }

    pub(super) fn heard_at_origin(&mut self, from: NodeId, word: Word, body: &[u8]) {
        let is_theirs = |this: &Self, thread: u32| {
            let nodes = &this.origin.as_ref().expect("at the origin").nodes;
            nodes.get(thread as usize) == Some(&Some(from))
        };
        match word {
            Word::Call { thread, number, arguments } if is_theirs(self, thread) => {
                let seat = self.desk.seat(thread);
                if shadow::takes_context(&Call { number, arguments }) {
                    // SAFETY: its shadow waits, and does not use it.
                    if !unsafe { Context::set(seat.context(), body) } {
                        self.nonsense(from, "registers");
                    }
                }
                if number == shadow::TAKEN {
                    self.origin().signalled.remove(&thread);
                }
                seat.post(Call { number, arguments });
                self.origin().at_work += 1;
            }
            Word::Move { thread, node, clear_tid, robust } if is_theirs(self, thread) => {
                self.arrives(thread, node, [clear_tid, robust], from, body);
            }
            Word::Busy { busy } => self.busy(from, busy),
            Word::Waits => self.waits_much(),
            Word::Homes { thread } if is_theirs(self, thread) => self.homes(thread),
            Word::Spent { at, running, waited, stops, runnable } => {
                self.has_spent(from, Spent { at, running, waited, stops, runnable });
            }
            Word::Gone { thread, status } if is_theirs(self, thread) => {
                let number = shadow::END;
                let arguments = [status as u64, 0, 0, 0, 0, 0];
                self.desk.seat(thread).post(Call { number, arguments });
            }
            Word::Ask { thread, question } if is_theirs(self, thread) => {
                let answer = self.asked(thread, question);
                self.say(from, Word::Answer { thread, answer });
            }
            Word::Done { change } => self.done(from, change),
            Word::WantCopies { first, pages } => self.send_copies(from, first, pages),
            Word::Dropped { lease } => self.leases.has_dropped(lease),
            Word::Lost { node } if (1..self.names.len()).contains(&(node as usize)) => {
                self.lost(node, &String::from_utf8_lossy(body));
            }
            Word::WhatTime => self.say(from, Word::Time { times: clocks::times() }),
            Word::HasUsed => self.has_used(from, body),
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

    /// Addresses are mapped, where nothing is or over what there is; the answer is where.
    fn open(&mut self, thread: u32, range: Range<u64>, what: What, is_file: bool) {
        if is_file {
            self.origin().addresses.is_of_file(range.clone());
        }
        let start = range.start as i64;
        self.becomes(thread, what, range, start);
    }

    /// Changes what becomes of addresses; then the thread goes on.
    fn becomes(&mut self, thread: u32, what: What, range: Range<u64>, answer: i64) {
        let node = self.origin().nodes[thread as usize].unwrap_or(0);
        let pages = self.pages_of(&range);
        self.change(what, pages, node, Some((thread, answer)));
    }

    pub(super) fn pages_of(&self, range: &Range<u64>) -> Range<Page> {
        range.start / PAGE..range.end / PAGE
    }

    /// At the very beginning: what may be done with what was loaded.
    pub fn begin(&mut self, parts: &[Part], texts: &[Text], memory: Option<u64>) {
        self.pages.residency.limit_bytes = memory;
        self.want_counts();
        self.watch_waits();
        for node in 1..self.names.len() as NodeId {
            if self.wanted.is_some() {
                self.say(node, Word::See);
            }
            if let Some(bytes) = memory {
                self.say(node, Word::Limit { bytes });
            }
        }
        if self.wanted.is_some() {
            self.sees_from_now_on();
        }
        for part in parts {
            let range = part.start..part.start + part.bytes;
            if part.protection & libc::PROT_WRITE as u32 == 0 {
                self.origin().addresses.is_of_file(range.clone());
            }
            let pages = self.pages_of(&range);
            self.change(What::Protect(part.protection), pages, 0, None);
        }
        for text in texts {
            if let Ok(file) = std::fs::File::open(&text.path) {
                self.tell_text(text, &file);
            }
        }
    }
}
