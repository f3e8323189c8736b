//! Requests of this machine's tasks, which the gate makes: to reset memory, to note new mappings,
//! to fetch pages, and to wake the waiters of another machine's futex.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

use coherence::message::{NodeId, Page};
use nagaya_gate::abi::ask;
use pager::shared::PAGE;

use crate::agent::Agent;
use crate::changes::{Then, What};
use crate::frame::Message;

/// Pages that one fetch requests at a time.
const FETCHES_MAX: usize = 32;

impl Agent {
    /// Handles the requests of this machine's tasks.
    pub(super) fn take_task_requests(&mut self) {
        let control = self.control;
        for (id, it) in control.asks() {
            if self.is_answered_later(id) {
                continue;
            }
            let base = control.layout().base();
            let what = it.what.load(Ordering::Relaxed);
            let (address, size) =
                (it.address.load(Ordering::Relaxed), it.size.load(Ordering::Relaxed));
            if what == ask::WAKE {
                let page = address.wrapping_sub(base) / PAGE;
                if let Some(home) = self.home(page).filter(|&home| home != self.plan.me) {
                    self.send_message(home, Message::Wake { address });
                }
                control.answer(id);
                continue;
            }
            let segment = self.segment(id);
            let first = (address.wrapping_sub(base) / PAGE).clamp(segment.start, segment.end);
            let end = first.saturating_add(size.div_ceil(PAGE)).min(segment.end);
            // The request lies in memory that the task can write: it is not trusted.
            if first >= end || self.home(first) != Some(self.plan.me) {
                control.answer(id);
                continue;
            }
            match what {
                ask::DISCARD => self.change_by(id, What::Reset, first..end),
                ask::BRING => self.fetch(id, first..end),
                _ if self.blocks.refused.range(first..end).next().is_some() => {
                    self.change_by(id, What::Mapped, first..end);
                }
                _ => {
                    self.scan_published(first..end);
                    control.answer(id);
                }
            }
        }
    }

    /// Another machine asks to wake the waiters of a futex of this machine.
    pub(super) fn wakes(&mut self, from: NodeId, address: u64) {
        let page = address.wrapping_sub(self.control.layout().base()) / PAGE;
        if !self.is_own(page) || !address.is_multiple_of(4) {
            return self.protocol_violation(from, "a wake-up for a futex of another machine");
        }
        self.tasks.wake(address);
    }

    fn change_by(&mut self, id: u32, what: What, pages: Range<Page>) {
        self.tasks.changing.insert(id);
        self.change(what, pages, Then::Answer(id));
    }

    fn is_answered_later(&self, id: u32) -> bool {
        self.tasks.changing.contains(&id)
            || self.tasks.fetches.iter().any(|(other, _)| *other == id)
    }

    /// Fetches pages of a task of this machine that are on other machines, so that the memory's
    /// file holds them all.
    fn fetch(&mut self, id: u32, pages: Range<Page>) {
        let mut away = VecDeque::new();
        let mut page = self.pages.node.next_touched(pages.clone());
        while page < pages.end {
            if !self.pages.node.can_be_read(page) {
                away.push_back(page);
            }
            page = self.pages.node.next_touched(page + 1..pages.end);
        }
        self.tasks.fetches.push((id, away));
        self.continue_fetches();
    }

    /// Requests the next pages of each fetch, and answers the tasks whose fetch is complete.
    pub(super) fn continue_fetches(&mut self) {
        for (id, mut away) in std::mem::take(&mut self.tasks.fetches) {
            away.retain(|&page| !self.pages.node.can_be_read(page));
            if away.is_empty() {
                self.control.answer(id);
                continue;
            }
            let next: Vec<Page> = away.iter().copied().take(FETCHES_MAX).collect();
            self.tasks.fetches.push((id, away));
            for page in next {
                let is_requested = self.pages.node.first_busy(page..page + 1) == page;
                if !is_requested && !self.pages.closed.contains(page) {
                    self.request_page(page, false);
                }
            }
        }
    }
}
