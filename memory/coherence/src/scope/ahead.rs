//! Rides ahead of a barrier. A node that reaches a barrier early need not wait for the others
//! before it sends pages for the next phase. Pages for its parent ride on OP_BARR. Pages for other
//! nodes go in OP_PUSH messages, which carry many pages and need no request. Pages for its children
//! ride on OP_BARRGRANT.
//!
//! **Sending.** The sender has reached the barrier, so all earlier writes of its tasks are done. It
//! sends only pages whose home it is. As for all rides, it marks them as sent now, and once more
//! when it passes the barrier.
//!
//! **Accepting.** The receiver keeps the pages until it passes the same barrier. It then accepts a
//! page on three conditions:
//! - It has no copy of the page.
//! - The sender is still the page's home.
//! - According to the grant, no node except the sender wrote the page before the barrier. Diffs of
//!   other nodes may have reached the home after the page left.
//!
//! So an accepted page has its contents at the barrier, like the answer to a request right after
//! it. Nothing is in flight at a barrier, so no write notice can come between. Pages that arrive
//! after the barrier are discarded.
//!
//! A sender may be one barrier ahead, so at most two messages of each sender are kept.
//!
//! **Feedback.** Senders learn at the next barrier which pages were useless, if necessary by a push
//! without pages. Pushed pages are never requested, so without this a sender would not stop.

use super::event::{Action, Body, Kept, refusal};
use super::node::Node;
use super::page::{PageEvent, State};
use super::pages::Detail;
use super::state::rides::{Arrival, Due};
use super::tree::{children, parent};
use crate::message::{Header, Op};
use crate::refusal::Refused;
use crate::ride::{Carrier, Fate, Ride};
use crate::run::{Run, has_no_other_writer};

impl Node {
    /// Pushes pages to other nodes when this node has reached a barrier. Children get theirs with
    /// the grant, and the parent has received them with the arrival.
    pub(super) fn push_pages(&mut self, actions: &mut Vec<Action>) {
        let me = self.options.me;
        let nodes = self.options.nodes;
        let to = match self.rides.suggested.is_empty() {
            true => self.rides.forecast.readers(),
            false => (0..nodes).filter(|&node| node != me).collect(),
        };
        for to in to {
            let is_child = children(me, nodes).any(|child| child == to);
            if to == parent(me, nodes) || is_child && self.may_carry_rides(to) {
                continue;
            }
            let rides = self.send_rides(to, Carrier::Push, None, &[], actions);
            if !rides.is_empty() {
                let header = self.header(to, Op::Push, 0);
                self.post(header, Body::Empty, rides, actions);
            }
        }
        // Without a report the sender would continue.
        while let Some(to) = self.rides.ahead.in_vain.pop_first() {
            let header = self.header(to, Op::Push, 0);
            self.post(header, Body::Empty, Vec::new(), actions);
        }
    }

    /// Marks pages as idle that were sent for the phase that ends and not used in it.
    pub(super) fn mark_idle(&mut self) {
        let unused = self.rides.unused.iter_mut();
        let idle: Vec<_> = unused
            .filter(|(_, arrival)| arrival.carrier.is_ahead() && !arrival.is_idle)
            .map(|(page, arrival)| {
                arrival.is_idle = true;
                (*page, *arrival)
            })
            .collect();
        for (page, arrival) in idle {
            self.report_fate(page, arrival, Fate::Idle);
        }
    }

    /// Handles a push.
    pub(super) fn push_arrives(
        &mut self,
        header: Header,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        if header.epoch >= self.epoch {
            self.keep(&header, rides, actions)?;
            self.learn_fates(header.from, rides);
            return Ok(());
        }
        // This node has passed the barrier already.
        self.learn_fates(header.from, rides);
        for &Ride { page, by, .. } in rides.iter().filter(|ride| ride.is_aboard()) {
            let arrival = Arrival { from: header.from, carrier: Carrier::Push, by, is_idle: false };
            let is_requested = matches!(
                self.state(page),
                Some(State::Fetching | State::FetchingToWrite | State::Prefetching | State::Stale)
            );
            self.count_fate(page, arrival, if is_requested { Fate::Late } else { Fate::Wasted });
        }
        Ok(())
    }

    /// Keeps the rides on a message until this node passes the barrier that the sender has reached.
    pub(super) fn keep(
        &mut self,
        header: &Header,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Some(carrier) = Carrier::of(header.op) else { return Ok(()) };
        let kept = Kept { from: header.from, epoch: header.epoch };
        let rides: Vec<Ride> = rides.iter().copied().filter(Ride::is_aboard).collect();
        if rides.is_empty() {
            return Ok(());
        }
        if rides.len() > self.options.pages_max as usize
            || self.rides.ahead.kept.contains_key(&kept)
        {
            let refused = refusal(header, "brings too many pages, or twice for one barrier");
            return Err(refused.with("pages", rides.len() as u64).with("epoch", header.epoch));
        }
        actions.push(Action::Keep(kept));
        self.rides.ahead.kept.insert(kept, (carrier, rides));
        Ok(())
    }

    /// Takes the messages that were kept for the barrier that this node passes. A page can be
    /// accepted if only its home wrote it before the barrier.
    pub(super) fn take_kept(&mut self, runs: &[Run]) -> Vec<Due> {
        let epoch = self.epoch;
        let due = std::mem::take(&mut self.rides.ahead.kept).into_iter();
        let (due, early): (Vec<_>, Vec<_>) = due.partition(|(kept, _)| kept.epoch == epoch);
        self.rides.ahead.kept = early.into_iter().collect();
        let is_acceptable = |ride: &Ride, from| {
            self.home(ride.page) == Some(from) && has_no_other_writer(runs, ride.page, from)
        };
        let with = |(kept, (carrier, rides)): (Kept, (Carrier, Vec<Ride>))| {
            let rides = rides.into_iter().map(|ride| (ride, is_acceptable(&ride, kept.from)));
            Due { kept, carrier, rides: rides.collect() }
        };
        due.into_iter().map(with).collect()
    }

    /// Accepts the pages of kept messages after the barrier was passed.
    pub(super) fn accept_kept(&mut self, due: Vec<Due>, actions: &mut Vec<Action>) {
        for Due { kept, carrier, rides } in due {
            for (index, (Ride { page, by, .. }, is_acceptable)) in rides.into_iter().enumerate() {
                let arrival = Arrival { from: kept.from, carrier, by, is_idle: false };
                match self.state(page) {
                    Some(State::Invalid) if is_acceptable => {
                        self.rides.unused.insert(page, arrival);
                        let detail = Detail::Kept(kept, index);
                        self.apply(page, PageEvent::Ride, Some(detail), actions);
                    }
                    _ => self.count_fate(page, arrival, Fate::Wasted),
                }
            }
            actions.push(Action::Forget(kept));
        }
    }
}
