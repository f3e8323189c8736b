//! Rides ahead of a barrier: who is there first need not wait for the others to send what will be
//! wanted after it. What a parent will want rides on OP_BARR; what others will, goes to them in a
//! message of its own, OP_PUSH, while they are still on their way: many pages, and no request.
//! Children get theirs with OP_BARRGRANT.
//!
//! **Who sends** has reached the barrier: what its tasks write before it is written. Only pages of
//! which it is the home go, and as for all rides these are lent, now and once more when it passes.
//!
//! **Who takes** keeps the pages until it passes the same barrier itself, and takes those of
//! which it has no copy then, which live at the sender still, and which nobody but the sender
//! wrote before the barrier, as the grant says. (Others' changes may have come to the home after
//! the pages had gone.) So what is taken is the page as it was when all had reached the barrier,
//! which is what an answer to a request right after it would be. Nothing is under way at a
//! barrier, so no notice can come in between. What comes after the barrier is not taken.
//!
//! A sender may be one barrier ahead: of each, at most two messages are kept.
//!
//! **What is of no use** its sender is told at the next barrier, by a push without pages if there
//! is nothing else to say: as nobody asks for what is pushed, it would go on.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Action, Body, Kept, Refused};
use super::node::{Detail, Node};
use super::page::{Happens, State};
use super::rides::Came;
use super::tree::{children, parent};
use crate::message::{Header, NodeId, Op, Page};
use crate::ride::{Carrier, Fate, Ride};
use crate::run::Run;

/// What goes and comes ahead of the next barrier's grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ahead {
    /// What has gone, and to whom.
    pub sent: Vec<(NodeId, Page)>,
    /// Who sent what was of no use, and does not know.
    pub in_vain: BTreeSet<NodeId>,
    /// What came.
    kept: BTreeMap<Kept, (Carrier, Vec<Ride>)>,
}

/// A message that was kept, and which of its pages can be taken.
pub(super) struct Due {
    kept: Kept,
    carrier: Carrier,
    rides: Vec<(Ride, bool)>,
}

impl Node {
    /// This node is at a barrier: what others will want of it after that goes to them, but to
    /// its children, with whose grants it goes, and its parent, with whom it has gone.
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
        // Who hears nothing goes on.
        while let Some(to) = self.rides.ahead.in_vain.pop_first() {
            let header = self.header(to, Op::Push, 0);
            self.post(header, Body::Empty, Vec::new(), actions);
        }
    }

    /// What came for the phase that ends, and was not used in it, is of no use, as it seems.
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

    /// Pages come, and nothing else.
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
        // We have passed the barrier.
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

    /// Keeps what rides on a message, which is for after the barrier that its sender is at.
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

    /// What was kept for the barrier that we pass, and which of it can be taken, as this was
    /// written: what nobody but its home wrote, which had written it when it was sent.
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

    /// Takes what can be, when the barrier is passed.
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

/// Of what a barrier says was written, a page was written by this node alone, or not at all.
pub(super) fn is_whole(runs: &[Run], page: Page, writer: NodeId) -> bool {
    let behind = runs.partition_point(|run| run.first <= page);
    let run = runs[..behind].last().filter(|run| run.range().contains(&page));
    run.is_none_or(|run| run.writer == writer)
}
