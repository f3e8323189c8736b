//! How the memory map changes on all nodes.
//!
//! What may be done with pages changes in one step: all nodes are told, and whoever wants it goes
//! on when they have done it. Pages that begin anew (unmapped, or to be zeros) take the three of
//! [`coherence::sequential`](coherence::sequential#pages-that-begin-anew): they are *closed*,
//! which lets no fault there be told to the protocol, until nothing of them is under way; then
//! every node drops what it has; then they are *open*. Threads that touch them meanwhile see
//! what was there until it is dropped, and then wait.
//!
//! The origin says what happens when. Changes of the same pages follow each other in the order
//! in which they were asked for; others do not wait for them. It waits for nodes that have had
//! threads: others have nothing of any page, and are told before they get one.

use std::collections::VecDeque;
use std::ops::Range;

use coherence::message::{NodeId, Page};
use coherence::sequential::Event;
use pager::PagerError;
use rustix::mm::MprotectFlags;

use super::Agent;
use crate::addresses::PAGE;
use crate::frame::{Laid, Word};

/// What is to become of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// This may be done with them.
    Protect(u32),
    /// They are zeros; and this may be done with them, if that changes.
    Renew(Option<u32>),
    /// Nothing may be done with them, and they are zeros when they are used again.
    Unmap,
    /// Nobody has anything of them, and they are not opened: another mapping shows them.
    Lay(Laid),
}

/// A change that all nodes make.
#[derive(Debug)]
struct Change {
    number: u64,
    what: What,
    pages: Range<Page>,
    /// Whose they are at first.
    owner: NodeId,
    /// The thread that wants it, and what it is answered.
    answer: Option<(u32, i64)>,
    phase: Phase,
    /// Who has to do it, and of those who has not said yet that this phase is done.
    nodes: Vec<NodeId>,
    by: Vec<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// An earlier one of the same pages goes on.
    Queued,
    Protecting,
    Closing,
    Dropping,
}

/// The origin's: what goes on, in the order in which it was asked for.
#[derive(Debug, Default)]
pub struct Changes {
    all: VecDeque<Change>,
    last: u64,
}

impl Changes {
    /// One that may begin.
    fn first_free(&self) -> Option<u64> {
        let is_free = |(at, it): &(usize, &Change)| {
            let meets = |other: &Change| {
                other.pages.start < it.pages.end && it.pages.start < other.pages.end
            };
            it.phase == Phase::Queued && !self.all.iter().take(*at).any(meets)
        };
        self.all.iter().enumerate().find(is_free).map(|(_, it)| it.number)
    }
}

/// A node's: pages at which no fault is told.
#[derive(Debug)]
pub(super) struct Closed {
    change: u64,
    pages: Range<Page>,
    /// Of those from here on something may be under way.
    busy: Page,
    is_said: bool,
}

/// Of a node.
impl Agent {
    /// Threads that use this page have to wait.
    pub(super) fn is_closed(&self, page: Page) -> bool {
        self.closed.iter().any(|closed| closed.pages.contains(&page))
    }

    /// The origin says that the memory map changes; whether this is such a word.
    pub(super) fn mapped(&mut self, word: Word) -> bool {
        let (first, pages) = match word {
            Word::Protect { first, pages, .. }
            | Word::Close { first, pages, .. }
            | Word::Renew { first, pages, .. }
            | Word::Lay { first, pages, .. }
            | Word::Open { first, pages } => (first, pages),
            _ => return false,
        };
        let all = self.region.pages();
        let Some(end) = first.checked_add(pages).filter(|&end| pages > 0 && end <= all) else {
            self.nonsense(0, "pages that there are not");
        };
        let range = first..end;
        let done = match word {
            Word::Protect { change, protection, .. } => {
                self.end_text(range.clone());
                let done = self.protect(range, Some(protection));
                self.say_done(change);
                done
            }
            Word::Close { change, protection, .. } => {
                self.end_text(range.clone());
                let done = match protection {
                    Some(_) => self.forbid(range.clone()),
                    None => Ok(()),
                };
                self.step(Event::Close(range.clone()), None);
                let busy = range.start;
                self.closed.push(Closed { change, pages: range, busy, is_said: false });
                self.say_quiet();
                done
            }
            Word::Lay { change, kind, .. } => {
                self.opens(&range);
                let laid = self.lay(range.clone(), kind);
                self.say_done(change);
                // Who is stopped there tries again.
                laid.and_then(|()| self.region.wake_all(range))
            }
            Word::Renew { change, owner, protection, unmapped, .. } => {
                let dropped = self.region.discard_all(range.clone());
                let done = dropped
                    .and_then(|()| self.end_laid(range.clone()))
                    .and_then(|()| self.protect(range.clone(), protection));
                if unmapped {
                    self.region.close(range.clone());
                }
                self.step(Event::Renew { pages: range, owner, everywhere: false }, None);
                self.say_done(change);
                done
            }
            _ => {
                self.is_laid_no_more(&range);
                self.opens(&range);
                self.region.wake_all(range)
            }
        };
        if let Err(error) = done {
            self.end(1, &format!("{}: {error}", self.names[self.me as usize]));
        }
        true
    }

    /// Threads may use these pages again.
    fn opens(&mut self, pages: &Range<Page>) {
        self.closed.retain(|closed| closed.pages != *pages);
        self.step(Event::Open(pages.clone()), None);
        let now = self.now();
        self.waits.all_go_on(pages.clone(), now);
        self.seen(|seen, now| seen.all_go_on(pages, now));
    }

    /// Nothing may be done with what is there of these pages.
    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        if let Some(origin) = &mut self.origin {
            origin.protects(&(pages.start * PAGE..pages.end * PAGE), 0);
        }
        self.node.may_not_foresee(pages.clone());
        self.region.restrict_open(pages, MprotectFlags::empty())
    }

    /// This may be done with pages, which are mapped if they are not.
    fn protect(&mut self, pages: Range<Page>, to: Option<u32>) -> Result<(), PagerError> {
        let Some(protection) = to else { return Ok(()) };
        if let Some(origin) = &mut self.origin {
            origin.protects(&(pages.start * PAGE..pages.end * PAGE), protection);
        }
        self.region.open(pages.clone())?;
        match protection {
            0 => self.node.may_not_foresee(pages.clone()),
            _ => self.node.may_foresee(pages.clone()),
        }
        self.region.restrict(pages, MprotectFlags::from_bits_truncate(protection))
    }

    /// Says of which closed pages nothing is under way any more.
    pub(super) fn say_quiet(&mut self) {
        let mut quiet = Vec::new();
        for closed in self.closed.iter_mut().filter(|closed| !closed.is_said) {
            closed.busy = self.node.first_busy(closed.busy..closed.pages.end);
            closed.is_said = closed.busy == closed.pages.end;
            if closed.is_said {
                quiet.push(closed.change);
            }
        }
        quiet.into_iter().for_each(|change| self.say_done(change));
    }

    fn say_done(&mut self, change: u64) {
        match self.origin {
            Some(_) => self.done(self.me, change),
            None => self.say(0, Word::Done { change }),
        }
    }
}

/// Of the origin.
impl Agent {
    fn changes(&mut self) -> &mut Changes {
        &mut self.origin().changes
    }

    /// Changes what becomes of pages on all nodes, and then answers the thread.
    pub(super) fn change(
        &mut self,
        what: What,
        pages: Range<Page>,
        owner: NodeId,
        answer: Option<(u32, i64)>,
    ) {
        let pages = pages.start..pages.end.min(self.region.pages());
        if pages.is_empty() {
            if let Some((thread, answer)) = answer {
                self.answer(thread, answer);
            }
            return;
        }
        let changes = self.changes();
        changes.last += 1;
        let number = changes.last;
        let (phase, nodes, by) = (Phase::Queued, Vec::new(), Vec::new());
        changes.all.push_back(Change { number, what, pages, owner, answer, phase, nodes, by });
        self.begin_changes();
    }

    /// Begins those whose pages no earlier one changes.
    fn begin_changes(&mut self) {
        while let Some(number) = self.changes().first_free() {
            self.next_phase(number);
        }
    }

    /// A node has done what it was told of a change.
    pub(super) fn done(&mut self, node: NodeId, number: u64) {
        let change = self.changes().all.iter_mut().find(|it| it.number == number);
        // One that has had no thread is told, and not waited for.
        let Some(change) = change else { return };
        let before = change.by.len();
        change.by.retain(|other| *other != node);
        if change.by.is_empty() && before > 0 {
            self.next_phase(number);
        }
    }

    fn next_phase(&mut self, number: u64) {
        let nodes = self.names.len() as NodeId;
        let origin = self.origin();
        let used = (0..nodes).filter(|&it| origin.is_used[it as usize]);
        let all = &mut origin.changes.all;
        let at = all.iter().position(|it| it.number == number).expect("it goes on");
        let it = &mut all[at];
        let (first, pages) = (it.pages.start, it.pages.end - it.pages.start);
        let (change, owner) = (number, it.owner);
        let mut answer = None;
        let (phase, word) = match (it.phase, it.what) {
            (Phase::Queued, What::Protect(protection)) => {
                (Phase::Protecting, Word::Protect { change, first, pages, protection })
            }
            (Phase::Queued, what) => {
                let protection = (what == What::Unmap).then_some(0);
                (Phase::Closing, Word::Close { change, first, pages, protection })
            }
            (Phase::Closing, what) => {
                let protection = match what {
                    What::Renew(protection) => protection,
                    // Who unmaps goes on: nobody can use them, and the rest is ours.
                    _ => {
                        answer = it.answer.take();
                        None
                    }
                };
                let unmapped = it.what == What::Unmap;
                let word = Word::Renew { change, first, pages, owner, protection, unmapped };
                (Phase::Dropping, word)
            }
            (Phase::Dropping, What::Lay(kind)) => {
                (Phase::Protecting, Word::Lay { change, first, pages, kind })
            }
            (Phase::Protecting | Phase::Dropping, what) => {
                answer = it.answer.take();
                all.remove(at);
                if !matches!(what, What::Protect(_) | What::Lay(_)) {
                    self.tell_all(Word::Open { first, pages });
                }
                return self.after_phase(answer);
            }
        };
        if it.phase == Phase::Queued {
            // A thread that comes to another meanwhile finds there what was told.
            it.nodes = used.collect();
        }
        (it.phase, it.by) = (phase, it.nodes.clone());
        self.tell_all(word);
        self.after_phase(answer);
    }

    fn after_phase(&mut self, answer: Option<(u32, i64)>) {
        if let Some((thread, answer)) = answer {
            self.answer(thread, answer);
        }
        self.begin_changes();
    }

    /// Tells the others, and then ourselves.
    pub(super) fn tell_all(&mut self, word: Word) {
        (1..self.names.len() as NodeId).for_each(|node| self.say(node, word));
        self.mapped(word);
    }
}
