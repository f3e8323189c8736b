//! Memory that is reset on all machines: what is unmapped or discarded in published blocks, and
//! segments whose tasks have ended. The machine whose segment it is coordinates, by
//! [`node::changes`].

use std::ops::Range;
use std::sync::mpsc::Sender;

use coherence::message::{NodeId, Page};
use node::changes::{APPLY, Change, Next, RESET, Step};
use node::sequential::Replica as _;

use crate::agent::Agent;
use crate::frame::Word;
use crate::publish::{block_of, pages_of};

/// What a change is for.
#[derive(Debug)]
pub struct Wish {
    what: What,
    then: Then,
}

/// The changes of this machine's segments.
pub type Changes = node::changes::Changes<Wish>;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The pages begin anew.
    Anew,
    /// They are mapped, of which others have heard that they are not.
    Mapped,
}

/// What follows.
#[derive(Debug)]
pub enum Then {
    /// The task that asked is answered.
    Answer(u32),
    /// No other machine knows of the pages any more, and somebody hears of it.
    Unpublish(Sender<()>),
}

impl Agent {
    /// Pages of ours change on all machines.
    pub(super) fn change(&mut self, what: What, pages: Range<Page>, then: Then) {
        let steps = match what {
            What::Anew => RESET,
            What::Mapped => APPLY,
        };
        self.changes.add(steps, pages, Wish { what, then });
        self.begin_changes();
    }

    fn begin_changes(&mut self) {
        let machines = self.plan.names.len() as NodeId;
        while let Some((number, step)) = self.changes.begin_next(|| (0..machines).collect()) {
            self.take_step(number, step);
        }
    }

    /// Tells all machines to take a step.
    fn take_step(&mut self, change: u64, step: Step) {
        let me = self.plan.me;
        let it = self.changes.get_mut(change).expect("it goes on");
        let (first, pages) = (it.pages.start, it.pages.end - it.pages.start);
        match step {
            Step::Apply => {
                self.tell_others(Word::Mapped { change, first, pages });
                self.mapped(me, change, first, pages);
            }
            Step::Close => {
                self.tell_others(Word::Close { change, first, pages });
                self.close(me, change, first, pages);
            }
            Step::Reset => {
                self.tell_others(Word::Renew { change, first, pages });
                self.renew(me, change, first, pages);
            }
        }
    }

    /// All machines have made a change.
    fn finish(&mut self, change: Change<Wish>) {
        let (me, range) = (self.plan.me, change.pages);
        let Wish { what, then } = change.what;
        let (first, pages) = (range.start, range.end - range.start);
        let refused: Vec<Page> = self.blocks.refused.range(range.clone()).copied().collect();
        for page in refused {
            self.blocks.refused.remove(&page);
        }
        if what == What::Anew {
            self.tell_others(Word::Open { first, pages });
        }
        match then {
            Then::Answer(id) => {
                self.take_stock_of_published(range);
                if what == What::Anew {
                    self.open(me, first, pages);
                }
                // A task that has ended asks no more.
                if self.tasks.asked.remove(&id) {
                    self.control.answer(id);
                }
            }
            Then::Unpublish(done) => {
                let blocks = block_of(range.start)..=block_of(range.end - 1);
                let published: Vec<u64> = self.blocks.published.range(blocks).copied().collect();
                for block in published {
                    self.leave_pool(block);
                    self.unpublish(block);
                }
                self.open(me, first, pages);
                drop(done);
            }
        }
        self.begin_changes();
    }

    /// Looks anew what is mapped in the published blocks of a range of ours.
    pub(super) fn take_stock_of_published(&mut self, pages: Range<Page>) {
        let blocks = block_of(pages.start)..=block_of(pages.end - 1);
        let published: Vec<u64> = self.blocks.published.range(blocks).copied().collect();
        for block in published {
            let of = pages_of(block);
            self.take_stock(of.start.max(pages.start)..of.end.min(pages.end));
        }
    }

    /// Whether another may say this of these pages.
    fn range_of(&mut self, from: NodeId, first: Page, pages: u64) -> Option<Range<Page>> {
        let end =
            first.checked_add(pages).filter(|&end| pages > 0 && end <= self.pages.node.pages());
        let range = end.map(|end| first..end);
        let is_its = |range: &Range<Page>| {
            self.home(range.start) == Some(from) && self.home(range.end - 1) == Some(from)
        };
        let range = range.filter(is_its);
        if range.is_none() {
            self.nonsense(from, "pages that are not its own");
        }
        range
    }

    pub(super) fn close(&mut self, home: NodeId, change: u64, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        self.close_pages(home, change, pages.clone());
        if home != self.plan.me {
            self.hide_pooled(&pages);
        }
        self.say_quiet();
    }

    /// What was not mapped is.
    pub(super) fn mapped(&mut self, home: NodeId, change: u64, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        self.are_right(&pages);
        self.say_done(home, change);
    }

    fn are_right(&mut self, pages: &Range<Page>) {
        let wrong: Vec<Page> =
            self.wrong_pages.iter().copied().filter(|page| pages.contains(page)).collect();
        wrong.into_iter().for_each(|page| self.is_right(page));
    }

    pub(super) fn renew(&mut self, home: NodeId, change: u64, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        // What nobody knows of, nobody has.
        let blocks = block_of(pages.start)..=block_of(pages.end - 1);
        self.blocks.known.retain(|block, _| !blocks.contains(block));
        let unknown = pages_of(*blocks.start()).start..pages_of(*blocks.end()).end;
        self.pages.node.may_not_foresee(unknown);
        if !self.pages.node.is_quiet(&pages) {
            return self.nonsense(home, "that pages begin anew which are under way");
        }
        if let Err(error) = self.reset_pages(pages.clone(), home) {
            self.fails(&error.to_string());
        }
        self.are_right(&pages);
        if home == self.plan.me {
            self.clear_pooled(&pages);
        }
        self.say_done(home, change);
    }

    pub(super) fn open(&mut self, home: NodeId, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        self.open_pages(&pages);
        if let Err(error) = self.engine.memory.wake(pages) {
            self.fails(&error.to_string());
        }
    }

    /// Acknowledges the closing of pages of which nothing is under way any more.
    pub(super) fn say_quiet(&mut self) {
        self.take_quiet().into_iter().for_each(|(home, change)| self.say_done(home, change));
    }

    fn say_done(&mut self, home: NodeId, change: u64) {
        match home == self.plan.me {
            true => self.done(home, change),
            false => self.say(home, Word::Done { change }),
        }
    }

    /// A machine has acknowledged a step of a change of ours.
    pub(super) fn done(&mut self, machine: NodeId, number: u64) {
        match self.changes.acknowledge(machine, number) {
            Ok(None) => {}
            Ok(Some(Next::Step(step))) => self.take_step(number, step),
            Ok(Some(Next::Finished(change))) => self.finish(change),
            Err(_) => self.nonsense(machine, "that it has done what nobody wanted"),
        }
    }
}
