//! How the memory map changes on all nodes: the origin coordinates, by [`node::changes`].
//!
//! What may be done with pages changes in one step. Pages that are unmapped, or are to be zeros,
//! are reset. The origin waits for nodes that have had threads: others have nothing of any page,
//! and are told before they get a thread.

use std::ops::Range;

use coherence::message::{NodeId, Page};
use node::changes::{APPLY, Change, Next, RESET, RESET_AND_APPLY, Step};
use node::driver::Driver as _;
use node::sequential::Replica as _;
use pager::PagerError;
use rustix::mm::MprotectFlags;

use super::{Agent, Origin};
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

/// What a change is for.
#[derive(Debug)]
pub struct Wish {
    what: What,
    /// The owner of pages that are reset.
    owner: NodeId,
    /// The thread that wants it, and the answer that it gets.
    answer: Option<(u32, i64)>,
}

/// The changes that the origin coordinates.
pub type Changes = node::changes::Changes<Wish>;

/// Of a node.
impl Agent {
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
        let all = self.engine.memory.pages();
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
                self.end_leases(&range, protection.is_some());
                let done = match protection {
                    Some(_) => self.forbid(range.clone()),
                    None => Ok(()),
                };
                self.close_pages(0, change, range);
                self.say_quiet();
                done
            }
            Word::Lay { change, kind, .. } => {
                self.opens(&range);
                let laid = self.lay(range.clone(), kind);
                if kind == Laid::Shared {
                    self.offer_copies(&range);
                }
                self.say_done(change);
                // Who is stopped there tries again.
                laid.and_then(|()| self.engine.memory.wake_all(range))
            }
            Word::Renew { change, owner, protection, unmapped, .. } => {
                let done = self
                    .reset_pages(range.clone(), owner)
                    .and_then(|()| self.end_laid(range.clone()))
                    .and_then(|()| self.protect(range.clone(), protection));
                if unmapped {
                    self.engine.memory.close(range);
                }
                self.say_done(change);
                done
            }
            _ => {
                self.is_laid_no_more(&range);
                self.opens(&range);
                self.engine.memory.wake_all(range)
            }
        };
        if let Err(error) = done {
            self.end(1, &format!("{}: {error}", self.names[self.me as usize]));
        }
        true
    }

    /// Threads may use these pages again.
    fn opens(&mut self, pages: &Range<Page>) {
        self.open_pages(pages);
        let now = self.now();
        self.waits.all_go_on(pages.clone(), now);
        self.seen(|seen, now| seen.all_go_on(pages, now));
    }

    /// Nothing may be done with what is there of these pages.
    fn forbid(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        if let Some(origin) = &mut self.origin {
            origin.protects(&(pages.start * PAGE..pages.end * PAGE), 0);
        }
        self.pages.node.may_not_foresee(pages.clone());
        self.engine.memory.restrict_open(pages, MprotectFlags::empty())
    }

    /// This may be done with pages, which are mapped if they are not.
    fn protect(&mut self, pages: Range<Page>, to: Option<u32>) -> Result<(), PagerError> {
        let Some(protection) = to else { return Ok(()) };
        if let Some(origin) = &mut self.origin {
            origin.protects(&(pages.start * PAGE..pages.end * PAGE), protection);
        }
        self.engine.memory.open(pages.clone())?;
        match protection {
            0 => self.pages.node.may_not_foresee(pages.clone()),
            _ => self.pages.node.may_foresee(pages.clone()),
        }
        self.engine.memory.restrict(pages, MprotectFlags::from_bits_truncate(protection))
    }

    /// Acknowledges the closing of pages of which nothing is under way any more.
    pub(super) fn say_quiet(&mut self) {
        self.take_quiet().into_iter().for_each(|(_, change)| self.say_done(change));
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
        let pages = pages.start..pages.end.min(self.engine.memory.pages());
        if pages.is_empty() {
            if let Some((thread, answer)) = answer {
                self.answer(thread, answer);
            }
            return;
        }
        let steps = match what {
            What::Protect(_) => APPLY,
            What::Renew(_) | What::Unmap => RESET,
            What::Lay(_) => RESET_AND_APPLY,
        };
        self.changes().add(steps, pages, Wish { what, owner, answer });
        self.begin_changes();
    }

    /// Begins those whose pages no earlier one changes.
    fn begin_changes(&mut self) {
        loop {
            let Origin { changes, is_used, .. } = self.origin();
            // A thread that comes to another node meanwhile finds there what was sent.
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
            // A node that has had no thread takes no part, and acknowledges all the same.
            Ok(None) | Err(_) => {}
        }
    }

    /// Tells all nodes to take a step.
    fn take_step(&mut self, number: u64, step: Step) {
        let it = self.changes().get_mut(number).expect("it goes on");
        let (first, pages) = (it.pages.start, it.pages.end - it.pages.start);
        let (change, owner, what) = (number, it.what.owner, it.what.what);
        let mut answer = None;
        let word = match (step, what) {
            (Step::Apply, What::Protect(protection)) => {
                Word::Protect { change, first, pages, protection }
            }
            (Step::Apply, What::Lay(kind)) => Word::Lay { change, first, pages, kind },
            (Step::Close, what) => {
                let protection = (what == What::Unmap).then_some(0);
                Word::Close { change, first, pages, protection }
            }
            (Step::Reset, what) => {
                let protection = match what {
                    What::Renew(protection) => protection,
                    // A thread that unmaps resumes: nobody can use the pages.
                    _ => {
                        answer = it.what.answer.take();
                        None
                    }
                };
                let unmapped = what == What::Unmap;
                Word::Renew { change, first, pages, owner, protection, unmapped }
            }
            (Step::Apply, What::Renew(_) | What::Unmap) => unreachable!("a reset is over"),
        };
        self.tell_all(word);
        if let Some((thread, answer)) = answer {
            self.answer(thread, answer);
        }
    }

    /// All nodes have made a change.
    fn finish(&mut self, change: Change<Wish>) {
        let Wish { what, answer, .. } = change.what;
        if !matches!(what, What::Protect(_) | What::Lay(_)) {
            let (first, pages) = (change.pages.start, change.pages.end - change.pages.start);
            self.tell_all(Word::Open { first, pages });
        }
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
