//! Rides: which pages may go along with a grant, and which of those that come may be kept.
//! What *should* go along, the [forecast](crate::ride::forecast) says; none of this depends on
//! its being right.
//!
//! **Who lends.** Only a page's home does, so what goes along is what an answer to a request
//! would be; and the page is one that others may have from then on (it is not
//! [Alone](State::Alone) any more), as if it had been asked for. With a barrier's grant it goes
//! before its home passes the barrier itself, and is lent once more when it has, since passing
//! says of written pages that nobody has copies.
//!
//! **Who takes.** A copy that was asked for holds all writes that its reader was told of before
//! it asked, for they were at the home by then, and the reader's own, which went the same way
//! before the request. The request that a grant answers says the same of what rides on it. So a
//! ride is taken if there was no copy here when the grant came, and the page was named in no
//! notice between request and grant; the notices of the grant itself are older than what rides
//! on it. What was written here since the request would be missing in it, too; but then there
//! was a copy, which only a notice can have taken away. Nothing else is under way while a node
//! is at a barrier, so there it is enough that the barrier leaves no copy. And a lock that is
//! granted by a node which has not passed our last barrier brings nothing: that node would
//! believe, when it passes, that nobody has its pages.
//!
//! What is not taken is forgotten: the page will be asked for if it is wanted.

use std::collections::BTreeMap;
use std::ops::Range;

use super::ahead::{Ahead, is_whole};
use super::event::Action;
use super::node::{Detail, Node};
use super::page::{Happens, State};
use super::statistics::{PageStatistics, RideStatistics};
use crate::message::{Header, NodeId, Op, Page};
use crate::ride::forecast::{Forecast, Foreseen};
use crate::ride::{self, By, Carrier, Fate, Ride};
use crate::run::Run;

/// What a node knows of rides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rides {
    /// What others will want.
    pub(super) forecast: Forecast,
    /// Instead of that, for the next step.
    pub(super) suggested: Vec<Page>,
    /// Pages that are lent with the grants of the barrier that we are about to pass.
    lent: Vec<Page>,
    /// What goes and comes ahead of that barrier's grant.
    pub(super) ahead: Ahead,
    /// Pages that came by a ride and were not used yet.
    pub(super) unused: BTreeMap<Page, Came>,
    /// What others are to be told of rides that came from them.
    fates: BTreeMap<NodeId, Vec<Ride>>,
    /// What notices named while requests were under way.
    noticed: Vec<Run>,
}

/// How a page came by a ride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Came {
    pub from: NodeId,
    pub carrier: Carrier,
    pub by: By,
    /// It was told that it lies idle.
    pub is_idle: bool,
}

impl Rides {
    pub fn new(forecast: Forecast) -> Self {
        Self { forecast, ..Self::default() }
    }

    /// Notices name these pages, while some request is under way.
    pub fn noticed(&mut self, runs: &[Run]) {
        self.noticed.extend_from_slice(runs);
    }

    /// No request is under way.
    pub fn nothing_under_way(&mut self) {
        self.noticed.clear();
    }

    /// What a request tells the node that it goes to.
    pub fn tells(&mut self, to: NodeId, op: Op) -> Vec<Ride> {
        if !ride::tells(op) {
            return Vec::new();
        }
        self.ahead.in_vain.remove(&to);
        let Some(mut fates) = self.fates.remove(&to) else { return Vec::new() };
        if fates.len() > ride::MOST / 2 {
            self.fates.insert(to, fates.split_off(ride::MOST / 2));
        }
        fates
    }
}

impl Node {
    /// Lets these pages go along with every grant of the next step if they may, whatever was
    /// foreseen: for those who check that nothing goes wrong then.
    pub fn suggest(&mut self, pages: Vec<Page>) {
        self.rides.suggested = pages;
    }

    /// What was suggested was for one step.
    pub(super) fn forget_suggested(&mut self) {
        self.rides.suggested.clear();
    }

    /// A request tells what became of rides.
    pub(super) fn told(&mut self, from: NodeId, rides: &[Ride]) {
        for &ride in rides {
            self.rides.forecast.learn(from, ride);
        }
    }

    /// A node asks for a page.
    pub(super) fn asked_for(&mut self, from: NodeId, page: Page) {
        let fetching = self.counts.fetching;
        let fetch = fetching.total.checked_div(fetching.times).unwrap_or_default();
        self.rides.forecast.tick(self.now, fetch);
        self.rides.forecast.asked(from, page);
    }

    /// Another node, or we, changed these pages.
    pub(super) fn changed(&mut self, writer: NodeId, pages: Range<Page>) {
        let by_others = writer != self.options.me;
        self.rides.forecast.changed(writer, pages, false, by_others);
    }

    /// A barrier says what was changed.
    pub(super) fn changed_before(&mut self, runs: &[Run]) {
        self.rides.forecast.passed();
        for run in runs {
            let by_others = run.writer != self.options.me;
            self.rides.forecast.changed(run.writer, run.range(), true, by_others);
        }
        for (node, page) in std::mem::take(&mut self.rides.ahead.sent) {
            if is_whole(runs, page, self.options.me) {
                self.rides.forecast.has(node, page);
            }
        }
    }

    /// What goes along with a grant to a node, which names the pages `written`, and is of the
    /// page `asked` if it is a page's. They are lent.
    pub(super) fn lend(
        &mut self,
        to: NodeId,
        carrier: Carrier,
        asked: Option<Page>,
        written: &[Run],
        actions: &mut Vec<Action>,
    ) -> Vec<Ride> {
        let is_on = self.rides.forecast.is_on() || !self.rides.suggested.is_empty();
        let room = (self.options.pages_max as usize).saturating_sub(asked.iter().count());
        let room = room.min(ride::MOST / 2);
        if to == self.options.me || !is_on {
            return Vec::new();
        }
        let mut forecast = std::mem::take(&mut self.rides.forecast);
        let pages = self.pages();
        let can = |page| Some(page) != asked && page < pages && self.can(page, Happens::Lend);
        let foreseen = match self.rides.suggested.is_empty() {
            true => {
                let written = written.iter().flat_map(Run::range).take_while(|&page| page < pages);
                forecast.foresee(to, carrier, room, written, can)
            }
            false => {
                let suggested = self.rides.suggested.iter().copied().filter(|&page| can(page));
                let ride = |page| Ride { page, by: By::Chance, fate: Fate::Aboard };
                let rides: Vec<_> = suggested.take(room).map(ride).collect();
                Foreseen { sent: rides.len(), rides }
            }
        };
        self.rides.forecast = forecast;
        let Foreseen { mut rides, sent } = foreseen;
        for (at, ride) in rides.iter().enumerate() {
            let counts = &mut self.counts.rides[carrier as usize][ride.by as usize];
            counts.predicted += 1;
            counts.sent += u64::from(at < sent);
        }
        rides.truncate(sent);
        for ride in &rides {
            if carrier.is_ahead() {
                self.rides.ahead.sent.push((to, ride.page));
            }
            if carrier == Carrier::Barrier || carrier.is_ahead() {
                // Whoever may still write it, as it seems, must not do so unseen.
                if self.can(ride.page, Happens::Open) {
                    self.happens(ride.page, Happens::Open, None, actions);
                }
                self.rides.lent.push(ride.page);
            }
            self.happens(ride.page, Happens::Lend, None, actions);
            self.pages.of(ride.page).counts.rides_sent += 1;
        }
        rides
    }

    /// The barrier is passed: what was lent before, others have.
    pub(super) fn lend_again(&mut self, actions: &mut Vec<Action>) {
        for page in std::mem::take(&mut self.rides.lent) {
            if self.can(page, Happens::Lend) {
                self.happens(page, Happens::Lend, None, actions);
            }
        }
    }

    /// Which of the rides that a grant brings can be taken, before anything of the grant is
    /// known here; what it says itself takes away no more of them.
    pub(super) fn takable(&self, header: &Header, rides: &[Ride]) -> Vec<bool> {
        let Header { from, op, epoch, .. } = *header;
        let takable = |ride: &Ride| {
            let had_none = self.state(ride.page) == Some(State::Invalid);
            self.home(ride.page) == Some(from)
                && epoch == self.epoch
                && (had_none || op == Op::BarrierGrant)
                && !self.rides.noticed.iter().any(|run| run.range().contains(&ride.page))
        };
        rides.iter().filter(|ride| ride.is_aboard()).map(takable).collect()
    }

    /// Takes what [can be](Self::takable), when all that the grant says is done.
    pub(super) fn take_rides(
        &mut self,
        header: &Header,
        rides: &[Ride],
        takable: &[bool],
        actions: &mut Vec<Action>,
    ) {
        let Some(carrier) = Carrier::of(header.op) else { return };
        let first = usize::from(carrier == Carrier::Page);
        let aboard = rides.iter().filter(|ride| ride.is_aboard());
        for (at, (ride, &takable)) in aboard.zip(takable).enumerate() {
            let Ride { page, by, .. } = *ride;
            let came = Came { from: header.from, carrier, by, is_idle: false };
            match self.state(page) {
                Some(State::Invalid) if takable => {
                    self.rides.unused.insert(page, came);
                    self.happens(page, Happens::Ride, Some(Detail::Place(first + at)), actions);
                }
                Some(State::Fetching | State::FetchingToWrite | State::Stale) => {
                    self.came_to(page, came, Fate::Late);
                }
                _ => self.came_to(page, came, Fate::Wasted),
            }
        }
    }

    /// A page that came by a ride is used, or dropped unused.
    pub(super) fn alights(&mut self, page: Page, used: bool) {
        let came = self.rides.unused.remove(&page).expect("it came by a ride");
        self.came_to(page, came, if used { Fate::Used } else { Fate::Wasted });
    }

    /// What became of a page that came by a ride.
    pub(super) fn came_to(&mut self, page: Page, came: Came, fate: Fate) {
        let Came { carrier, by, is_idle, .. } = came;
        let RideStatistics { used, wasted, late, .. } =
            &mut self.counts.rides[carrier as usize][by as usize];
        // What came may be no page.
        let mut unknown = PageStatistics::default();
        let of_page = match page < self.pages.pages() {
            true => &mut self.pages.of(page).counts,
            false => &mut unknown,
        };
        let (all, one) = match fate {
            Fate::Used => (used, &mut of_page.rides_used),
            Fate::Wasted => (wasted, &mut of_page.rides_wasted),
            Fate::Late => (late, &mut of_page.rides_late),
            Fate::Aboard | Fate::Idle => unreachable!("it has come to an end"),
        };
        *all += 1;
        *one += 1;
        // Of who lies idle no more than that is told until it is used.
        if !is_idle || fate == Fate::Used {
            self.owe_word(page, came, fate);
        }
    }

    /// Who sent a page is to be told what became of it.
    pub(super) fn owe_word(
        &mut self,
        page: Page,
        Came { from, carrier, by, .. }: Came,
        fate: Fate,
    ) {
        if self.rides.forecast.is_on() {
            self.rides.fates.entry(from).or_default().push(Ride { page, by, fate });
            if carrier.is_ahead() && matches!(fate, Fate::Wasted | Fate::Idle) {
                self.rides.ahead.in_vain.insert(from);
            }
        }
    }
}
