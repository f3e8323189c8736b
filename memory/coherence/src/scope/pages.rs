//! The pages of a node: page faults, write notices, scopes, and the rules that they apply.

use std::ops::Range;

use super::event::{Action, Body, Kept};
use super::node::{Node, Scope};
use super::page::{PageAction, PageEvent, State};
use crate::message::{Header, Lock, NodeId, Op, Page};
use crate::ride::Carrier;
use crate::run::{self, Run};

/// Maximum number of pages whose diffs one message carries.
const DIFFS_MAX: usize = 64;

/// Further details of a page's event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detail {
    /// The node that requests the page.
    Requester(NodeId),
    /// The page's index in the message that just arrived.
    Index(usize),
    /// The page's index in a kept message.
    Kept(Kept, usize),
}

impl Node {
    /// Handles a page fault of a task.
    pub(super) fn fault(&mut self, page: Page, event: PageEvent, actions: &mut Vec<Action>) {
        assert!(page < self.pages(), "page {page} is not allocated");
        let entry = self.pages.of(page);
        if event == PageEvent::Write {
            self.counts.write_faults += 1;
            entry.counts.written += 1;
        } else {
            self.counts.read_faults += 1;
        }
        match self.barrier.is_quiet {
            true => self.waiting_faults.push(page),
            false => self.fault_and_prefetch(page, event, actions),
        }
    }

    /// Lets faults that waited for the barrier retry.
    pub(super) fn retry_faults(&mut self, actions: &mut Vec<Action>) {
        actions.extend(std::mem::take(&mut self.waiting_faults).into_iter().map(Action::Wake));
    }

    /// Returns true if the event can happen to the page in its state.
    pub(super) fn is_possible(&self, page: Page, event: PageEvent) -> bool {
        self.state(page).is_some_and(|state| state.rule(event).is_some())
    }

    /// Applies the rule for an event. A local event without a rule is a bug of this node. Events
    /// that messages cause are checked before.
    pub(super) fn apply(
        &mut self,
        page: Page,
        event: PageEvent,
        detail: Option<Detail>,
        actions: &mut Vec<Action>,
    ) {
        let entry = self.pages.of(page);
        let Some(rule) = entry.state.rule(event) else {
            panic!("page {page}, {:?}: {event:?} cannot happen", entry.state);
        };
        if rule.next == State::Invalid && entry.state != State::Invalid {
            entry.counts.dropped += 1;
            self.counts.dropped += 1;
        }
        self.counts.rules[rule.state as usize][event as usize] += 1;
        entry.state = rule.next;
        let (home, since) = (entry.home, entry.since);
        if rule.state == State::Ridden && rule.next != State::Ridden {
            self.end_ride(page, rule.next != State::Invalid);
        }
        if rule.state == State::Prefetching && rule.next != State::Prefetching {
            self.end_prefetch(page, rule.next);
        }
        if event == PageEvent::Arrive {
            debug_assert!(self.fetches > 0, "page {page} arrives without a request");
            self.fetches -= 1;
            self.counts.fetching.add(self.now.saturating_sub(since));
            self.forget_notices();
        }
        for action in rule.actions {
            self.act(page, home, *action, detail, actions);
        }
    }

    /// Carries out an action of a rule.
    fn act(
        &mut self,
        page: Page,
        home: NodeId,
        action: PageAction,
        detail: Option<Detail>,
        actions: &mut Vec<Action>,
    ) {
        match action {
            PageAction::Ask => {
                let entry = self.pages.of(page);
                entry.since = self.now;
                entry.counts.fetched += 1;
                self.fetches += 1;
                let along = self.take_along(page);
                let header = Header { scope: page, ..self.header(home, Op::GetPage, 0) };
                self.post(header, Body::Empty, along, actions);
            }
            PageAction::Fill => actions.push(match detail {
                Some(Detail::Kept(kept, index)) => Action::FillKept(page, kept, index),
                Some(Detail::Index(index)) => Action::Fill(page, index),
                _ => Action::Fill(page, 0),
            }),
            PageAction::Twin => actions.push(Action::Twin(page)),
            PageAction::MapRead => actions.push(Action::MapRead(page)),
            PageAction::MapWrite => actions.push(Action::MapWrite(page)),
            PageAction::Protect => actions.push(Action::Protect(page)),
            PageAction::Unmap => actions.push(Action::Unmap(page)),
            PageAction::Wake => actions.push(Action::Wake(page)),
            // The driver applies the diffs of all pages in a message at once.
            PageAction::Change if actions.last() == Some(&Action::Change) => {}
            PageAction::Change => actions.push(Action::Change),
            PageAction::Record => {
                self.writable.push(page);
                for scope in &mut self.scopes {
                    scope.written.push(page);
                }
            }
            PageAction::Diff => {
                debug_assert!(home != self.options.me, "page {page}: a diff for its own home");
                self.counts.diffs += 1;
                actions.push(Action::Diff(page, home));
                let batched = self.batched_diffs.entry(home).or_default();
                *batched += 1;
                if *batched == DIFFS_MAX {
                    self.batched_diffs.remove(&home);
                    self.send_diffs(home, actions);
                }
            }
            PageAction::Answer => {
                let Some(Detail::Requester(requester)) = detail else {
                    panic!("page {page}: an answer without a requester")
                };
                let rides = self.send_rides(requester, Carrier::Page, Some(page), &[], actions);
                let header = self.header(requester, Op::GetPageGrant, 0);
                let header = Header { scope: page, ..header };
                self.post(header, Body::Page(page), rides, actions);
            }
        }
    }

    /// Opens a scope: later writes are recorded in it too.
    pub(super) fn open(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        debug_assert!(
            self.scopes.iter().all(|scope| scope.lock != Some(lock)),
            "the scope of lock {lock} is open"
        );
        for page in std::mem::take(&mut self.writable) {
            if matches!(self.pages.of(page).state, State::Dirty | State::HomeDirty) {
                self.apply(page, PageEvent::Open, None, actions);
            }
        }
        self.scopes.push(Scope { lock: Some(lock), written: Vec::new() });
    }

    /// Sends the diffs of the pages that were written in a scope. Returns the pages as runs.
    pub(super) fn flush(&mut self, mut written: Vec<Page>, actions: &mut Vec<Action>) -> Vec<Run> {
        written.sort_unstable();
        written.dedup();
        for &page in &written {
            self.learn_change(self.options.me, page..page + 1);
            self.apply(page, PageEvent::Flush, None, actions);
        }
        self.send_batched_diffs(actions);
        let me = self.options.me;
        run::of(written.into_iter().map(|page| {
            let whole = !matches!(
                self.pages.of(page).state,
                State::Invalid | State::Prefetching | State::Ridden
            );
            (page, if whole { me } else { run::NOBODY })
        }))
    }

    /// Handles write notices: other nodes wrote these pages.
    pub(super) fn notice(&mut self, runs: &[Run], actions: &mut Vec<Action>) {
        let pages = self.pages();
        if self.is_requesting() {
            self.rides.notices.extend_from_slice(runs);
        }
        for run in runs {
            let mut pages = run.first..run.range().end.min(pages);
            while let Some(page) = self.next_noticed(&mut pages) {
                self.apply(page, PageEvent::Notice, None, actions);
            }
        }
        self.send_batched_diffs(actions);
    }

    /// Returns the next of these pages for which a write notice may have an effect. Counts the
    /// notices of the pages before it: their home is elsewhere, and this node has no copy.
    pub(super) fn next_noticed(&mut self, pages: &mut Range<Page>) -> Option<Page> {
        let next = self.pages.next_touched(pages.clone());
        let rules = &mut self.counts.rules[State::Invalid as usize];
        rules[PageEvent::Notice as usize] += next - pages.start;
        pages.start = next;
        pages.next()
    }

    /// Returns true if an answer is in flight that could carry rides.
    fn is_requesting(&self) -> bool {
        self.fetches > 0 || self.locks_requested > 0
    }

    /// Forgets the write notices if no answer is in flight that they could affect.
    pub(super) fn forget_notices(&mut self) {
        if !self.is_requesting() {
            self.rides.notices.clear();
        }
    }
}
