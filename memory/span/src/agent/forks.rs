//! A child that is forked gets a copy of the program's memory, which is made here, page by page.
//!
//! What the thread that forks has seen is in it: a page is read when it is here, or when it comes,
//! and by then it has all that came before. Pages may go away again at once, so none is waited for
//! twice. Other threads go on meanwhile, and are stopped at no page longer than if one more thread
//! read all of them. Which pages were used at all every node says of those that it has had first.
//!
//! One child at a time: otherwise one would inherit another's copy.

use std::collections::VecDeque;
use std::ops::Range;

use coherence::message::{NodeId, Page};
use coherence::sequential::Event;
use pager::Region;

use super::Agent;
use crate::addresses::PAGE;
use crate::frame::{Frame, Word};
use crate::image::Part;
use crate::ranges::Ranges;
use crate::snapshot::{self, Snapshot};

/// Pages that are asked for at once.
const ASKED: usize = 64;
/// Pages that are copied before others are looked after.
const TOGETHER: usize = 64;

/// Threads that fork.
#[derive(Default)]
pub struct Forks {
    waiting: VecDeque<u32>,
    now: Option<Fork>,
    /// With the thread that forks.
    given: Option<*mut Snapshot>,
}

/// A copy that is made.
struct Fork {
    thread: u32,
    snapshot: Box<Snapshot>,
    /// Who has not said yet which pages were used; and which were.
    by: Vec<NodeId>,
    used: Ranges,
    /// Those that have not been looked at, the last first; those that are to come.
    rest: Vec<Range<Page>>,
    asked: Vec<Page>,
}

/// Of a node.
impl Agent {
    /// Pages that have been used, so far as this node knows; and more.
    fn used(&self) -> Vec<Range<Page>> {
        let all = self.region.pages();
        let mut used: Vec<Range<Page>> = Vec::new();
        let mut touched = self.node.next_touched(0..all);
        for page in 0..all {
            if page == touched {
                touched = self.node.next_touched(page + 1..all);
            } else if !self.region.has(page) {
                continue;
            }
            match used.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => used.push(page..page + 1),
            }
        }
        used
    }

    /// To the origin: which those are.
    pub(super) fn tell_used(&mut self) {
        let body = postcard::to_allocvec(&self.used()).expect("it has a length");
        self.send(0, Frame::Word(Word::HasUsed), body);
    }
}

/// Of the origin.
impl Agent {
    /// A thread wants a copy for a child.
    pub(super) fn forks(&mut self, thread: u32) {
        self.origin().forks.waiting.push_back(thread);
        self.begin_copy();
    }

    /// The child has it.
    pub(super) fn has_forked(&mut self, thread: u32) {
        if let Some(given) = self.origin().forks.given.take() {
            // SAFETY: it was given away as a box, and has come back.
            drop(unsafe { Box::from_raw(given) });
        }
        self.answer(thread, 0);
        self.begin_copy();
    }

    fn begin_copy(&mut self) {
        let origin = self.origin();
        if origin.forks.now.is_some() || origin.forks.given.is_some() {
            return;
        }
        let Some(thread) = origin.forks.waiting.pop_front() else { return };
        let map = origin.memory_map();
        let end = origin.addresses.end();
        let place = origin.start..end.min(origin.start + self.region.pages() * PAGE);
        let snapshot = match snapshot::can_be() {
            true => Snapshot::new(place, map).map_err(|_| libc::ENOMEM),
            false => Err(libc::ENOSYS),
        };
        match snapshot {
            Ok(snapshot) => {
                let mut used = Ranges::default();
                self.used().into_iter().for_each(|pages| used.insert(pages));
                let nodes = 1..self.names.len() as NodeId;
                let by: Vec<NodeId> =
                    nodes.filter(|&node| self.origin().is_used[node as usize]).collect();
                by.iter().for_each(|&node| self.say(node, Word::Used));
                let (snapshot, rest, asked) = (Box::new(snapshot), Vec::new(), Vec::new());
                let fork = Fork { thread, snapshot, by, used, rest, asked };
                self.origin().forks.now = Some(fork);
                self.has_used_all();
            }
            Err(errno) => {
                self.answer(thread, -i64::from(errno));
                self.begin_copy();
            }
        }
    }

    /// A node says which pages were used.
    pub(super) fn has_used(&mut self, from: NodeId, body: &[u8]) {
        let all = self.region.pages();
        let pages: Option<Vec<Range<Page>>> = postcard::from_bytes(body).ok();
        let pages = pages.filter(|pages| pages.iter().all(|pages| pages.end <= all));
        let fork = self.origin.as_mut().and_then(|origin| origin.forks.now.as_mut());
        let (Some(pages), Some(fork)) = (pages, fork) else {
            self.nonsense(from, "pages that there are not");
        };
        pages.into_iter().for_each(|pages| fork.used.insert(pages));
        fork.by.retain(|node| *node != from);
        self.has_used_all();
    }

    fn has_used_all(&mut self) {
        let fork = self.origin().forks.now.as_mut().filter(|fork| fork.by.is_empty());
        if let Some(fork) = fork {
            let pages = &fork.snapshot.place;
            let all = 0..(pages.end - pages.start) / PAGE;
            fork.used.remove(all.end..u64::MAX);
            fork.rest = fork.used.iter().collect();
            fork.rest.reverse();
        }
    }

    /// Pages are here: of those that were asked for some may go again at once.
    pub(super) fn copy_those_asked(&mut self, pages: Range<Page>) {
        let fork = self.origin.as_mut().and_then(|origin| origin.forks.now.as_mut());
        let Some(fork) = fork else { return };
        let (region, snapshot) = (&self.region, &mut fork.snapshot);
        fork.asked.retain(|page| {
            let is_here = pages.contains(page);
            if is_here {
                copy(region, snapshot, *page);
            }
            !is_here
        });
    }

    /// Goes on with the copy; whether there was something to do.
    pub(super) fn copy(&mut self) -> bool {
        let Some(origin) = &mut self.origin else { return false };
        let Some(mut fork) = origin.forks.now.take_if(|fork| fork.by.is_empty()) else {
            return false;
        };
        // Some have come along with others, and some have not, against what was hoped.
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
                self.give(fork);
                found = true;
            }
            false => self.origin().forks.now = Some(fork),
        }
        found
    }

    /// Copies a page, or asks for it; whether it did not wait for it.
    fn copy_page(&mut self, fork: &mut Fork, page: Page) -> bool {
        let origin = self.origin();
        let address = origin.start + page * PAGE;
        if origin.addresses.inheritance().is_wiped(address) || self.is_laid(page) {
            return true;
        }
        if self.node.can_be_read(page) {
            copy(&self.region, &mut fork.snapshot, page);
            return true;
        }
        let waits = self.node.state(page).is_some_and(|state| state.waits());
        // Those that are closed will be zeros.
        if !waits && self.is_closed(page) {
            return true;
        }
        fork.asked.push(page);
        if !waits {
            let reads = self.region.can_allow_read();
            self.step(if reads { Event::Read(page) } else { Event::Write(page) }, None);
        }
        !waits
    }

    /// The copy is whole.
    fn give(&mut self, fork: Fork) {
        let Fork { thread, mut snapshot, .. } = fork;
        let origin = self.origin();
        let place = snapshot.place.clone();
        // There may be more by now, behind it.
        let clip = |it: Range<u64>| it.start..it.end.min(place.end);
        let holes = origin.addresses.holes().map(clip);
        let inheritance = origin.addresses.inheritance();
        let holes = holes.chain(inheritance.missing().map(clip));
        snapshot.holes = holes.filter(|hole| !hole.is_empty()).collect();
        snapshot.wiped = inheritance.wiped().map(clip).filter(|it| !it.is_empty()).collect();
        let mut closed = Ranges::default();
        closed.insert(place.clone());
        snapshot.holes.iter().for_each(|hole| closed.remove(hole.clone()));
        let read_write = (libc::PROT_READ | libc::PROT_WRITE) as u32;
        let mut parts = Vec::new();
        for (protection, ranges) in (0..).zip(&origin.protections) {
            let mut ranges = ranges.clone();
            snapshot.holes.iter().for_each(|hole| ranges.remove(hole.clone()));
            for range in ranges.iter().map(clip).filter(|range| !range.is_empty()) {
                closed.remove(range.clone());
                if protection != read_write {
                    let Range { start, end } = range;
                    parts.push(Part { start, bytes: end - start, protection });
                }
            }
        }
        let none = |Range { start, end }| Part { start, bytes: end - start, protection: 0 };
        parts.extend(closed.iter().map(none));
        snapshot.parts = parts;
        // A child inherits what is the kernel's.
        let mut private = Ranges::default();
        private.insert(place.clone());
        let at = |page: Page| place.start + page * PAGE;
        let laid = self.shared.iter().chain(self.beyond.iter());
        laid.for_each(|pages| private.remove(at(pages.start)..at(pages.end)));
        snapshot.private = private.iter().collect();
        let given = Box::into_raw(snapshot);
        self.origin().forks.given = Some(given);
        self.answer(thread, given as i64);
    }
}

/// Copies a page that is here. What is not in memory is zeros.
fn copy(region: &Region, snapshot: &mut Snapshot, page: Page) {
    if region.has(page) {
        region.read(page, snapshot.page(page));
    }
}
