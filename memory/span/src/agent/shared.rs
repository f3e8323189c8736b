//! Addresses at which another mapping stands than the segment's; all nodes know which these are.
//! Shared mappings are the kernel's at the origin, and threads elsewhere that touch them are sent
//! there, unless nobody can write them (see [`leases`](crate::leases)). Pages of private file
//! mappings that lie beyond the end of the file are an empty file's on every node, so the kernel
//! reports SIGBUS there, or EFAULT from a system call.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use coherence::message::{NodeId, Page};
use coherence::sequential::Event;
use node::driver::Driver as _;
use node::sequential::Replica as _;
use pager::{Access, PagerError};

use super::state::Agent;
use crate::addresses::PAGE;
use crate::frame::{Frame, Message};
use crate::leases::TOGETHER_MAX;
use crate::ranges::Ranges;
use crate::shared::{self, Overlay, RANGES_MAX};

/// Of a node.
impl Agent {
    /// From now on these pages are of this kind, which other mappings than the segment's show.
    pub(super) fn overlay(&mut self, pages: Range<Page>, kind: Overlay) -> Result<(), PagerError> {
        if kind == Overlay::Beyond {
            self.engine.memory.lay_end(pages.clone())?;
        }
        self.set_overlay(pages, kind, true);
        Ok(())
    }

    /// From now on the segment shows these pages.
    pub(super) fn remove_overlays(&mut self, pages: &Range<Page>) {
        for kind in [Overlay::Shared, Overlay::Beyond] {
            if self.overlaid(kind).met(pages).next().is_some() {
                self.set_overlay(pages.clone(), kind, false);
            }
        }
    }

    fn overlaid(&mut self, kind: Overlay) -> &mut Ranges {
        match kind {
            Overlay::Shared => &mut self.shared,
            Overlay::Beyond => &mut self.beyond,
        }
    }

    fn set_overlay(&mut self, pages: Range<Page>, kind: Overlay, are: bool) {
        let laid = self.overlaid(kind);
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
            Overlay::Shared => shared::are(&all),
            Overlay::Beyond => shared::are_beyond(&all),
        }
    }

    /// Whether there is room for more.
    pub(super) fn has_overlay_room(&mut self, kind: Overlay) -> bool {
        self.overlaid(kind).count() < RANGES_MAX / 2
    }

    /// Whether these can be something else: not, if too many were left.
    pub(super) fn may_end(&mut self, pages: &Range<Page>) -> bool {
        let is_cut = |it: Range<Page>| it.start < pages.start && pages.end < it.end;
        let mut kinds = [Overlay::Shared, Overlay::Beyond].into_iter();
        kinds.all(|kind| self.has_overlay_room(kind) || !self.overlaid(kind).met(pages).any(is_cut))
    }

    /// Whether other mappings than the segment's show this page.
    pub(super) fn is_overlaid(&self, page: Page) -> bool {
        let page = page..page + 1;
        self.shared.covers(&page) || self.beyond.covers(&page)
    }

    /// A thread that is stopped at such a page goes to the origin, if there cannot be a copy of it
    /// here; whether it is one.
    pub(super) fn send_to_origin(&mut self, fault: &pager::Fault) -> bool {
        if !self.shared.covers(&(fault.page..fault.page + 1)) {
            return false;
        }
        if self.wants_copy(fault.page) {
            return true;
        }
        let now = self.now();
        self.resumed(fault.page, now);
        let table = self.table;
        if let Some(slot) = table.slots().find(|it| it.live_tid() == fault.thread.cast_signed()) {
            self.move_own_thread(slot.index, 0);
        }
        true
    }

    /// Where other mappings stood there is the segment again. Shared ones stand at the origin only.
    pub(super) fn restore_segment(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        let mut met: Vec<Range<Page>> = self.beyond.met(&pages).collect();
        if self.origin.is_some() {
            met.extend(self.shared.met(&pages));
        }
        met.into_iter().try_for_each(|range| {
            self.engine.memory.restore(range.start.max(pages.start)..range.end.min(pages.end))
        })
    }
}

/// Of the origin: leases on files that are mapped shared and for reading.
impl Agent {
    /// A thread is about to map a file so: `bytes` of it from `offset` on.
    pub(super) fn lease(
        &mut self,
        thread: u32,
        descriptor: i32,
        start: u64,
        offset: u64,
        bytes: u64,
    ) {
        if self.names.len() > 1 {
            // The program's descriptors are not the agent's.
            let tid = self.table.slot(thread).tid.load(Ordering::Relaxed);
            let name = PathBuf::from(format!("/proc/self/task/{tid}/fd/{descriptor}"));
            self.leases.add(&name, start / PAGE, offset, bytes);
        }
        self.answer(thread, 0);
    }

    /// Shared mappings are there from now on: other nodes may have copies of those with a lease.
    pub(super) fn offer_copies(&mut self, pages: &Range<Page>) {
        for range in self.leases.offer(pages) {
            self.notify_others(Message::Lease {
                first: range.start,
                pages: range.end - range.start,
            });
        }
    }

    fn notify_others(&mut self, message: Message) {
        (1..self.names.len() as NodeId).for_each(|node| self.notify(node, message));
    }

    /// A node wants copies of these pages.
    pub(super) fn send_copies(&mut self, to: NodeId, first: Page, pages: u64) {
        let end = first.checked_add(pages).filter(|_| (1..=TOGETHER_MAX).contains(&pages));
        let Some(end) = end else { self.violation(to, "pages of a file") };
        match self.leases.read(&(first..end)) {
            Some((_, Ok(body))) => {
                self.send(to, Frame::Word(Message::Copies { first, pages }), body)
            }
            // Who reads it at the origin gets the signal for that.
            Some((lease, Err(_))) => self.recall(lease),
            // The node has been told that it may have none.
            None => {}
        }
    }

    /// Looks which leases the kernel wants back; whether it has said anything.
    pub(super) fn look_at_leases(&mut self, now: u64) -> bool {
        let Some(wanted) = self.leases.wanted_back(now) else { return false };
        wanted.into_iter().for_each(|lease| self.recall(lease));
        true
    }

    /// All nodes are to drop their copies; then the lease ends.
    fn recall(&mut self, lease: u64) {
        for range in self.leases.recall(lease, self.names.len() - 1) {
            let (first, pages) = (range.start, range.end - range.start);
            self.notify_others(Message::Recall { lease, first, pages });
        }
    }
}

/// Of a node that is not the origin: copies of pages of leased files.
impl Agent {
    /// These pages are about to be something else: unmapped, or mapped anew. (The origin's leases
    /// on them end.)
    pub(super) fn end_leases(&mut self, pages: &Range<Page>, are_unmapped: bool) {
        self.leases.end(pages, are_unmapped);
        if !self.copies.end(pages).is_empty() {
            self.tell_threads_of_leases();
        }
    }

    fn tell_threads_of_leases(&self) {
        let leased = self.copies.leased.iter();
        let all: Vec<Range<u64>> = leased.map(|it| it.start * PAGE..it.end * PAGE).collect();
        shared::are_leased(&all);
    }

    /// The origin has a lease on the file of these pages.
    pub(super) fn set_leased(&mut self, first: Page, pages: u64) {
        let range = self.known(first, pages);
        // Before Linux 6.4 a page cannot be given for reading only.
        if self.engine.memory.can_allow_read() {
            self.copies.leased.insert(range);
            self.tell_threads_of_leases();
        }
    }

    fn known(&mut self, first: Page, pages: u64) -> Range<Page> {
        match first.checked_add(pages).filter(|&end| end <= self.engine.memory.pages()) {
            Some(end) => first..end,
            None => self.violation(0, "pages of a file that there are not"),
        }
    }

    /// A thread is stopped at a page of a leased file; whether it is one.
    fn wants_copy(&mut self, page: Page) -> bool {
        if !self.copies.has(page) {
            return false;
        }
        if self.engine.memory.access(page) > Access::None {
            // It has come since.
            self.resumed(page, self.now());
            if let Err(error) = self.engine.memory.wake(page) {
                self.end(1, &error.to_string());
            }
        } else {
            let region = &self.engine.memory;
            let is_here = |page| region.access(page) > Access::None;
            if let Some(wanted) = self.copies.ask(page, is_here) {
                let (first, pages) = (wanted.start, wanted.end - wanted.start);
                self.notify(0, Message::FetchCopies { first, pages });
            }
        }
        true
    }

    /// The origin sends copies.
    pub(super) fn take_copies(&mut self, first: Page, pages: u64, body: &[u8]) {
        let range = self.known(first, pages);
        if body.len() as u64 != pages * PAGE {
            self.violation(0, "copies of another size");
        }
        self.copies.asked.remove(range.clone());
        let now = self.now();
        for (page, bytes) in range.zip(body.chunks_exact(PAGE as usize)) {
            if !self.copies.has(page) || self.engine.memory.access(page) > Access::None {
                continue;
            }
            self.copies.are_here = true;
            if let Err(error) = self.engine.memory.bring(page..page + 1, Some(bytes), Access::Read)
            {
                self.end(1, &error.to_string());
            }
            self.resumed(page, now);
        }
    }

    /// The origin gives a lease back: nothing of these pages stays here.
    pub(super) fn recall_copies(&mut self, lease: u64, first: Page, pages: u64) {
        let range = self.known(first, pages);
        let here = self.copies.end(&range);
        self.tell_threads_of_leases();
        let done = here.into_iter().try_for_each(|part| self.engine.memory.discard_all(part));
        // Who is stopped there goes to the origin.
        let now = self.now();
        self.waits.all_go_on(range.clone(), now);
        self.with_counts(|seen, now| seen.all_go_on(&range, now));
        if let Err(error) = done.and_then(|()| self.engine.memory.wake_all(range)) {
            self.end(1, &error.to_string());
        }
        self.notify(0, Message::Dropped { lease });
    }

    /// Gives the memory of all copies back to the system: they are sent again when they are used.
    pub(super) fn discard_copies(&mut self) -> Result<(), PagerError> {
        if std::mem::take(&mut self.copies.are_here) {
            let all: Vec<Range<Page>> = self.copies.leased.iter().collect();
            all.into_iter().try_for_each(|range| self.engine.memory.discard_all(range))?;
        }
        Ok(())
    }
}
