//! Memory that begins anew on all machines: what is unmapped or discarded in published blocks, and
//! segments whose tasks have ended. The machine whose segment it is says what happens when, one
//! change after the other, in the three steps of
//! [`coherence::sequential`](coherence::sequential#pages-that-begin-anew).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::Sender;

use coherence::message::{NodeId, Page};
use coherence::sequential::Event;

use crate::agent::Agent;
use crate::frame::Word;
use crate::publish::{block_of, pages_of};

/// What begins anew, and who waits for it.
#[derive(Debug)]
struct Change {
    number: u64,
    pages: Range<Page>,
    what: What,
    phase: Phase,
    /// Who has not said yet that this phase is done.
    by: Vec<NodeId>,
    then: Then,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Telling,
    Closing,
    Dropping,
}

/// Pages at which no fault is told.
#[derive(Debug)]
struct Closed {
    home: NodeId,
    change: u64,
    pages: Range<Page>,
    /// Of those from here on something may be under way.
    busy: Page,
    is_said: bool,
}

/// What changes now.
#[derive(Debug, Default)]
pub struct Changes {
    /// Of ours, the first of which goes on.
    ours: VecDeque<Change>,
    last: u64,
    /// Of ours and others'.
    closed: Vec<Closed>,
}

impl Agent {
    /// Tasks that use this page have to wait.
    pub(super) fn is_closed(&self, page: Page) -> bool {
        self.changes.closed.iter().any(|closed| closed.pages.contains(&page))
    }

    /// Pages of ours change on all machines.
    pub(super) fn change(&mut self, what: What, pages: Range<Page>, then: Then) {
        self.changes.last += 1;
        let (number, phase, by) = (self.changes.last, Phase::Queued, Vec::new());
        self.changes.ours.push_back(Change { number, pages, what, phase, by, then });
        if let [_] = self.changes.ours.make_contiguous() {
            self.next_phase();
        }
    }

    /// The first of our changes goes on: all have done what they were told.
    fn next_phase(&mut self) {
        let everybody: Vec<NodeId> = (0..self.plan.names.len() as NodeId).collect();
        let me = self.plan.me;
        let Some(it) = self.changes.ours.front_mut() else { return };
        let (change, first, pages) = (it.number, it.pages.start, it.pages.end - it.pages.start);
        it.by = everybody;
        match it.phase {
            Phase::Queued if it.what == What::Mapped => {
                it.phase = Phase::Telling;
                self.tell_others(Word::Mapped { change, first, pages });
                self.mapped(me, change, first, pages);
            }
            Phase::Queued => {
                it.phase = Phase::Closing;
                self.tell_others(Word::Close { change, first, pages });
                self.close(me, change, first, pages);
            }
            Phase::Closing => {
                it.phase = Phase::Dropping;
                self.tell_others(Word::Renew { change, first, pages });
                self.renew(me, change, first, pages);
            }
            Phase::Telling | Phase::Dropping => {
                let Change { pages: range, what, then, .. } =
                    self.changes.ours.pop_front().expect("it is the first");
                let refused: Vec<Page> =
                    self.blocks.refused.range(range.clone()).copied().collect();
                for page in refused {
                    self.blocks.refused.remove(&page);
                }
                if what == What::Anew {
                    self.tell_others(Word::Open { first, pages });
                }
                match then {
                    Then::Answer(id) => {
                        self.take_stock_of_published(range.clone());
                        if what == What::Anew {
                            self.open(me, first, pages);
                        }
                        // Who has ended asks no more.
                        if self.tasks.asked.remove(&id) {
                            self.control.answer(id);
                        }
                    }
                    Then::Unpublish(done) => {
                        let blocks = block_of(range.start)..=block_of(range.end - 1);
                        let published: Vec<u64> =
                            self.blocks.published.range(blocks).copied().collect();
                        for block in published {
                            self.leave_pool(block);
                            self.unpublish(block);
                        }
                        self.open(me, first, pages);
                        drop(done);
                    }
                }
                self.next_phase();
            }
        }
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
        let end = first.checked_add(pages).filter(|&end| pages > 0 && end <= self.node.pages());
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
        self.step(Event::Close(pages.clone()), None);
        if home != self.plan.me {
            self.hide_pooled(&pages);
        }
        let busy = pages.start;
        self.changes.closed.push(Closed { home, change, pages, busy, is_said: false });
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
        self.node.may_not_foresee(unknown);
        if let Err(error) = self.shared.discard(pages.clone()) {
            self.fails(&error.to_string());
        }
        self.are_right(&pages);
        if home == self.plan.me {
            self.clear_pooled(&pages);
        }
        let is_quiet = self.node.is_quiet(&pages);
        if !is_quiet {
            return self.nonsense(home, "that pages begin anew which are under way");
        }
        self.step(Event::Renew { pages, owner: home, everywhere: false }, None);
        self.say_done(home, change);
    }

    pub(super) fn open(&mut self, home: NodeId, first: Page, pages: u64) {
        let Some(pages) = self.range_of(home, first, pages) else { return };
        self.changes.closed.retain(|closed| closed.pages != pages);
        self.step(Event::Open(pages.clone()), None);
        if let Err(error) = self.shared.wake(pages) {
            self.fails(&error.to_string());
        }
    }

    /// Says of which closed pages nothing is under way any more.
    pub(super) fn say_quiet(&mut self) {
        let mut quiet = Vec::new();
        for closed in self.changes.closed.iter_mut().filter(|closed| !closed.is_said) {
            closed.busy = self.node.first_busy(closed.busy..closed.pages.end);
            closed.is_said = closed.busy == closed.pages.end;
            if closed.is_said {
                quiet.push((closed.home, closed.change));
            }
        }
        quiet.into_iter().for_each(|(home, change)| self.say_done(home, change));
    }

    fn say_done(&mut self, home: NodeId, change: u64) {
        match home == self.plan.me {
            true => self.done(home, change),
            false => self.say(home, Word::Done { change }),
        }
    }

    /// A machine has done what it was told of a change of ours.
    pub(super) fn done(&mut self, machine: NodeId, number: u64) {
        let Some(change) = self.changes.ours.front_mut().filter(|it| it.number == number) else {
            return self.nonsense(machine, "that it has done what nobody wanted");
        };
        let before = change.by.len();
        change.by.retain(|other| *other != machine);
        if change.by.is_empty() && before > 0 {
            self.next_phase();
        }
    }
}
