//! Prefetching: the pages that a request names in addition, and the pages that a grant carries in
//! addition. The [forecast](crate::ride::forecast) predicts pages from this node's own faults.
//! Consistency does not depend on its predictions.
//!
//! **Requesting.** A request names pages of which this node has no copy and no request in flight,
//! and whose last known owner is its receiver. Until the answer arrives they are in a `Prefetching`
//! state. A task that faults on one waits for the answer, and sends a request only if the page was
//! not sent. So each page that arrives was requested, and a node has at most one request for a page
//! in flight.
//!
//! **Granting.** A prefetched page has the contents of an answer to a request. The node that
//! answers sends those named pages that it owns and for which no request is queued. It sends
//! ownership only if no other node has a copy, so that no invalidation is needed. It records the
//! new owner, as for a requested page, so later requests are forwarded.
//!
//! **Unused pages.** Memory that a program has just allocated holds zeros, and its owner knows that
//! no task has used it. Any request for such a page gets ownership, also a read request: the reader
//! will write it and would need a second request. Only other unused pages are sent with it, which
//! cost one bit each. If tasks of the owner use such pages first, it maps more of them at once.
//!
//! **Selection.** Every page may be predicted, unless a driver registers the pages that exist
//! ([`Node::predict_only_allowed`]).
//!
//! **Feedback.** Prefetched pages are mapped, except for the last predicted one, the *mark*. Its
//! first use is a fault without a message, and shows that all of them were useful. If it is taken
//! away unused, none of them counts as useful.

use std::collections::BTreeSet;
use std::ops::Range;

use super::event::Action;
use super::message::PAGES_MAX;
use super::node::Node;
use super::nodes::Nodes;
use super::page::{PageEvent, State};
use super::pages::Detail;
use super::prefetches::{PageSet, Prefetches};
use super::table::{Entry, FirstUse, Fresh};
use crate::message::{NodeId, Page};
use crate::ride::{By, Carrier, Fate, Ride};
use crate::run::{self, Run};

/// Maximum number of prefetched pages with their bytes. More would delay the requester longer than
/// another request. Unused pages cost one bit each.
const WHOLE_MAX: usize = 32;

/// Maximum number of pages that become writable together after reads, since other nodes lose their
/// copies.
const WRITES_MAX: Page = 16;

impl Node {
    /// Restricts prediction to pages that [`allow_prediction`](Self::allow_prediction) registers,
    /// because the node does not know which other pages the program uses.
    pub fn predict_only_allowed(&mut self) {
        self.prefetches.predictable = Some(PageSet::default());
    }

    /// Registers pages that may be predicted.
    pub fn allow_prediction(&mut self, pages: Range<Page>) {
        if let Some(predictable) = &mut self.prefetches.predictable {
            predictable.add(pages);
        }
    }

    /// Unregisters pages: they may not be predicted any more.
    pub fn forbid_prediction(&mut self, pages: Range<Page>) {
        if let Some(predictable) = &mut self.prefetches.predictable {
            predictable.remove(pages);
        }
    }

    /// Makes requests of the next step name these pages, if they may, instead of predicted ones.
    /// For tests of the protocol.
    pub fn suggest(&mut self, pages: Vec<Page>) {
        self.prefetches.suggested = pages;
    }

    /// Ends the effect of [`suggest`](Self::suggest) after one step.
    pub(super) fn forget_suggested(&mut self) {
        self.prefetches.suggested.clear();
    }

    /// Selects the pages to prefetch along with a page that is requested from node `at`.
    pub(super) fn prefetch(
        &mut self,
        asked: Page,
        at: NodeId,
        write: bool,
        actions: &mut Vec<Action>,
    ) -> Vec<Run> {
        let me = self.options.me;
        if self.prefetches.is_prefetch {
            return Vec::new();
        }
        self.prefetches.forecast.asked(me, asked);
        let room = self.options.pages_max as usize - 1;
        if room == 0 || !self.prefetches.forecast.is_on() && self.prefetches.suggested.is_empty() {
            return Vec::new();
        }
        let (pages, closed) = (&self.pages, &self.closed);
        let Prefetches { forecast, suggested, predictable, .. } = &mut self.prefetches;
        let can = |page: Page| {
            let is_there = |it: Entry| it.state == State::None && it.owner == at;
            page != asked
                && predictable.as_ref().is_none_or(|predictable| predictable.has(page))
                && pages.get(page).is_some_and(is_there)
                && !closed.iter().any(|closed| closed.contains(&page))
        };
        let mut prefetches: Vec<Ride> = if suggested.is_empty() {
            let none = std::iter::empty();
            let prediction = forecast.predict(me, Carrier::Page, room, none, can);
            prediction.rides.into_iter().take(prediction.sent).collect()
        } else {
            let suggested = suggested.iter().copied().filter(|&page| can(page));
            let ride = |page| Ride { page, by: By::Chance, fate: Fate::Aboard };
            suggested.map(ride).take(room).collect()
        };
        // The forecast may return a page twice.
        let mut seen = BTreeSet::new();
        prefetches.retain(|ride| seen.insert(ride.page));
        let on = if write { PageEvent::PrefetchWrite } else { PageEvent::PrefetchRead };
        for ride in &prefetches {
            self.counts.rides[ride.by as usize].predicted += 1;
            self.apply(ride.page, on, None, actions);
        }
        let runs = run::from_pages(prefetches.iter().map(|ride| ride.page));
        if !prefetches.is_empty() {
            self.prefetches.requested.insert(asked, prefetches);
        }
        runs
    }

    /// Handles the first use of an unused page that this node owns. Maps further unused pages that
    /// tasks will use next.
    pub(super) fn map_ahead(&mut self, used: Page, actions: &mut Vec<Action>) {
        let first = actions.len() - 1;
        let (table, closed) = (&self.pages, &self.closed);
        let Prefetches { forecast, uses, suggested, predictable, .. } = &mut self.prefetches;
        let is_new = |page: Page| {
            predictable.as_ref().is_none_or(|predictable| predictable.has(page))
                && table.get(page).is_some_and(|entry| entry.is_new)
                && !closed.iter().any(|closed| closed.contains(&page))
        };
        let is_prepared =
            |page| table.get(page).is_some_and(|it| it.first_use == FirstUse::Prepared);
        let counts = forecast.is_on();
        let (pages, before): (Vec<Page>, Range<Page>) = if counts {
            let now = uses.first_use(used, PAGES_MAX.into(), is_new, is_prepared);
            (now.ready.filter(|&page| page != used).collect(), now.before)
        } else {
            (suggested.iter().copied().filter(|&page| is_new(page)).collect(), used..used)
        };
        if counts {
            self.pages.of(used).first_use = FirstUse::Used;
        }
        for page in before {
            if self.pages.get(page).is_some_and(|it| it.first_use == FirstUse::Prepared) {
                self.pages.of(page).first_use = FirstUse::Used;
            }
        }
        for page in pages {
            self.apply(page, PageEvent::Write, None, actions);
            let entry = self.pages.of(page);
            // No task was resumed at this page.
            entry.fresh = Fresh::No;
            if counts {
                entry.first_use = FirstUse::Prepared;
            }
        }
        // Sort neighbours so that they can be mapped together.
        actions[first..].sort_by_key(|action| match *action {
            Action::MapWrite(page) => page,
            _ => Page::MAX,
        });
    }

    /// Handles a reset of pages: they no longer count as used or prepared.
    pub(super) fn reset_ahead(&mut self, pages: Range<Page>) {
        let (mut used, mut prepared) = (0, 0);
        let mut page = self.pages.next_used(pages.clone());
        while page < pages.end {
            match self.pages.get(page).map(|entry| entry.first_use) {
                Some(FirstUse::Used) => used += 1,
                Some(FirstUse::Prepared) => prepared += 1,
                _ => {}
            }
            page = self.pages.next_used(page + 1..pages.end);
        }
        self.prefetches.uses.reset(pages, used, prepared);
    }

    /// Handles the first write to a page that was only read here. Also requests ownership of the
    /// pages that will be written next, or invalidates other nodes' copies of them.
    pub(super) fn write_ahead(&mut self, written: Page, actions: &mut Vec<Action>) {
        if !self.prefetches.forecast.is_on() || !self.lost.is_empty() {
            return;
        }
        let (table, closed, now) = (&self.pages, &self.closed, self.now);
        let is_read = |page: Page| {
            let nobody_waits = |entry: &Entry| {
                entry.readers.is_empty() && entry.next.is_none() && entry.invalid_for.is_none()
            };
            let entry = table.get(page).filter(nobody_waits);
            entry.is_some_and(|entry| matches!(entry.state, State::ReadOnly | State::ReadOwner))
                && !closed.iter().any(|closed| closed.contains(&page))
        };
        let writes = &mut self.prefetches.writes;
        let ready = writes.first_use(written, WRITES_MAX, is_read, |_| false).ready;
        let pages: Vec<Page> = ready.filter(|&page| page != written).collect();
        self.prefetches.is_prefetch = true;
        for page in pages {
            let entry = self.pages.of(page);
            entry.since = now;
            let is_ours = entry.state == State::ReadOwner && entry.copies.is_empty();
            let on = if is_ours { PageEvent::Claim } else { PageEvent::Write };
            self.apply(page, on, None, actions);
            if is_ours {
                // No task was resumed at this page.
                self.pages.of(page).fresh = Fresh::No;
            }
        }
        self.prefetches.is_prefetch = false;
    }

    /// Stores the pages to prefetch that a queued request names.
    pub(super) fn keep_prefetches(&mut self, page: Page, requester: NodeId, prefetches: &[Run]) {
        if !prefetches.is_empty() {
            self.prefetches.waiting.insert((page, requester), prefetches.to_vec());
        }
    }

    /// Takes the pages to prefetch that a queued request named.
    pub(super) fn kept_prefetches(&mut self, page: Page, requester: NodeId) -> Vec<Run> {
        self.prefetches.waiting.remove(&(page, requester)).unwrap_or_default()
    }

    /// Discards the prefetches of a lost node.
    pub(super) fn forget_prefetches_of(&mut self, node: NodeId) {
        self.prefetches.waiting.retain(|(_, requester), _| *requester != node);
    }

    /// Returns true if all of these pages were requested along with `asked`.
    pub(super) fn are_requested_with(&self, asked: Page, rides: &[Run]) -> bool {
        let prefetches = self.prefetches.requested.get(&asked).map_or(&[][..], Vec::as_slice);
        let is_prefetch = |page| prefetches.iter().any(|prefetch| prefetch.page == page);
        rides.iter().flat_map(Run::range).all(is_prefetch)
    }

    /// Handles the prefetched pages of a grant. `before` is the number of pages before them in the
    /// message.
    pub(super) fn prefetches_arrive(
        &mut self,
        asked: Page,
        from: NodeId,
        write: bool,
        rides: &[Run],
        before: usize,
        actions: &mut Vec<Action>,
    ) {
        let Some(prefetches) = self.prefetches.requested.remove(&asked) else { return };
        let place = |page| rides.iter().flat_map(Run::range).position(|came| came == page);
        let came: Vec<Ride> =
            prefetches.iter().copied().filter(|ride| place(ride.page).is_some()).collect();
        let mark = came.last().map(|ride| ride.page);
        for ride in prefetches {
            let entry = self.pages.of(ride.page);
            let is_wanted = std::mem::take(&mut entry.is_wanted);
            let Some(place) = place(ride.page) else {
                // The page may be sent next time.
                self.prefetches.forecast.changed(from, ride.page..ride.page + 1, false, true);
                self.apply(ride.page, PageEvent::NotSent, None, actions);
                if !is_wanted {
                    actions.pop_if(|last| *last == Action::Wake(ride.page));
                }
                continue;
            };
            entry.owner = if write { self.options.me } else { from };
            let is_mark = mark == Some(ride.page) && !is_wanted;
            let on = match (write && entry.state == State::PrefetchingRead, is_mark) {
                (false, false) => PageEvent::Ride,
                (false, true) => PageEvent::Mark,
                (true, false) => PageEvent::RideOwn,
                (true, true) => PageEvent::MarkOwn,
            };
            self.counts.rides[ride.by as usize].sent += 1;
            self.apply(ride.page, on, Some(Detail::Index(before + place)), actions);
            if !is_wanted {
                // No task was resumed at this page.
                self.pages.of(ride.page).fresh = Fresh::No;
            }
            if is_mark {
                self.prefetches.unused.insert(ride.page, came.clone());
            } else if mark == Some(ride.page) {
                self.learn(came.clone(), Fate::Used);
            }
        }
    }

    /// Records the fate of the pages that arrived with a mark.
    pub(super) fn end_mark(&mut self, page: Page, fate: Fate) {
        if let Some(came) = self.prefetches.unused.remove(&page) {
            self.learn(came, fate);
        }
    }

    fn learn(&mut self, came: Vec<Ride>, fate: Fate) {
        for ride in came {
            let counts = &mut self.counts.rides[ride.by as usize];
            *(if fate == Fate::Used { &mut counts.used } else { &mut counts.wasted }) += 1;
            self.prefetches.forecast.learn(self.options.me, Ride { fate, ..ride });
        }
    }

    /// Records that the copy of a page is gone, because another node writes it.
    pub(super) fn learn_invalidation(&mut self, page: Page, writer: NodeId) {
        self.prefetches.forecast.changed(writer, page..page + 1, false, true);
    }

    /// Selects at most `room` of the named pages for a grant, and changes their state.
    pub(super) fn send_prefetches(
        &mut self,
        requester: NodeId,
        asked: Page,
        write: bool,
        prefetches: &[Run],
        room: usize,
        actions: &mut Vec<Action>,
    ) -> Vec<Page> {
        let on = if write { PageEvent::SendWrite } else { PageEvent::SendRead };
        let mut sent = Vec::new();
        for page in prefetches.iter().flat_map(Run::range) {
            if sent.len() == room.min(WHOLE_MAX) {
                break;
            }
            // Unused pages are better requested directly, because the request gets ownership.
            let is_new = self.pages.get(page).is_some_and(|entry| entry.is_new);
            if page == asked || is_new && !write || !self.can_send(requester, page, write) {
                continue;
            }
            self.apply(page, on, None, actions);
            let entry = self.pages.of(page);
            if write {
                entry.owner = requester;
                entry.copies = Default::default();
            } else {
                entry.copies.insert(requester);
            }
            sent.push(page);
        }
        sent
    }

    /// Selects the named pages that no task has used, for the grant of another unused page.
    pub(super) fn send_new(
        &mut self,
        requester: NodeId,
        asked: Page,
        prefetches: &[Run],
    ) -> Vec<Page> {
        let room = self.options.pages_max as usize - 1;
        let is_new =
            |page: &Page| *page != asked && self.pages.get(*page).is_some_and(|entry| entry.is_new);
        let pages = prefetches.iter().flat_map(Run::range).filter(is_new);
        let sent: Vec<Page> = pages.take(room).collect();
        for &page in &sent {
            self.apply(page, PageEvent::SendNew, None, &mut Vec::new());
            self.pages.of(page).owner = requester;
        }
        sent
    }

    fn can_send(&self, requester: NodeId, page: Page, write: bool) -> bool {
        let Some(entry) = self.pages.get(page) else { return false };
        let until = entry.since.saturating_add(self.options.rest);
        let rests = entry.since == 0 || self.now >= until;
        let is_used = !self.is_fresh(page) || self.now > until;
        let stays = entry.state == State::ReadOwner && !write;
        entry.state.owns()
            && (stays || rests && is_used)
            && entry.readers.is_empty()
            && entry.next.is_none()
            && (!write || entry.copies.without(Nodes::one(requester)).is_empty())
    }
}
