//! Memory that is reset on all machines: pages that are unmapped or discarded in published blocks,
//! and segments whose tasks have ended. The home of the segment coordinates, by
//! [`node::changes`].

use std::ops::Range;

use coherence::message::{NodeId, Page};
use node::changes::{APPLY, Change, Next, RESET, Step};
use node::sequential::Replica as _;

use crate::agent::Agent;
use crate::blocks::{block_of, pages_of};
use crate::changes::{Goal, Then, What};
use crate::frame::Message;

impl Agent {
    /// Starts a change of pages of this machine, on all machines.
    pub(super) fn change(&mut self, what: What, pages: Range<Page>, then: Then) {
        let steps = match what {
            What::Reset => RESET,
            What::Mapped => APPLY,
        };
        self.changes.add(steps, pages, Goal { what, then });
        self.begin_changes();
    }

    fn begin_changes(&mut self) {
        let machines = self.plan.names.len() as NodeId;
        while let Some((number, step)) = self.changes.begin_next(|| (0..machines).collect()) {
            self.take_step(number, step);
        }
    }

    /// Starts a step on all machines.
    fn take_step(&mut self, change: u64, step: Step) {
        let me = self.plan.me;
        let it = self.changes.get_mut(change).expect("a change that is in progress takes steps");
        let (first, pages) = (it.pages.start, it.pages.end - it.pages.start);
        match step {
            Step::Apply => {
                self.broadcast(Message::Mapped { change, first, pages });
                self.mapped(me, change, first, pages);
            }
            Step::Close => {
                self.broadcast(Message::Close { change, first, pages });
                self.close(me, change, first, pages);
            }
            Step::Reset => {
                self.broadcast(Message::Reset { change, first, pages });
                self.reset(me, change, first, pages);
            }
        }
    }

    /// Completes a change that all machines have made.
    fn finish(&mut self, change: Change<Goal>) {
        let (me, range) = (self.plan.me, change.pages);
        let Goal { what, then } = change.what;
        let (first, pages) = (range.start, range.end - range.start);
        let refused: Vec<Page> = self.blocks.refused.range(range.clone()).copied().collect();
        for page in refused {
            self.blocks.refused.remove(&page);
        }
        if what == What::Reset {
            self.broadcast(Message::Open { first, pages });
        }
        match then {
            Then::Answer(id) => {
                self.scan_published(range);
                if what == What::Reset {
                    self.open(me, first, pages);
                }
                // A task that has ended is not answered.
                if self.tasks.changing.remove(&id) {
                    self.control.answer(id);
                }
            }
            Then::Unpublish(done) => {
                for block in self.blocks.published_in(&range) {
                    self.leave_pool(block);
                    self.unpublish(block);
                }
                self.open(me, first, pages);
                drop(done);
            }
        }
        self.begin_changes();
    }

    /// Scans the mappings of the published blocks in a range of this machine's pages.
    pub(super) fn scan_published(&mut self, pages: Range<Page>) {
        for block in self.blocks.published_in(&pages) {
            let of = pages_of(block);
            self.scan(of.start.max(pages.start)..of.end.min(pages.end));
        }
    }

    /// Returns the pages of a message, or refuses it if they are not all of `from`.
    fn range_of(&mut self, from: NodeId, first: Page, pages: u64) -> Option<Range<Page>> {
        let end =
            first.checked_add(pages).filter(|&end| pages > 0 && end <= self.pages.node.pages());
        let range = end.map(|end| first..end);
        let is_its = |range: &Range<Page>| {
            self.home(range.start) == Some(from) && self.home(range.end - 1) == Some(from)
        };
        let range = range.filter(is_its);
        if range.is_none() {
            self.protocol_violation(from, "a change of pages of another machine");
        }
        range
    }

    pub(super) fn close(&mut self, home: NodeId, change: u64, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        self.close_pages(home, change, pages.clone());
        if home != self.plan.me {
            self.hide_pooled(&pages);
        }
        self.acknowledge_quiet();
    }

    /// Pages that were not mapped are mapped now.
    pub(super) fn mapped(&mut self, home: NodeId, change: u64, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        self.clear_unmapped(&pages);
        self.acknowledge(home, change);
    }

    fn clear_unmapped(&mut self, pages: &Range<Page>) {
        let mapped: Vec<Page> =
            self.unmapped_pages.iter().copied().filter(|page| pages.contains(page)).collect();
        mapped.into_iter().for_each(|page| self.reopen(page));
    }

    pub(super) fn reset(&mut self, home: NodeId, change: u64, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        // Whoever touches the block next has to look it up.
        let blocks = block_of(pages.start)..=block_of(pages.end - 1);
        self.blocks.known.retain(|block, _| !blocks.contains(block));
        let unknown = pages_of(*blocks.start()).start..pages_of(*blocks.end()).end;
        self.pages.node.forbid_prediction(unknown);
        if !self.pages.node.is_quiet(&pages) {
            return self.protocol_violation(home, "a reset of pages that are in use");
        }
        if let Err(error) = self.reset_pages(pages.clone(), home) {
            self.fails(&error.to_string());
        }
        self.clear_unmapped(&pages);
        if home == self.plan.me {
            self.clear_pooled(&pages);
        }
        self.acknowledge(home, change);
    }

    pub(super) fn open(&mut self, home: NodeId, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        self.open_pages(&pages);
        if let Err(error) = self.engine.memory.wake(pages) {
            self.fails(&error.to_string());
        }
    }

    /// Acknowledges closed pages for which no request is pending any more.
    pub(super) fn acknowledge_quiet(&mut self) {
        self.take_quiet().into_iter().for_each(|(home, change)| self.acknowledge(home, change));
    }

    fn acknowledge(&mut self, home: NodeId, change: u64) {
        match home == self.plan.me {
            true => self.acknowledged(home, change),
            false => self.send_message(home, Message::Acknowledge { change }),
        }
    }

    /// A machine has acknowledged a step of a change that this machine coordinates.
    pub(super) fn acknowledged(&mut self, machine: NodeId, number: u64) {
        match self.changes.acknowledge(machine, number) {
            Ok(None) => {}
            Ok(Some(Next::Step(step))) => self.take_step(number, step),
            Ok(Some(Next::Finished(change))) => self.finish(change),
            Err(_) => self.protocol_violation(machine, "an unexpected acknowledgement"),
        }
    }
}
