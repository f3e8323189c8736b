//! Consistency of rides: which pages a message may carry, and which of them the receiver may
//! accept. The [forecast](crate::ride::forecast) selects pages among those; consistency does not
//! depend on its predictions.
//!
//! **Sending.** Only a page's home sends it, so a ride has the contents of an answer to a request.
//! The page is no longer [Alone](State::Alone) afterwards, as if it had been requested. A ride on a
//! barrier's grant leaves before its home passes the barrier. Passing a barrier makes written pages
//! Alone. So the home marks such a page as sent a second time when it has passed.
//!
//! **Accepting.** A requested copy holds all writes of which its reader was notified before the
//! request, since these were at the home by then. It also holds the reader's own earlier writes,
//! which were sent to the home before the request. The same is true for a ride on the answer to any
//! request. So a ride is accepted on two conditions:
//! - When the grant arrived, this node had no copy of the page.
//! - No write notice between request and grant named the page. Notices in the grant itself are
//!   older than the rides on it.
//!
//! The ride lacks local writes since the request. But a local write needs a copy, and only a write
//! notice can have removed it.
//!
//! At a barrier nothing else is in flight, so it suffices that the barrier leaves no copy here. A
//! lock grant of a node that has not passed this node's last barrier brings no acceptable rides.
//! When that node passes the barrier, it will assume that no other node has copies of its pages.
//!
//! A ride that is not accepted is discarded. The page is requested when a task needs it.

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

/// A node's state of rides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rides {
    /// Predicts the pages that other nodes will request.
    pub(super) forecast: Forecast,
    /// Pages that a test selects for the next step, instead of predicted ones.
    pub(super) suggested: Vec<Page>,
    /// Pages that were sent with the grants of the barrier that this node is about to pass.
    lent: Vec<Page>,
    /// Rides that are sent and received ahead of that barrier's grant.
    pub(super) ahead: Ahead,
    /// Pages that arrived as rides and were not used yet.
    pub(super) unused: BTreeMap<Page, Came>,
    /// Fates of rides that are to be reported to the senders.
    fates: BTreeMap<NodeId, Vec<Ride>>,
    /// Write notices that arrived while requests were in flight.
    noticed: Vec<Run>,
}

/// The origin of a page that arrived as a ride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Came {
    pub from: NodeId,
    pub carrier: Carrier,
    pub by: By,
    /// The sender was told that the page is idle.
    pub is_idle: bool,
}

impl Rides {
    pub fn new(forecast: Forecast) -> Self {
        Self { forecast, ..Self::default() }
    }

    /// Records write notices while a request is in flight.
    pub fn noticed(&mut self, runs: &[Run]) {
        self.noticed.extend_from_slice(runs);
    }

    /// Forgets the write notices when no request is in flight.
    pub fn nothing_under_way(&mut self) {
        self.noticed.clear();
    }

    /// Takes the fates that a message of this operation reports to its receiver.
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
    /// Makes every grant of the next step carry those of these pages that it may carry, instead of
    /// predicted pages. For tests of the protocol.
    pub fn suggest(&mut self, pages: Vec<Page>) {
        self.rides.suggested = pages;
    }

    /// Ends the effect of [`suggest`](Self::suggest) after one step.
    pub(super) fn forget_suggested(&mut self) {
        self.rides.suggested.clear();
    }

    /// Learns the fates that a message reports.
    pub(super) fn told(&mut self, from: NodeId, rides: &[Ride]) {
        for &ride in rides {
            self.rides.forecast.learn(from, ride);
        }
    }

    /// Learns that a node requested a page.
    pub(super) fn asked_for(&mut self, from: NodeId, page: Page) {
        let fetching = self.counts.fetching;
        let fetch = fetching.total.checked_div(fetching.times).unwrap_or_default();
        self.rides.forecast.tick(self.now, fetch);
        self.rides.forecast.asked(from, page);
    }

    /// Learns that a node changed these pages.
    pub(super) fn changed(&mut self, writer: NodeId, pages: Range<Page>) {
        let by_others = writer != self.options.me;
        self.rides.forecast.changed(writer, pages, false, by_others);
    }

    /// Learns the changes that a barrier announces.
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

    /// Selects the rides on a grant and marks the pages as sent. `asked` is the requested page, if
    /// the grant answers a page request. `written` are the pages that the grant lists.
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
                // A node that may still write the page must send write notices from now on.
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

    /// Marks the rides on the grants of the barrier as sent again, after the barrier was passed.
    pub(super) fn lend_again(&mut self, actions: &mut Vec<Action>) {
        for page in std::mem::take(&mut self.rides.lent) {
            if self.can(page, Happens::Lend) {
                self.happens(page, Happens::Lend, None, actions);
            }
        }
    }

    /// Returns for each ride of a grant whether it can be accepted. Call this before the grant is
    /// processed. The notices in the grant itself do not matter.
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

    /// Accepts the rides that [`takable`](Self::takable) selected, after the rest of the grant was
    /// processed.
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

    /// Records that a page that arrived as a ride was used, or dropped unused.
    pub(super) fn alights(&mut self, page: Page, used: bool) {
        let came = self.rides.unused.remove(&page).expect("it came by a ride");
        self.came_to(page, came, if used { Fate::Used } else { Fate::Wasted });
    }

    /// Counts the fate of a page that arrived as a ride.
    pub(super) fn came_to(&mut self, page: Page, came: Came, fate: Fate) {
        let Came { carrier, by, is_idle, .. } = came;
        let RideStatistics { used, wasted, late, .. } =
            &mut self.counts.rides[carrier as usize][by as usize];
        // The page number comes from a message and may not exist.
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
        // An idle page was reported. Only its use is reported again.
        if !is_idle || fate == Fate::Used {
            self.owe_word(page, came, fate);
        }
    }

    /// Queues the report of a fate to the sender of the page.
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
