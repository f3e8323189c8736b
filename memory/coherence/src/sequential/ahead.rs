//! Prefetching: the pages that a request names in addition, and the pages that a grant carries in
//! addition. The [forecast](crate::ride::forecast) predicts pages from this node's own faults.
//! Consistency does not depend on its predictions.
//!
//! **Requesting.** A request names pages of which this node has no copy and no request in flight,
//! and whose last known owner is its receiver. Until the answer arrives they are in a `Hoping`
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
//! ([`Node::foresee_only_told`]).
//!
//! **Feedback.** Prefetched pages are mapped, except for the last predicted one, the *mark*. Its
//! first use is a fault without a message, and shows that all of them were useful. If it is taken
//! away unused, none of them counts as useful.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::event::Action;
use super::message::PAGES_MAX;
use super::node::{Detail, Node};
use super::nodes::Nodes;
use super::page::{Happens, State};
use super::table::{Entry, FirstUse, Fresh};
use crate::message::{NodeId, Page};
use crate::ride::forecast::Forecast;
use crate::ride::sweeps::Sweeps;
use crate::ride::{By, Carrier, Fate, Ride};
use crate::run::{self, NOBODY, Run};

/// Maximum number of prefetched pages with their bytes. More would delay the requester longer than
/// another request. Unused pages cost one bit each.
const WHOLE_MAX: usize = 32;

/// Maximum number of pages that become writable together after reads, since other nodes lose their
/// copies.
const WRITES_MAX: Page = 16;

/// A set of pages as disjoint ranges that do not touch: start to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Told(BTreeMap<Page, Page>);

impl Told {
    fn has(&self, page: Page) -> bool {
        self.0.range(..=page).next_back().is_some_and(|(_, &end)| page < end)
    }

    fn add(&mut self, pages: Range<Page>) {
        if pages.is_empty() {
            return;
        }
        let (mut start, mut end) = (pages.start, pages.end);
        while let Some((&from, &to)) = self.0.range(..=end).next_back()
            && to >= start
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    fn remove(&mut self, pages: Range<Page>) {
        while let Some((&from, &to)) = self.0.range(..pages.end).next_back()
            && to > pages.start
            && !pages.is_empty()
        {
            self.0.remove(&from);
            if to > pages.end {
                self.0.insert(pages.end, to);
            }
            if from < pages.start {
                self.0.insert(from, pages.start);
            }
        }
    }
}

/// A node's state of prefetching.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ahead {
    forecast: Forecast,
    /// First uses of unused pages, and first writes to pages that were read.
    uses: Sweeps,
    writes: Sweeps,
    /// Pages that a test selects for the next step, instead of predicted ones.
    suggested: Vec<Page>,
    /// The pages that may be predicted, if the driver registers them.
    told: Option<Told>,
    /// The current request is a prefetch itself and names no other pages.
    hopes_for_nothing: bool,
    /// The pages that are requested along with a page, in the order of their expected use.
    hopes: BTreeMap<Page, Vec<Ride>>,
    /// The pages that queued requests name, by page and requester.
    waiting: BTreeMap<(Page, NodeId), Vec<Run>>,
    /// The pages that arrived together, by mark.
    unused: BTreeMap<Page, Vec<Ride>>,
}

impl Ahead {
    pub fn new(forecast: Forecast) -> Self {
        Self { forecast, uses: Sweeps::of_memory(), ..Self::default() }
    }

    /// Returns true if no prefetch is in flight.
    pub fn is_idle(&self) -> bool {
        self.hopes.is_empty()
    }
}

impl Node {
    /// Restricts prediction to pages that [`may_foresee`](Self::may_foresee) registers, because the
    /// node does not know which other pages the program uses.
    pub fn foresee_only_told(&mut self) {
        self.ahead.told = Some(Told::default());
    }

    /// Registers pages that may be predicted.
    pub fn may_foresee(&mut self, pages: Range<Page>) {
        if let Some(told) = &mut self.ahead.told {
            told.add(pages);
        }
    }

    /// Unregisters pages: they may not be predicted any more.
    pub fn may_not_foresee(&mut self, pages: Range<Page>) {
        if let Some(told) = &mut self.ahead.told {
            told.remove(pages);
        }
    }

    /// Makes requests of the next step name these pages, if they may, instead of predicted ones.
    /// For tests of the protocol.
    pub fn suggest(&mut self, pages: Vec<Page>) {
        self.ahead.suggested = pages;
    }

    /// Ends the effect of [`suggest`](Self::suggest) after one step.
    pub(super) fn forget_suggested(&mut self) {
        self.ahead.suggested.clear();
    }

    /// Selects the pages to prefetch along with a page that is requested from node `at`.
    pub(super) fn hope(
        &mut self,
        asked: Page,
        at: NodeId,
        write: bool,
        actions: &mut Vec<Action>,
    ) -> Vec<Run> {
        let me = self.options.me;
        if self.ahead.hopes_for_nothing {
            return Vec::new();
        }
        self.ahead.forecast.asked(me, asked);
        let room = self.options.pages_max as usize - 1;
        if room == 0 || !self.ahead.forecast.is_on() && self.ahead.suggested.is_empty() {
            return Vec::new();
        }
        let (pages, closed) = (&self.pages, &self.closed);
        let Ahead { forecast, suggested, told, .. } = &mut self.ahead;
        let can = |page: Page| {
            let is_there = |it: Entry| it.state == State::None && it.owner == at;
            page != asked
                && told.as_ref().is_none_or(|told| told.has(page))
                && pages.get(page).is_some_and(is_there)
                && !closed.iter().any(|closed| closed.contains(&page))
        };
        let mut hopes: Vec<Ride> = if suggested.is_empty() {
            let none = std::iter::empty();
            let foreseen = forecast.foresee(me, Carrier::Page, room, none, can);
            foreseen.rides.into_iter().take(foreseen.sent).collect()
        } else {
            let suggested = suggested.iter().copied().filter(|&page| can(page));
            let ride = |page| Ride { page, by: By::Chance, fate: Fate::Aboard };
            suggested.map(ride).take(room).collect()
        };
        // The forecast may return a page twice.
        let mut seen = BTreeSet::new();
        hopes.retain(|ride| seen.insert(ride.page));
        let on = if write { Happens::HopeToWrite } else { Happens::HopeToRead };
        for ride in &hopes {
            self.counts.rides[ride.by as usize].predicted += 1;
            self.happens(ride.page, on, None, actions);
        }
        let runs = runs(hopes.iter().map(|ride| ride.page));
        if !hopes.is_empty() {
            self.ahead.hopes.insert(asked, hopes);
        }
        runs
    }

    /// Handles the first use of an unused page that this node owns. Maps further unused pages that
    /// tasks will use next.
    pub(super) fn use_ahead(&mut self, used: Page, actions: &mut Vec<Action>) {
        let first = actions.len() - 1;
        let (table, closed) = (&self.pages, &self.closed);
        let Ahead { forecast, uses, suggested, told, .. } = &mut self.ahead;
        let is_new = |page: Page| {
            told.as_ref().is_none_or(|told| told.has(page))
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
            self.happens(page, Happens::Write, None, actions);
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
        self.ahead.uses.reset(pages, used, prepared);
    }

    /// Handles the first write to a page that was only read here. Also requests ownership of the
    /// pages that will be written next, or invalidates other nodes' copies of them.
    pub(super) fn write_ahead(&mut self, written: Page, actions: &mut Vec<Action>) {
        if !self.ahead.forecast.is_on() || !self.lost.is_empty() {
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
        let writes = &mut self.ahead.writes;
        let ready = writes.first_use(written, WRITES_MAX, is_read, |_| false).ready;
        let pages: Vec<Page> = ready.filter(|&page| page != written).collect();
        self.ahead.hopes_for_nothing = true;
        for page in pages {
            let entry = self.pages.of(page);
            entry.since = now;
            let is_ours = entry.state == State::ReadOwner && entry.copies.is_empty();
            let on = if is_ours { Happens::Claim } else { Happens::Write };
            self.happens(page, on, None, actions);
            if is_ours {
                // No task was resumed at this page.
                self.pages.of(page).fresh = Fresh::No;
            }
        }
        self.ahead.hopes_for_nothing = false;
    }

    /// Stores the pages to prefetch that a queued request names.
    pub(super) fn keep_hopes(&mut self, page: Page, asker: NodeId, hopes: &[Run]) {
        if !hopes.is_empty() {
            self.ahead.waiting.insert((page, asker), hopes.to_vec());
        }
    }

    /// Takes the pages to prefetch that a queued request named.
    pub(super) fn kept_hopes(&mut self, page: Page, asker: NodeId) -> Vec<Run> {
        self.ahead.waiting.remove(&(page, asker)).unwrap_or_default()
    }

    /// Discards the prefetches of a lost node.
    pub(super) fn forget_hopes_of(&mut self, node: NodeId) {
        self.ahead.waiting.retain(|(_, asker), _| *asker != node);
    }

    /// Returns true if all of these pages were requested along with `asked`.
    pub(super) fn hopes_for(&self, asked: Page, rides: &[Run]) -> bool {
        let hopes = self.ahead.hopes.get(&asked).map_or(&[][..], Vec::as_slice);
        let hoped = |page| hopes.iter().any(|hope| hope.page == page);
        rides.iter().flat_map(Run::range).all(hoped)
    }

    /// Handles the prefetched pages of a grant. `before` is the number of pages before them in the
    /// message.
    pub(super) fn came_along(
        &mut self,
        asked: Page,
        from: NodeId,
        write: bool,
        rides: &[Run],
        before: usize,
        actions: &mut Vec<Action>,
    ) {
        let Some(hopes) = self.ahead.hopes.remove(&asked) else { return };
        let place = |page| rides.iter().flat_map(Run::range).position(|came| came == page);
        let came: Vec<Ride> =
            hopes.iter().copied().filter(|ride| place(ride.page).is_some()).collect();
        let mark = came.last().map(|ride| ride.page);
        for ride in hopes {
            let entry = self.pages.of(ride.page);
            let is_wanted = std::mem::take(&mut entry.is_wanted);
            let Some(place) = place(ride.page) else {
                // The page may be sent next time.
                self.ahead.forecast.changed(from, ride.page..ride.page + 1, false, true);
                self.happens(ride.page, Happens::Stay, None, actions);
                if !is_wanted {
                    actions.pop_if(|last| *last == Action::Wake(ride.page));
                }
                continue;
            };
            entry.owner = if write { self.options.me } else { from };
            let is_mark = mark == Some(ride.page) && !is_wanted;
            let on = match (write && entry.state == State::HopingToRead, is_mark) {
                (false, false) => Happens::Ride,
                (false, true) => Happens::Mark,
                (true, false) => Happens::RideOwn,
                (true, true) => Happens::MarkOwn,
            };
            self.counts.rides[ride.by as usize].sent += 1;
            self.happens(ride.page, on, Some(Detail::Place(before + place)), actions);
            if !is_wanted {
                // No task was resumed at this page.
                self.pages.of(ride.page).fresh = Fresh::No;
            }
            if is_mark {
                self.ahead.unused.insert(ride.page, came.clone());
            } else if mark == Some(ride.page) {
                self.learn(came.clone(), Fate::Used);
            }
        }
    }

    /// Records the fate of the pages that arrived with a mark.
    pub(super) fn mark_is(&mut self, page: Page, fate: Fate) {
        if let Some(came) = self.ahead.unused.remove(&page) {
            self.learn(came, fate);
        }
    }

    fn learn(&mut self, came: Vec<Ride>, fate: Fate) {
        for ride in came {
            let counts = &mut self.counts.rides[ride.by as usize];
            *(if fate == Fate::Used { &mut counts.used } else { &mut counts.wasted }) += 1;
            self.ahead.forecast.learn(self.options.me, Ride { fate, ..ride });
        }
    }

    /// Records that the copy of a page is gone, because another node writes it.
    pub(super) fn is_out_of_date(&mut self, page: Page, writer: NodeId) {
        self.ahead.forecast.changed(writer, page..page + 1, false, true);
    }

    /// Selects at most `room` of the named pages for a grant, and changes their state.
    pub(super) fn lend(
        &mut self,
        asker: NodeId,
        asked: Page,
        write: bool,
        hopes: &[Run],
        room: usize,
        actions: &mut Vec<Action>,
    ) -> Vec<Page> {
        let on = if write { Happens::LendWrite } else { Happens::LendRead };
        let mut lent = Vec::new();
        for page in hopes.iter().flat_map(Run::range) {
            if lent.len() == room.min(WHOLE_MAX) {
                break;
            }
            // Unused pages are better requested directly, because the request gets ownership.
            let is_new = self.pages.get(page).is_some_and(|entry| entry.is_new);
            if page == asked || is_new && !write || !self.can_lend(asker, page, write) {
                continue;
            }
            self.happens(page, on, None, actions);
            let entry = self.pages.of(page);
            if write {
                entry.owner = asker;
                entry.copies = Default::default();
            } else {
                entry.copies.insert(asker);
            }
            lent.push(page);
        }
        lent
    }

    /// Selects the named pages that no task has used, for the grant of another unused page.
    pub(super) fn lend_new(&mut self, asker: NodeId, asked: Page, hopes: &[Run]) -> Vec<Page> {
        let room = self.options.pages_max as usize - 1;
        let is_new =
            |page: &Page| *page != asked && self.pages.get(*page).is_some_and(|entry| entry.is_new);
        let pages = hopes.iter().flat_map(Run::range).filter(is_new);
        let lent: Vec<Page> = pages.take(room).collect();
        for &page in &lent {
            self.happens(page, Happens::LendNew, None, &mut Vec::new());
            self.pages.of(page).owner = asker;
        }
        lent
    }

    fn can_lend(&self, asker: NodeId, page: Page, write: bool) -> bool {
        let Some(entry) = self.pages.get(page) else { return false };
        let until = entry.since.saturating_add(self.options.rest);
        let rests = entry.since == 0 || self.now >= until;
        let is_used = !self.is_fresh(page) || self.now > until;
        let stays = entry.state == State::ReadOwner && !write;
        entry.state.owns()
            && (stays || rests && is_used)
            && entry.readers.is_empty()
            && entry.next.is_none()
            && (!write || entry.copies.without(Nodes::one(asker)).is_empty())
    }
}

/// Returns pages in any order as ascending runs.
pub(super) fn runs(pages: impl Iterator<Item = Page>) -> Vec<Run> {
    let mut pages: Vec<Page> = pages.collect();
    pages.sort_unstable();
    run::of(pages.into_iter().map(|page| (page, NOBODY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_announced_entries_exist_until_they_are_withdrawn() {
        let mut told = Told::default();
        [3..4, 63..65, 200..201, 65..66, 64..66].into_iter().for_each(|pages| told.add(pages));
        let has = |told: &Told| (0..300).filter(|&page| told.has(page)).collect::<Vec<_>>();
        assert_eq!(has(&told), [3, 63, 64, 65, 200]);
        told.remove(10..65);
        assert_eq!(has(&told), [3, 65, 200]);
        told.remove(65..201);
        assert_eq!(has(&told), [3]);
        told.remove(0..64);
        assert_eq!(told, Told::default());
    }
}
