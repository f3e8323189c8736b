//! Shared mappings: all nodes know which they are, at the origin they are the kernel's, and threads
//! elsewhere that touch them are sent there.

use std::ops::Range;

use coherence::message::Page;
use coherence::sequential::Event;
use pager::PagerError;

use super::Agent;
use crate::addresses::PAGE;
use crate::desk::THREADS_MAX;
use crate::shared::{self, RANGES_MAX};

/// Of a node.
impl Agent {
    /// From now on these pages are such memory, or are not.
    pub(super) fn share(&mut self, pages: Range<Page>, are: bool) {
        let before: Vec<Range<Page>> = self.shared.iter().collect();
        match are {
            true => self.shared.insert(pages),
            false => self.shared.remove(pages),
        }
        let now: Vec<Range<Page>> = self.shared.iter().collect();
        // Nothing of them is fetched along with others.
        for gone in before.iter().filter(|range| !now.contains(range)) {
            self.step(Event::Open(gone.clone()), None);
        }
        for new in now.iter().filter(|range| !before.contains(range)) {
            self.step(Event::Close(new.clone()), None);
        }
        let start = self.region.place().start as u64;
        let at = |page: Page| start + page * PAGE;
        let all: Vec<Range<u64>> = now.iter().map(|it| at(it.start)..at(it.end)).collect();
        shared::are(&all);
    }

    /// Whether there is room for more.
    pub(super) fn has_few_shared(&self) -> bool {
        self.shared.iter().count() < RANGES_MAX / 2
    }

    /// Whether these can be something else: not, if too many were left.
    pub(super) fn may_end(&self, pages: &Range<Page>) -> bool {
        let is_cut = |it: Range<Page>| it.start < pages.start && pages.end < it.end;
        self.has_few_shared() || !self.shared.met(pages).any(is_cut)
    }

    /// A thread that is stopped at such a page goes to the origin; whether it is one.
    pub(super) fn sends_home(&mut self, fault: &pager::Fault) -> bool {
        if !self.shared.covers(&(fault.page..fault.page + 1)) {
            return false;
        }
        let now = self.now();
        self.nobody_stops_at(fault.page, now);
        let is = |seat: u32| self.desk.seat(seat).kernel() == fault.thread.cast_signed();
        if let Some(thread) = (0..THREADS_MAX as u32).find(|&seat| is(seat)) {
            self.goes(thread, 0);
        }
        true
    }

    /// At the origin: where the kernel's mappings stood there is the segment again.
    pub(super) fn end_shared(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        if self.origin.is_none() {
            return Ok(());
        }
        let met: Vec<Range<Page>> = self.shared.met(&pages).collect();
        met.into_iter().try_for_each(|range| {
            self.region.restore(range.start.max(pages.start)..range.end.min(pages.end))
        })
    }
}
