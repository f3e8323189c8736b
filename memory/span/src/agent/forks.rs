//! The copy of the program's memory for a forked child, made page by page.
//!
//! The copy contains all that the forking thread has seen: a page is copied when it is at the
//! origin or when it arrives, after all earlier writes. Each page is copied as it arrives, since it
//! may leave at once. Other threads run meanwhile, and wait no longer than for one more reader.
//! Each node reports the pages that it was the first to use.
//!
//! One copy is made at a time; otherwise a child would inherit another child's copy.

use std::ops::Range;

use coherence::message::{NodeId, Page};
use coherence::sequential::Event;
use node::sequential::Replica as _;
use pager::{PagerError, Region};

use super::fork_queue::Fork;
use super::state::Agent;
use crate::addresses::PAGE;
use crate::frame::{Frame, Message};
use crate::image::Part;
use crate::ranges::Ranges;
use crate::snapshot::{self, Snapshot};

/// The most pages that are requested at a time.
const ASKED: usize = 64;
/// Pages that are copied in one turn of the event loop.
const TOGETHER: usize = 64;

/// On every node.
impl Agent {
    /// Returns the pages that were ever used, as far as this node knows, and perhaps others.
    fn touched(&mut self) -> Vec<Range<Page>> {
        let all = self.engine.memory.pages();
        let mut used = Ranges::default();
        self.engine.memory.known().for_each(|pages| used.insert(pages));
        if !self.engine.memory.is_watched() {
            match self.engine.memory.held() {
                Ok(held) => held.into_iter().for_each(|pages| used.insert(pages)),
                Err(error) => self.end(1, &error.to_string()),
            }
        }
        let mut page = self.pages.node.next_touched(0..all);
        while page < all {
            let first = page;
            while page < all && self.pages.node.next_touched(page..all) == page {
                page += 1;
            }
            used.insert(first..page);
            page = self.pages.node.next_touched(page..all);
        }
        used.iter().collect()
    }

    /// Sends those pages to the origin.
    pub(super) fn send_touched(&mut self) {
        let body = postcard::to_allocvec(&self.touched()).expect("it has a length");
        self.send(0, Frame::Word(Message::Touched), body);
    }
}

/// At the origin.
impl Agent {
    /// Queues a thread that forks.
    pub(super) fn request_fork(&mut self, thread: u32) {
        self.origin().forks.waiting.push_back(thread);
        self.begin_copy();
    }

    /// Frees the copy: the child has been made.
    pub(super) fn finish_fork(&mut self, thread: u32) {
        if let Some(given) = self.origin().forks.given.take() {
            // SAFETY: `hand_out` has made the pointer from a box, and its thread has returned it.
            drop(unsafe { Box::from_raw(given) });
        }
        self.answer(thread, 0);
        self.begin_copy();
    }

    fn begin_copy(&mut self) {
        let forks = &mut self.origin().forks;
        if forks.is_under_way() {
            return;
        }
        for (thread, request) in std::mem::take(&mut forks.delayed) {
            self.serve_request(thread, request);
        }
        let origin = self.origin();
        let Some(thread) = origin.forks.waiting.pop_front() else { return };
        if !snapshot::can_be() {
            self.answer(thread, -i64::from(libc::ENOSYS));
            return self.begin_copy();
        }
        self.withdraw_memory();
        let mut used = Ranges::default();
        self.touched().into_iter().for_each(|pages| used.insert(pages));
        let nodes = 1..self.names.len() as NodeId;
        let by: Vec<NodeId> = nodes.filter(|&node| self.origin().is_used[node as usize]).collect();
        by.iter().for_each(|&node| self.notify(node, Message::QueryTouched));
        let (snapshot, rest, asked) = (None, Vec::new(), Vec::new());
        self.origin().forks.now = Some(Fork { thread, snapshot, by, used, rest, asked });
        self.prepare_copy();
    }

    /// Takes the pages that a node reports.
    pub(super) fn touched_by(&mut self, from: NodeId, body: &[u8]) {
        let all = self.engine.memory.pages();
        let pages: Option<Vec<Range<Page>>> = postcard::from_bytes(body).ok();
        let pages = pages.filter(|pages| pages.iter().all(|pages| pages.end <= all));
        let fork = self.origin.as_mut().and_then(|origin| origin.forks.now.as_mut());
        let (Some(pages), Some(fork)) = (pages, fork) else {
            self.violation(from, "pages that there are not");
        };
        pages.into_iter().for_each(|pages| fork.used.insert(pages));
        fork.by.retain(|node| *node != from);
        self.prepare_copy();
    }

    fn prepare_copy(&mut self) {
        let origin = self.origin();
        let map = origin.memory_map();
        let Some(fork) = origin.forks.now.as_mut().filter(|fork| fork.by.is_empty()) else {
            return;
        };
        // Nodes may still report unmapped pages.
        let taken = origin.addresses.taken();
        let mut used = Ranges::default();
        for pages in fork.used.iter() {
            for range in taken.met(&(pages.start * PAGE..pages.end * PAGE)) {
                let range = range.start / PAGE..range.end / PAGE;
                used.insert(range.start.max(pages.start)..range.end.min(pages.end));
            }
        }
        match Snapshot::new(&used, map) {
            Ok(snapshot) => {
                fork.snapshot = Some(Box::new(snapshot));
                fork.rest = used.iter().collect();
                fork.rest.reverse();
            }
            Err(_) => {
                let thread = fork.thread;
                origin.forks.now = None;
                self.answer(thread, -i64::from(libc::ENOMEM));
                self.begin_copy();
            }
        }
    }

    /// Copies requested pages that have arrived; they may leave at once.
    pub(super) fn copy_those_asked(&mut self, pages: Range<Page>) {
        let fork = self.origin.as_mut().and_then(|origin| origin.forks.now.as_mut());
        let Some(fork) = fork else { return };
        let (region, Some(snapshot)) = (&self.engine.memory, &mut fork.snapshot) else { return };
        let mut done = Ok(());
        fork.asked.retain(|page| {
            let is_here = pages.contains(page);
            if is_here && let Err(error) = copy(region, snapshot, *page) {
                done = Err(error);
            }
            !is_here
        });
        if let Err(error) = done {
            self.end(1, &error.to_string());
        }
    }

    /// Continues the copy. Returns true if there was something to do.
    pub(super) fn tend_copy(&mut self) -> bool {
        let Some(origin) = &mut self.origin else { return false };
        let Some(mut fork) = origin.forks.now.take_if(|fork| fork.snapshot.is_some()) else {
            return false;
        };
        // Some requested pages have arrived with others; some must be requested again.
        let again = std::mem::take(&mut fork.asked);
        let mut looked = again.len();
        let mut found = false;
        again.into_iter().for_each(|page| found |= self.copy_page(&mut fork, page));
        while looked < TOGETHER && fork.asked.len() < ASKED {
            let Some(pages) = fork.rest.last_mut() else { break };
            match pages.next() {
                Some(page) => {
                    looked += 1;
                    self.copy_page(&mut fork, page);
                    found = true;
                }
                None => drop(fork.rest.pop()),
            }
        }
        match fork.rest.is_empty() && fork.asked.is_empty() {
            true => {
                self.hand_out(fork);
                found = true;
            }
            false => self.origin().forks.now = Some(fork),
        }
        found
    }

    /// Copies a page, or requests it. Returns true if no request for it is under way.
    fn copy_page(&mut self, fork: &mut Fork, page: Page) -> bool {
        let inheritance = self.origin().addresses.inheritance();
        if inheritance.is_wiped(page * PAGE) || self.is_overlaid(page) {
            return true;
        }
        // Another thread has unmapped it since the copy began.
        if !self.engine.memory.is_open(page) {
            return true;
        }
        if self.pages.node.can_be_read(page) {
            let snapshot = fork.snapshot.as_mut().expect("it is made");
            if let Err(error) = copy(&self.engine.memory, snapshot, page) {
                self.end(1, &error.to_string());
            }
            return true;
        }
        let waits = self.pages.node.state(page).is_some_and(|state| state.waits());
        // A closed page will be zeros.
        if !waits && self.pages.closed.contains(page) {
            return true;
        }
        fork.asked.push(page);
        if !waits {
            let reads = self.engine.memory.can_allow_read();
            self.step(if reads { Event::Read(page) } else { Event::Write(page) });
        }
        !waits
    }

    /// Hands the complete copy to its thread.
    fn hand_out(&mut self, fork: Fork) {
        let Fork { thread, snapshot, .. } = fork;
        let mut snapshot = snapshot.expect("it is made");
        let origin = self.origin.as_ref().expect("at the origin");
        let inheritance = origin.addresses.inheritance();
        // The kernel copies other mappings to the child.
        let mut closed = origin.addresses.taken();
        let laid = self.laid().into_iter();
        let laid = laid.map(|it| it.start * PAGE..it.end * PAGE);
        laid.chain(inheritance.missing()).for_each(|it| closed.remove(it));
        let own: Vec<Range<u64>> = closed.iter().collect();
        let clip = |it: Range<u64>, own: &Range<u64>| it.start.max(own.start)..it.end.min(own.end);
        let wiped = inheritance.wiped().flat_map(|it| {
            own.iter().map(move |own| clip(it.clone(), own)).filter(|it| !it.is_empty())
        });
        snapshot.wiped = wiped.collect();
        let mut parts = Vec::new();
        for (protection, ranges) in (0..).zip(&origin.protections) {
            for own in &own {
                for range in ranges.met(own) {
                    let Range { start, end } = clip(range, own);
                    closed.remove(start..end);
                    parts.push(Part { start, bytes: end - start, protection });
                }
            }
        }
        let none = |Range { start, end }| Part { start, bytes: end - start, protection: 0 };
        parts.extend(closed.iter().map(none));
        parts.sort_by_key(|part| part.start);
        snapshot.is_of(parts);
        let given = Box::into_raw(snapshot);
        self.origin().forks.given = Some(given);
        self.answer(thread, given as i64);
    }
}

/// Copies a page of this node. A page without memory is zeros.
fn copy(region: &Region, snapshot: &mut Snapshot, page: Page) -> Result<(), PagerError> {
    match region.has(page) {
        true => region.read_into(page..page + 1, snapshot.page(page)),
        false => Ok(()),
    }
}
