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

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Action, Body, Kept, Refused};
use super::node::{Detail, Node};
use super::page::{Happens, State};
use super::rides::Came;
use super::tree::{children, parent};
use crate::message::{Header, NodeId, Op, Page};
use crate::ride::{Carrier, Fate, Ride};
use crate::run::Run;

/// Rides that are sent and received ahead of the next barrier's grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ahead {
    /// The pages that were sent, with their receivers.
    pub sent: Vec<(NodeId, Page)>,
    /// Nodes that sent useless pages and have not been told.
    pub in_vain: BTreeSet<NodeId>,
    /// The kept messages.
    kept: BTreeMap<Kept, (Carrier, Vec<Ride>)>,
}

/// A kept message, and for each of its pages whether it can be accepted.
pub(super) struct Due {
    kept: Kept,
    carrier: Carrier,
    rides: Vec<(Ride, bool)>,
}

impl Node {
    /// Pushes pages to other nodes when this node has reached a barrier. Children get theirs with
    /// the grant, and the parent has received them with the arrival.
    pub(super) fn push(&mut self, actions: &mut Vec<Action>) {
        let me = self.options.me;
        let nodes = self.options.nodes;
        let to = match self.rides.suggested.is_empty() {
            true => self.rides.forecast.readers(),
            false => (0..nodes).filter(|&node| node != me).collect(),
        };
        for to in to {
            let is_child = children(me, nodes).any(|child| child == to);
            if to == parent(me, nodes) || is_child && self.may_wait(to) {
                continue;
            }
            let rides = self.lend(to, Carrier::Push, None, &[], actions);
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
    pub(super) fn idle(&mut self) {
        let unused = self.rides.unused.iter_mut();
        let idle: Vec<_> = unused
            .filter(|(_, came)| came.carrier.is_ahead() && !came.is_idle)
            .map(|(page, came)| {
                came.is_idle = true;
                (*page, *came)
            })
            .collect();
        for (page, came) in idle {
            self.owe_word(page, came, Fate::Idle);
        }
    }

    /// Handles a push.
    pub(super) fn pushed(
        &mut self,
        header: Header,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        if header.epoch >= self.epoch {
            self.keep(&header, rides, actions)?;
            self.told(header.from, rides);
            return Ok(());
        }
        // This node has passed the barrier already.
        self.told(header.from, rides);
        for &Ride { page, by, .. } in rides.iter().filter(|ride| ride.is_aboard()) {
            let came = Came { from: header.from, carrier: Carrier::Push, by, is_idle: false };
            let is_asked = matches!(
                self.state(page),
                Some(State::Fetching | State::FetchingToWrite | State::Stale)
            );
            self.came_to(page, came, if is_asked { Fate::Late } else { Fate::Wasted });
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
            return Err(Refused::of(header, "brings too many pages"));
        }
        actions.push(Action::Keep(kept));
        self.rides.ahead.kept.insert(kept, (carrier, rides));
        Ok(())
    }

    /// Takes the messages that were kept for the barrier that this node passes. A page can be
    /// accepted if only its home wrote it before the barrier.
    pub(super) fn takable_kept(&mut self, runs: &[Run]) -> Vec<Due> {
        let epoch = self.epoch;
        let due = std::mem::take(&mut self.rides.ahead.kept).into_iter();
        let (due, early): (Vec<_>, Vec<_>) = due.partition(|(kept, _)| kept.epoch == epoch);
        self.rides.ahead.kept = early.into_iter().collect();
        let takable = |ride: &Ride, from| {
            self.home(ride.page) == Some(from) && is_whole(runs, ride.page, from)
        };
        let with = |(kept, (carrier, rides)): (Kept, (Carrier, Vec<Ride>))| {
            let rides = rides.into_iter().map(|ride| (ride, takable(&ride, kept.from)));
            Due { kept, carrier, rides: rides.collect() }
        };
        due.into_iter().map(with).collect()
    }

    /// Accepts the pages of kept messages after the barrier was passed.
    pub(super) fn take_kept(&mut self, due: Vec<Due>, actions: &mut Vec<Action>) {
        for Due { kept, carrier, rides } in due {
            for (place, (Ride { page, by, .. }, takable)) in rides.into_iter().enumerate() {
                let came = Came { from: kept.from, carrier, by, is_idle: false };
                match self.state(page) {
                    Some(State::Invalid) if takable => {
                        self.rides.unused.insert(page, came);
                        let detail = Detail::Kept(kept, place);
                        self.happens(page, Happens::Ride, Some(detail), actions);
                    }
                    _ => self.came_to(page, came, Fate::Wasted),
                }
            }
            actions.push(Action::Forget(kept));
        }
    }
}

/// Returns true if, according to a barrier's list, no node except `writer` wrote the page.
pub(super) fn is_whole(runs: &[Run], page: Page, writer: NodeId) -> bool {
    let behind = runs.partition_point(|run| run.first <= page);
    let run = runs[..behind].last().filter(|run| run.range().contains(&page));
    run.is_none_or(|run| run.writer == writer)
}
