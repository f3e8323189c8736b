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

use std::ops::Range;

use super::event::Action;
use super::node::Node;
use super::page::{PageEvent, State};
use super::pages::Detail;
use super::state::rides::Arrival;
use super::statistics::{PageStatistics, RideStatistics};
use crate::message::{Header, NodeId, Op, Page};
use crate::ride::forecast::Prediction;
use crate::ride::{self, By, Carrier, Fate, Ride};
use crate::run::{Run, has_no_other_writer};

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
    pub(super) fn learn_fates(&mut self, from: NodeId, rides: &[Ride]) {
        for &ride in rides.iter().filter(|ride| ride.fate != Fate::Wanted) {
            self.rides.forecast.learn(from, ride);
        }
    }

    /// Learns that a node requested a page.
    pub(super) fn learn_request(&mut self, from: NodeId, page: Page) {
        let fetching = self.counts.fetching;
        let fetch = fetching.total.checked_div(fetching.times).unwrap_or_default();
        self.rides.forecast.tick(self.now, fetch);
        self.rides.forecast.asked(from, page);
    }

    /// Learns that a node changed these pages.
    pub(super) fn learn_change(&mut self, writer: NodeId, pages: Range<Page>) {
        let by_others = writer != self.options.me;
        self.rides.forecast.changed(writer, pages, false, by_others);
    }

    /// Learns the changes that a barrier announces.
    pub(super) fn learn_barrier(&mut self, runs: &[Run]) {
        self.rides.forecast.passed();
        for run in runs {
            let by_others = run.writer != self.options.me;
            self.rides.forecast.changed(run.writer, run.range(), true, by_others);
        }
        for (node, page) in std::mem::take(&mut self.rides.ahead.sent) {
            if has_no_other_writer(runs, page, self.options.me) {
                self.rides.forecast.has(node, page);
            }
        }
    }

    /// Selects the rides on a grant and marks the pages as sent. `requested` is the requested
    /// page, if the grant answers a page request. `written` are the pages that the grant lists.
    pub(super) fn send_rides(
        &mut self,
        to: NodeId,
        carrier: Carrier,
        requested: Option<Page>,
        written: &[Run],
        actions: &mut Vec<Action>,
    ) -> Vec<Ride> {
        let is_on = self.rides.forecast.is_on() || !self.rides.suggested.is_empty();
        let room = (self.options.pages_max as usize).saturating_sub(requested.iter().count());
        let room = room.min(ride::MOST / 2);
        if to == self.options.me || !is_on {
            return Vec::new();
        }
        let wanted = std::mem::take(&mut self.rides.wanted);
        let mut forecast = std::mem::take(&mut self.rides.forecast);
        let pages = self.pages();
        let can_send = |page| {
            Some(page) != requested && page < pages && self.is_possible(page, PageEvent::SendRide)
        };
        let prediction = match self.rides.suggested.is_empty() {
            true if !wanted.is_empty() => forecast.answer(to, &wanted, room, can_send),
            true => {
                let written = written.iter().flat_map(Run::range).take_while(|&page| page < pages);
                forecast.predict(to, carrier, room, written, can_send)
            }
            false => {
                let suggested = self.rides.suggested.iter().copied().filter(|&page| can_send(page));
                let ride = |page| Ride { page, by: By::Chance, fate: Fate::Aboard };
                let rides: Vec<_> = suggested.take(room).map(ride).collect();
                Prediction { sent: rides.len(), rides }
            }
        };
        self.rides.forecast = forecast;
        let Prediction { mut rides, sent } = prediction;
        for (at, ride) in rides.iter().enumerate() {
            let counts = &mut self.counts.rides[carrier as usize][ride.by as usize];
            counts.predicted += 1;
            counts.sent += u64::from(at < sent);
        }
        debug_assert!(sent <= rides.len().min(room), "more rides than predicted, or than room");
        rides.truncate(sent);
        for ride in &rides {
            if carrier.is_ahead() {
                self.rides.ahead.sent.push((to, ride.page));
            }
            if carrier == Carrier::Barrier || carrier.is_ahead() {
                // A node that may still write the page must send write notices from now on.
                if self.is_possible(ride.page, PageEvent::Open) {
                    self.apply(ride.page, PageEvent::Open, None, actions);
                }
                self.rides.sent.push(ride.page);
            }
            self.apply(ride.page, PageEvent::SendRide, None, actions);
            self.pages.of(ride.page).counts.rides_sent += 1;
        }
        rides
    }

    /// Marks the rides on the grants of the barrier as sent again, after the barrier was passed.
    pub(super) fn mark_sent_again(&mut self, actions: &mut Vec<Action>) {
        for page in std::mem::take(&mut self.rides.sent) {
            if self.is_possible(page, PageEvent::SendRide) {
                self.apply(page, PageEvent::SendRide, None, actions);
            }
        }
    }

    /// Returns for each ride of a grant whether it can be accepted. Call this before the grant is
    /// processed. The notices in the grant itself do not matter.
    pub(super) fn acceptable(&self, header: &Header, rides: &[Ride]) -> Vec<bool> {
        let Header { from, op, epoch, .. } = *header;
        let is_acceptable = |ride: &Ride| {
            let had_none = self.state(ride.page) == Some(State::Invalid);
            self.home(ride.page) == Some(from)
                && epoch == self.epoch
                && (had_none || op == Op::BarrierGrant)
                && !self.rides.notices.iter().any(|run| run.range().contains(&ride.page))
        };
        rides.iter().filter(|ride| ride.is_aboard()).map(is_acceptable).collect()
    }

    /// Accepts the rides that [`acceptable`](Self::acceptable) selected, after the rest of the
    /// grant was processed.
    pub(super) fn accept_rides(
        &mut self,
        header: &Header,
        rides: &[Ride],
        acceptable: &[bool],
        actions: &mut Vec<Action>,
    ) {
        let Some(carrier) = Carrier::of(header.op) else { return };
        let first = usize::from(carrier == Carrier::Page);
        let aboard = rides.iter().filter(|ride| ride.is_aboard());
        for (at, (ride, &is_acceptable)) in aboard.zip(acceptable).enumerate() {
            let Ride { page, by, .. } = *ride;
            let arrival = Arrival { from: header.from, carrier, by, is_idle: false };
            match self.state(page) {
                Some(State::Invalid) if is_acceptable => {
                    self.rides.unused.insert(page, arrival);
                    self.apply(page, PageEvent::Ride, Some(Detail::Index(first + at)), actions);
                }
                Some(
                    State::Fetching | State::FetchingToWrite | State::Prefetching | State::Stale,
                ) => {
                    self.count_fate(page, arrival, Fate::Late);
                }
                _ => self.count_fate(page, arrival, Fate::Wasted),
            }
        }
    }

    /// Records that a page that arrived as a ride was used, or dropped unused.
    pub(super) fn end_ride(&mut self, page: Page, used: bool) {
        let arrival = self.rides.unused.remove(&page).expect("the page arrived as a ride");
        self.count_fate(page, arrival, if used { Fate::Used } else { Fate::Wasted });
    }

    /// Counts the fate of a page that arrived as a ride.
    pub(super) fn count_fate(&mut self, page: Page, arrival: Arrival, fate: Fate) {
        let Arrival { carrier, by, is_idle, .. } = arrival;
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
            Fate::Aboard | Fate::Idle | Fate::Wanted => unreachable!("the ride has ended"),
        };
        *all += 1;
        *one += 1;
        // An idle page was reported. Only its use is reported again.
        if !is_idle || fate == Fate::Used {
            self.report_fate(page, arrival, fate);
        }
    }

    /// Queues the report of a fate to the sender of the page.
    pub(super) fn report_fate(
        &mut self,
        page: Page,
        Arrival { from, carrier, by, .. }: Arrival,
        fate: Fate,
    ) {
        // The home learns of a prefetched page from its request.
        if self.rides.forecast.is_on() && by != By::Prefetch {
            self.rides.fates.entry(from).or_default().push(Ride { page, by, fate });
            if carrier.is_ahead() && matches!(fate, Fate::Wasted | Fate::Idle) {
                self.rides.ahead.in_vain.insert(from);
            }
        }
    }
}
