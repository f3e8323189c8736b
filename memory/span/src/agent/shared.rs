//! Addresses that show another mapping than the segment. All nodes know them.
//!
//! Shared mappings exist at the origin. A thread of another node that touches one moves there,
//! unless the mapping cannot be written (see [`leases`](crate::leases)). Pages of private file
//! mappings beyond the end of the file show an empty file on every node, so the kernel raises
//! SIGBUS there, or returns EFAULT.

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
use crate::range_table::RANGES_MAX;
use crate::ranges::Ranges;
use crate::shared::{self, Overlay};

/// On every node.
impl Agent {
    /// Makes these pages show another mapping.
    pub(super) fn overlay(&mut self, pages: Range<Page>, kind: Overlay) -> Result<(), PagerError> {
        match kind {
            Overlay::Beyond => self.engine.memory.lay_end(pages.clone())?,
            Overlay::Text if self.origin.is_none() => self.copies.leased.insert(pages.clone()),
            _ => {}
        }
        self.set_overlay(pages, kind, true);
        Ok(())
    }

    /// Makes these pages show the segment again.
    pub(super) fn remove_overlays(&mut self, pages: &Range<Page>) {
        for kind in [Overlay::Shared, Overlay::Beyond, Overlay::Text] {
            if self.overlaid(kind).met(pages).next().is_some() {
                self.set_overlay(pages.clone(), kind, false);
            }
        }
    }

    fn overlaid(&mut self, kind: Overlay) -> &mut Ranges {
        match kind {
            Overlay::Shared => &mut self.shared,
            Overlay::Beyond => &mut self.beyond,
            Overlay::Text => &mut self.files,
        }
    }

    pub(super) fn set_overlay(&mut self, pages: Range<Page>, kind: Overlay, are: bool) {
        let laid = self.overlaid(kind);
        // Only ranges that touch these change.
        let near = pages.start.saturating_sub(1)..pages.end + 1;
        let before: Vec<Range<Page>> = laid.met(&near).collect();
        match are {
            true => laid.insert(pages),
            false => laid.remove(pages),
        }
        let now: Vec<Range<Page>> = laid.met(&near).collect();
        let all: Vec<Range<Page>> = laid.iter().collect();
        // The protocol must not prefetch such pages.
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
            Overlay::Text => {}
        }
    }

    /// Returns true if there is room for more ranges in the table that threads read.
    pub(super) fn has_overlay_room(&mut self, kind: Overlay) -> bool {
        kind == Overlay::Text || self.overlaid(kind).count() < RANGES_MAX / 2
    }

    /// Returns true if these pages may be unmapped: that may split a range in two.
    pub(super) fn may_end(&mut self, pages: &Range<Page>) -> bool {
        let is_cut = |it: Range<Page>| it.start < pages.start && pages.end < it.end;
        let mut kinds = [Overlay::Shared, Overlay::Beyond].into_iter();
        kinds.all(|kind| self.has_overlay_room(kind) || !self.overlaid(kind).met(pages).any(is_cut))
    }

    /// Returns true if this page shows another mapping.
    pub(super) fn is_overlaid(&self, page: Page) -> bool {
        let page = page..page + 1;
        [&self.shared, &self.beyond, &self.files].into_iter().any(|laid| laid.covers(&page))
    }

    /// Returns the pages that show other mappings.
    pub(super) fn laid(&self) -> Vec<Range<Page>> {
        self.shared.iter().chain(self.beyond.iter()).chain(self.files.iter()).collect()
    }

    /// Moves a thread to the origin that has faulted at a shared mapping, unless this node may have
    /// a copy. Returns false if the page is none of a mapping that stands at the origin.
    pub(super) fn send_to_origin(&mut self, fault: &pager::Fault) -> bool {
        let page = fault.page..fault.page + 1;
        let is_file = self.files.covers(&page);
        if !is_file && !self.shared.covers(&page) {
            return false;
        }
        if is_file && self.read_text(fault.page) || self.wants_copy(fault.page) {
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

    /// Maps the segment again where other mappings were. Shared ones exist at the origin only.
    pub(super) fn restore_segment(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        let mut met: Vec<Range<Page>> = self.beyond.met(&pages).collect();
        if self.origin.is_some() {
            met.extend(self.shared.met(&pages));
            met.extend(self.files.met(&pages));
        }
        met.into_iter().try_for_each(|range| {
            self.engine.memory.restore(range.start.max(pages.start)..range.end.min(pages.end))
        })
    }
}

/// At the origin: leases on files that are mapped shared and read-only.
impl Agent {
    /// Takes a lease for a thread that will map `bytes` of a file from `offset` on.
    pub(super) fn lease(
        &mut self,
        thread: u32,
        descriptor: i32,
        start: u64,
        offset: u64,
        bytes: u64,
    ) {
        if self.names.len() > 1 {
            // The agent has another descriptor table than the program.
            let tid = self.table.slot(thread).tid.load(Ordering::Relaxed);
            let name = PathBuf::from(format!("/proc/self/task/{tid}/fd/{descriptor}"));
            self.leases.add(&name, start / PAGE, offset, bytes);
        }
        self.answer(thread, 0);
    }

    /// Allows other nodes copies of those new shared mappings that have a lease.
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

    /// Sends copies of pages to a node.
    pub(super) fn send_copies(&mut self, to: NodeId, first: Page, pages: u64) {
        let end = first.checked_add(pages).filter(|_| (1..=TOGETHER_MAX).contains(&pages));
        let Some(end) = end else { self.violation(to, "pages of a file") };
        // Some of the pages may be something else by now. The node has been told so before this
        // reply, and no longer waits for copies of them.
        let range = first..end;
        for part in self.leases.held(&range) {
            let (first, pages) = (part.start, part.end - part.start);
            match self.leases.read(&part) {
                Some((_, Ok(body))) => {
                    self.send(to, Frame::Word(Message::Copies { first, pages }), body);
                }
                // A thread that reads the page at the origin gets the signal for the error.
                Some((lease, Err(_))) => self.recall(lease),
                None => {}
            }
        }
        let shown: Vec<Range<Page>> = self.files.parts(&range).collect();
        shown.iter().for_each(|part| self.send_shown(to, part));
    }

    /// Recalls leases that the kernel breaks. Returns true if there were any.
    pub(super) fn look_at_leases(&mut self, now: u64) -> bool {
        let Some(wanted) = self.leases.wanted_back(now) else { return false };
        wanted.into_iter().for_each(|lease| self.recall(lease));
        true
    }

    /// Makes all nodes drop their copies; then the lease ends.
    fn recall(&mut self, lease: u64) {
        for range in self.leases.recall(lease, self.names.len() - 1) {
            let (first, pages) = (range.start, range.end - range.start);
            self.notify_others(Message::Recall { lease, first, pages });
        }
    }
}

/// On the other nodes: copies of pages of leased files.
impl Agent {
    /// Ends the leases and copies of pages that are about to be unmapped or replaced.
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

    /// Allows copies of these pages: the origin has a lease on their file.
    pub(super) fn set_leased(&mut self, first: Page, pages: u64) {
        let range = self.known(first, pages);
        // Before Linux 6.4 a page cannot be mapped read-only.
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

    /// Fetches a copy of the page at which a thread has faulted. Returns false if there can be
    /// none.
    fn wants_copy(&mut self, page: Page) -> bool {
        if !self.copies.has(page) {
            return false;
        }
        if self.engine.memory.access(page) > Access::None {
            // The copy has arrived since.
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

    /// Maps the copies that the origin has sent.
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
            // Before Linux 6.4 a page cannot be mapped read-only. Nothing can write it anyway.
            let access = match self.engine.memory.can_allow_read() {
                true => Access::Read,
                false => Access::Write,
            };
            if let Err(error) = self.engine.memory.bring(page..page + 1, Some(bytes), access) {
                self.end(1, &error.to_string());
            }
            self.resumed(page, now);
        }
    }

    /// Drops the copies of a lease that the origin gives back.
    pub(super) fn recall_copies(&mut self, lease: u64, first: Page, pages: u64) {
        let range = self.known(first, pages);
        let here = self.copies.end(&range);
        self.tell_threads_of_leases();
        let done = here.into_iter().try_for_each(|part| self.engine.memory.discard_all(part));
        // Threads that are stopped there repeat their access, and move to the origin.
        let now = self.now();
        self.waits.all_go_on(range.clone(), now);
        self.with_counts(|seen, now| seen.all_go_on(&range, now));
        if let Err(error) = done.and_then(|()| self.engine.memory.wake_all(range)) {
            self.end(1, &error.to_string());
        }
        self.notify(0, Message::Dropped { lease });
    }

    /// Frees the memory of all copies. A later use fetches them again.
    pub(super) fn discard_copies(&mut self) -> Result<(), PagerError> {
        if std::mem::take(&mut self.copies.are_here) {
            let all: Vec<Range<Page>> = self.copies.leased.iter().collect();
            all.into_iter().try_for_each(|range| self.engine.memory.discard_all(range))?;
        }
        Ok(())
    }
}
