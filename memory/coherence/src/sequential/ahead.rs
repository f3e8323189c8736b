//! Fetching ahead: which pages are hoped to come along with one that is asked for, and which of
//! ours may go along with one that is granted. What *should* come, the
//! [forecast](crate::ride::forecast) says, of this node's own faults; none of this depends on
//! its being right.
//!
//! **Who hopes.** A request names pages of which nothing is here and nothing under way, and
//! which whom we ask owned last, so far as we know. Until the answer comes, they are hoped for:
//! a task that wants one waits for that, and asks only if the page stayed where it was. So
//! whatever comes along was asked for, and there is never more than one request of a node for
//! one page.
//!
//! **Who lends.** What goes along is what an answer to a request would be; who answers the
//! request lends, from what it owns then and nobody waits for. A page itself, to be written,
//! goes along only if nobody has a copy, so that nobody need be told. Nobody has to be asked
//! twice: who lends a page tells later requests where it went, as if it had been asked for.
//!
//! **What nobody has used.** Memory that a program has just got holds zeros, and its owner knows
//! that no task of its has used it. Such a page goes to whoever asks, to read too: it will be
//! written, and would have to be asked for again. With it go others of the kind only, which cost
//! no more than a bit each; and where the owner's own tasks use it first, more of it is mapped at
//! once.
//!
//! **What may be foreseen** is every page, unless whoever looks after the memory knows of some only
//! that there is anything to use ([`Node::foresee_only_told`]).
//!
//! **What comes of it.** Pages that came along are mapped, all but the one that was foreseen
//! last, the *mark*. The first use of it is a fault that costs no message, and says that all of
//! them were of use; if it is taken away unused, none was.

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

/// Pages that go along with another, at most, with their bytes: more would keep who asks waiting
/// longer than another request. Those that nobody has used cost a bit each.
const WHOLE_MAX: usize = 32;

/// Pages that were read and become writable together, at most: others lose their copies.
const WRITES_MAX: Page = 16;

/// Pages: from, to. They neither meet nor touch.
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

/// What a node foresees of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ahead {
    forecast: Forecast,
    /// First uses of what nobody has used; first writes to what was read.
    uses: Sweeps,
    writes: Sweeps,
    /// Instead of that, for the next step.
    suggested: Vec<Page>,
    /// What may be foreseen, if that is told.
    told: Option<Told>,
    /// What is asked for now was foreseen itself.
    hopes_for_nothing: bool,
    /// What is hoped to come along with a page, in the order in which it will be wanted.
    hopes: BTreeMap<Page, Vec<Ride>>,
    /// What those hope for who wait here for a page.
    waiting: BTreeMap<(Page, NodeId), Vec<Run>>,
    /// What came along with these marks.
    unused: BTreeMap<Page, Vec<Ride>>,
}

impl Ahead {
    pub fn new(forecast: Forecast) -> Self {
        Self { forecast, uses: Sweeps::of_memory(), ..Self::default() }
    }

    /// Nothing is hoped for.
    pub fn is_idle(&self) -> bool {
        self.hopes.is_empty()
    }
}

impl Node {
    /// From now on only those pages are foreseen that [`may_foresee`](Self::may_foresee) tells of:
    /// of others nobody knows here whether there is anything to use.
    pub fn foresee_only_told(&mut self) {
        self.ahead.told = Some(Told::default());
    }

    /// These pages may be foreseen.
    pub fn may_foresee(&mut self, pages: Range<Page>) {
        if let Some(told) = &mut self.ahead.told {
            told.add(pages);
        }
    }

    /// These may not, any more.
    pub fn may_not_foresee(&mut self, pages: Range<Page>) {
        if let Some(told) = &mut self.ahead.told {
            told.remove(pages);
        }
    }

    /// For checks: hopes for these pages with requests that the next step makes, if it may, and
    /// not for what is foreseen.
    pub fn suggest(&mut self, pages: Vec<Page>) {
        self.ahead.suggested = pages;
    }

    /// What was suggested was for one step.
    pub(super) fn forget_suggested(&mut self) {
        self.ahead.suggested.clear();
    }

    /// What comes along, if it can, with a page that is asked for there.
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
        // Who foresees may name a page twice.
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

    /// A task uses a page of ours that nobody has used: others like it that it will use next are
    /// mapped with it.
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
            // Nobody was let go on.
            entry.fresh = Fresh::No;
            if counts {
                entry.first_use = FirstUse::Prepared;
            }
        }
        // Neighbours one after the other, so that they can be mapped at once.
        actions[first..].sort_by_key(|action| match *action {
            Action::MapWrite(page) => page,
            _ => Page::MAX,
        });
    }

    /// These pages are reset: they are neither used nor prepared any more.
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

    /// A task writes a page that was only read here: what it will write next, if that is so, too,
    /// is asked for, or others' copies of it are dropped, at the same time.
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
                // Nobody was let go on.
                self.pages.of(page).fresh = Fresh::No;
            }
        }
        self.ahead.hopes_for_nothing = false;
    }

    /// Who asks for a page waits here for it, and hopes for these.
    pub(super) fn keep_hopes(&mut self, page: Page, asker: NodeId, hopes: &[Run]) {
        if !hopes.is_empty() {
            self.ahead.waiting.insert((page, asker), hopes.to_vec());
        }
    }

    /// What who waits for a page hopes for, who gets it now.
    pub(super) fn kept_hopes(&mut self, page: Page, asker: NodeId) -> Vec<Run> {
        self.ahead.waiting.remove(&(page, asker)).unwrap_or_default()
    }

    /// Who is lost hopes for nothing.
    pub(super) fn forget_hopes_of(&mut self, node: NodeId) {
        self.ahead.waiting.retain(|(_, asker), _| *asker != node);
    }

    /// All of these are hoped for with that page.
    pub(super) fn hopes_for(&self, asked: Page, rides: &[Run]) -> bool {
        let hopes = self.ahead.hopes.get(&asked).map_or(&[][..], Vec::as_slice);
        let hoped = |page| hopes.iter().any(|hope| hope.page == page);
        rides.iter().flat_map(Run::range).all(hoped)
    }

    /// These came along with that page, and stand behind so many of the message's pages.
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
                // It may go along next time.
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
                // Nobody was let go on.
                self.pages.of(ride.page).fresh = Fresh::No;
            }
            if is_mark {
                self.ahead.unused.insert(ride.page, came.clone());
            } else if mark == Some(ride.page) {
                self.learn(came.clone(), Fate::Used);
            }
        }
    }

    /// The mark is used, or gone.
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

    /// A copy is here no more.
    pub(super) fn is_out_of_date(&mut self, page: Page, writer: NodeId) {
        self.ahead.forecast.changed(writer, page..page + 1, false, true);
    }

    /// Of the pages that another hopes for, those that go along, at most so many.
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
            // What nobody has used is better asked for, as it comes to be written.
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

    /// Of the pages that another hopes for with one that nobody has used, all others of the kind.
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

/// Pages in any order.
pub(super) fn runs(pages: impl Iterator<Item = Page>) -> Vec<Run> {
    let mut pages: Vec<Page> = pages.collect();
    pages.sort_unstable();
    run::of(pages.into_iter().map(|page| (page, NOBODY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_told_is_there_until_it_is_taken_back() {
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
