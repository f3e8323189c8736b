//! Addresses at which another mapping stands than the segment's; all nodes know which these are.
//! Shared mappings are the kernel's at the origin, and threads elsewhere that touch them are sent
//! there. Pages of private file mappings that lie beyond the end of the file are an empty file's
//! on every node, so the kernel reports SIGBUS there, or EFAULT from a system call.

use std::ops::Range;

use coherence::message::Page;
use coherence::sequential::Event;
use node::driver::Driver as _;
use node::sequential::Replica as _;
use pager::PagerError;

use super::Agent;
use crate::addresses::PAGE;
use crate::frame::Laid;
use crate::ranges::Ranges;
use crate::shared::{self, RANGES_MAX};

/// Of a node.
impl Agent {
    /// From now on these pages are of this kind, which other mappings than the segment's show.
    pub(super) fn lay(&mut self, pages: Range<Page>, kind: Laid) -> Result<(), PagerError> {
        if kind == Laid::Beyond {
            self.engine.memory.lay_end(pages.clone())?;
        }
        self.lays(pages, kind, true);
        Ok(())
    }

    /// From now on the segment shows these pages.
    pub(super) fn is_laid_no_more(&mut self, pages: &Range<Page>) {
        for kind in [Laid::Shared, Laid::Beyond] {
            if self.laid(kind).met(pages).next().is_some() {
                self.lays(pages.clone(), kind, false);
            }
        }
    }

    fn laid(&mut self, kind: Laid) -> &mut Ranges {
        match kind {
            Laid::Shared => &mut self.shared,
            Laid::Beyond => &mut self.beyond,
        }
    }

    fn lays(&mut self, pages: Range<Page>, kind: Laid, are: bool) {
        let laid = self.laid(kind);
        // Others change only where they touch these.
        let near = pages.start.saturating_sub(1)..pages.end + 1;
        let before: Vec<Range<Page>> = laid.met(&near).collect();
        match are {
            true => laid.insert(pages),
            false => laid.remove(pages),
        }
        let now: Vec<Range<Page>> = laid.met(&near).collect();
        let all: Vec<Range<Page>> = laid.iter().collect();
        // Nothing of them is fetched along with others.
        for gone in before.iter().filter(|range| !now.contains(range)) {
            self.step(Event::Open(gone.clone()));
        }
        for new in now.iter().filter(|range| !before.contains(range)) {
            self.step(Event::Close(new.clone()));
        }
        let all: Vec<Range<u64>> = all.iter().map(|it| it.start * PAGE..it.end * PAGE).collect();
        match kind {
            Laid::Shared => shared::are(&all),
            Laid::Beyond => shared::are_beyond(&all),
        }
    }

    /// Whether there is room for more.
    pub(super) fn has_few_laid(&mut self, kind: Laid) -> bool {
        self.laid(kind).count() < RANGES_MAX / 2
    }

    /// Whether these can be something else: not, if too many were left.
    pub(super) fn may_end(&mut self, pages: &Range<Page>) -> bool {
        let is_cut = |it: Range<Page>| it.start < pages.start && pages.end < it.end;
        let mut kinds = [Laid::Shared, Laid::Beyond].into_iter();
        kinds.all(|kind| self.has_few_laid(kind) || !self.laid(kind).met(pages).any(is_cut))
    }

    /// Whether other mappings than the segment's show this page.
    pub(super) fn is_laid(&self, page: Page) -> bool {
        let page = page..page + 1;
        self.shared.covers(&page) || self.beyond.covers(&page)
    }

    /// A thread that is stopped at such a page goes to the origin; whether it is one.
    pub(super) fn sends_home(&mut self, fault: &pager::Fault) -> bool {
        if !self.shared.covers(&(fault.page..fault.page + 1)) {
            return false;
        }
        let now = self.now();
        self.resumed(fault.page, now);
        let desk = self.desk;
        if let Some(seat) = desk.seats().find(|it| it.kernel() == fault.thread.cast_signed()) {
            self.goes(seat.index, 0);
        }
        true
    }

    /// Where other mappings stood there is the segment again. Shared ones stand at the origin only.
    pub(super) fn end_laid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        let mut met: Vec<Range<Page>> = self.beyond.met(&pages).collect();
        if self.origin.is_some() {
            met.extend(self.shared.met(&pages));
        }
        met.into_iter().try_for_each(|range| {
            self.engine.memory.restore(range.start.max(pages.start)..range.end.min(pages.end))
        })
    }
}
