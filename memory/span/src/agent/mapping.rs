//! Changes of the memory map on all nodes, which the origin coordinates by [`node::changes`].
//!
//! A protection changes in one step. Pages that are unmapped or discarded are reset. The origin
//! waits only for nodes that may have pages. The others have none, and receive the change before
//! their next thread.

use std::ops::Range;

use coherence::message::{NodeId, Page};
use node::changes::{APPLY, Change, Next, RESET, RESET_AND_APPLY, Step};
use node::driver::Driver as _;
use node::sequential::Replica as _;
use pager::PagerError;
use rustix::mm::MprotectFlags;

use super::change::{Changes, Effect, Request};
use super::origin::Origin;
use super::state::Agent;
use crate::addresses::PAGE;
use crate::frame::{Message, UNACKNOWLEDGED};
use crate::shared::Overlay;

/// On every node.
impl Agent {
    /// Applies a step of a change. Returns false if this is another message.
    pub(super) fn apply_change(&mut self, message: Message) -> bool {
        let (first, pages) = match message {
            Message::Protect { first, pages, .. }
            | Message::Close { first, pages, .. }
            | Message::Reset { first, pages, .. }
            | Message::Overlay { first, pages, .. }
            | Message::Open { first, pages } => (first, pages),
            _ => return false,
        };
        let all = self.engine.memory.pages();
        let Some(end) = first.checked_add(pages).filter(|&end| pages > 0 && end <= all) else {
            self.violation(0, "pages that there are not");
        };
        let range = first..end;
        let done = match message {
            Message::Protect { change, protection, .. } => {
                self.end_text(range.clone());
                let owned = match protection & libc::PROT_WRITE as u32 {
                    0 => Ok(()),
                    _ => self.own_files(&range, protection),
                };
                let done = owned.and_then(|()| self.protect(range, Some(protection)));
                self.acknowledge(change);
                done
            }
            Message::Close { change, protection, .. } => {
                self.end_text(range.clone());
                self.end_leases(&range, protection.is_some());
                let done = match protection {
                    Some(_) => self.forbid(range.clone()),
                    None => Ok(()),
                };
                self.close_pages(0, change, range);
                self.acknowledge_quiet();
                done
            }
            Message::Overlay { change, kind, .. } => {
                self.reopen(&range);
                let laid = self.overlay(range.clone(), kind);
                if kind == Overlay::Shared {
                    self.offer_copies(&range);
                }
                self.acknowledge(change);
                // Threads that are stopped there repeat their access.
                laid.and_then(|()| self.engine.memory.wake_all(range))
            }
            Message::Reset { change, owner, protection, unmapped, .. } => {
                let done = self
                    .reset_pages(range.clone(), owner)
                    .and_then(|()| self.restore_segment(range.clone()))
                    .and_then(|()| self.protect(range.clone(), protection));
                if unmapped {
                    self.engine.memory.close(range);
                }
                self.acknowledge(change);
                done
            }
            _ => {
                self.remove_overlays(&range);
                self.reopen(&range);
                self.engine.memory.wake_all(range)
            }
        };
        if let Err(error) = done {
            self.end(1, &format!("{}: {error}", self.names[self.me as usize]));
        }
        true
    }

    /// Opens pages that were closed: threads may use them again.
    fn reopen(&mut self, pages: &Range<Page>) {
        self.open_pages(pages);
        let now = self.now();
        self.waits.all_go_on(pages.clone(), now);
        self.with_counts(|seen, now| seen.all_go_on(pages, now));
    }

    /// Makes pages inaccessible.
    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        if let Some(origin) = &mut self.origin {
            origin.protects(&(pages.start * PAGE..pages.end * PAGE), 0);
        }
        self.pages.node.forbid_prediction(pages.clone());
        self.engine.memory.restrict_open(pages, MprotectFlags::empty())
    }

    /// Sets the protection of pages, and maps those that are not mapped.
    fn protect(&mut self, pages: Range<Page>, to: Option<u32>) -> Result<(), PagerError> {
        let Some(protection) = to else { return Ok(()) };
        if let Some(origin) = &mut self.origin {
            origin.protects(&(pages.start * PAGE..pages.end * PAGE), protection);
        }
        self.engine.memory.open(pages.clone())?;
        self.predict(pages.clone(), protection);
        self.engine.memory.restrict(pages, MprotectFlags::from_bits_truncate(protection))
    }

    /// Pages with this protection are sent before they are requested, unless nobody can use them.
    pub(super) fn predict(&mut self, pages: Range<Page>, protection: u32) {
        match protection {
            0 => self.pages.node.forbid_prediction(pages),
            _ => self.pages.node.allow_prediction(pages),
        }
    }

    /// Acknowledges closed pages for which no message is under way any more.
    pub(super) fn acknowledge_quiet(&mut self) {
        self.take_quiet().into_iter().for_each(|(_, change)| self.acknowledge(change));
    }

    fn acknowledge(&mut self, change: u64) {
        match self.origin {
            Some(_) => self.done(self.me, change),
            None if change == UNACKNOWLEDGED => {}
            None => self.notify(0, Message::Acknowledge { change }),
        }
    }
}

/// At the origin.
impl Agent {
    fn changes(&mut self) -> &mut Changes {
        &mut self.origin().changes
    }

    /// Changes pages on all nodes, and then answers the thread.
    pub(super) fn change(
        &mut self,
        effect: Effect,
        pages: Range<Page>,
        owner: NodeId,
        answer: Option<(u32, i64)>,
    ) {
        let pages = pages.start..pages.end.min(self.engine.memory.pages());
        if pages.is_empty() {
            if let Some((thread, answer)) = answer {
                self.answer(thread, answer);
            }
            return;
        }
        let steps = match effect {
            Effect::Protect(_) => APPLY,
            Effect::Reset(_) | Effect::Unmap => RESET,
            Effect::Overlay(_) => RESET_AND_APPLY,
        };
        self.changes().add(steps, pages, Request { effect, owner, answer });
        self.begin_changes();
    }

    /// Starts the changes whose pages are in no earlier change.
    fn begin_changes(&mut self) {
        loop {
            let Origin { changes, is_used, .. } = self.origin();
            // Messages are ordered: a thread that comes to another node finds the change made.
            let used = || (0..).zip(&*is_used).filter(|it| *it.1).map(|it| it.0).collect();
            let Some((number, step)) = changes.begin_next(used) else { return };
            self.take_step(number, step);
        }
    }

    /// A node has acknowledged a step of a change.
    pub(super) fn done(&mut self, node: NodeId, number: u64) {
        match self.changes().acknowledge(node, number) {
            Ok(Some(Next::Step(step))) => self.take_step(number, step),
            Ok(Some(Next::Finished(change))) => self.finish(change),
            // A node that has had no thread acknowledges, too, though the origin does not wait for
            // it.
            Ok(None) | Err(_) => {}
        }
    }

    /// Makes all nodes take a step.
    fn take_step(&mut self, number: u64, step: Step) {
        let it = self.changes().get_mut(number).expect("it goes on");
        let (first, pages) = (it.pages.start, it.pages.end - it.pages.start);
        let (change, owner, what) = (number, it.what.owner, it.what.effect);
        let mut answer = None;
        let message = match (step, what) {
            (Step::Apply, Effect::Protect(protection)) => {
                Message::Protect { change, first, pages, protection }
            }
            (Step::Apply, Effect::Overlay(kind)) => Message::Overlay { change, first, pages, kind },
            (Step::Close, what) => {
                let protection = (what == Effect::Unmap).then_some(0);
                Message::Close { change, first, pages, protection }
            }
            (Step::Reset, what) => {
                let protection = match what {
                    Effect::Reset(protection) => protection,
                    // A thread that unmaps resumes now: no thread can use the pages.
                    _ => {
                        answer = it.what.answer.take();
                        None
                    }
                };
                let unmapped = what == Effect::Unmap;
                Message::Reset { change, first, pages, owner, protection, unmapped }
            }
            (Step::Apply, Effect::Reset(_) | Effect::Unmap) => unreachable!("a reset is over"),
        };
        self.notify_all(message);
        if let Some((thread, answer)) = answer {
            self.answer(thread, answer);
        }
    }

    /// Finishes a change that all nodes have made.
    fn finish(&mut self, change: Change<Request>) {
        let Request { effect, answer, .. } = change.what;
        if !matches!(effect, Effect::Protect(_) | Effect::Overlay(_)) {
            let (first, pages) = (change.pages.start, change.pages.end - change.pages.start);
            self.notify_all(Message::Open { first, pages });
        }
        if let Some((thread, answer)) = answer {
            self.answer(thread, answer);
        }
        self.begin_changes();
    }

    /// Sends a step to all other nodes, and takes it here.
    pub(super) fn notify_all(&mut self, message: Message) {
        (1..self.names.len() as NodeId).for_each(|node| self.notify(node, message));
        self.apply_change(message);
    }
}
