//! Locks. The node's side passes a lock between tasks of the node. The manager's side records the
//! pages that were written under the lock.

use std::collections::VecDeque;

use super::event::{Action, Body, Misuse, Refused, Task};
use super::node::Node;
use crate::message::{Header, Lock, NodeId, Op};
use crate::ride::{Carrier, Ride};
use crate::run::{self, Run};

/// Maximum number of consecutive hand-overs between tasks of a node before the lock goes back to
/// its manager.
pub const HANDOVERS: u32 = 8;
/// Number of releases that a manager records individually. Older ones are merged.
const REMEMBERED: usize = 64;

/// The node's state of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Local {
    place: Place,
    waiting: VecDeque<Task>,
    /// Number of hand-overs since the lock was granted.
    handed: u32,
    /// The last release whose writes this node knows.
    seen: u64,
    /// The time of the request.
    since: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Place {
    /// The lock is elsewhere.
    #[default]
    Away,
    /// The lock is elsewhere and requested.
    Asked,
    /// This task holds the lock.
    Here(Task),
    /// The lock is released when the homes have applied the diffs.
    Leaving,
}

impl Local {
    pub fn is_idle(&self) -> bool {
        self.place == Place::Away && self.waiting.is_empty()
    }
}

/// The manager's state of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Managed {
    holder: Option<NodeId>,
    /// The nodes that requested the lock, each with the last release whose writes it knows.
    waiting: VecDeque<(NodeId, u64)>,
    /// The number of the last release.
    released: u64,
    /// The barriers passed, and the pages written before each release since then.
    epoch: u64,
    written: VecDeque<(u64, Vec<Run>)>,
}

impl Managed {
    /// Discards the records of writes that a newer barrier has announced to all nodes.
    fn pass(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.written.clear();
        }
    }

    fn remember(&mut self, runs: Vec<Run>) {
        self.released += 1;
        if !runs.is_empty() {
            self.written.push_back((self.released, runs));
        }
        if self.written.len() > REMEMBERED {
            let old = self.written.drain(..REMEMBERED / 2).collect::<Vec<_>>();
            let last = old.last().expect("half of them").0;
            self.written.push_front((last, union(old.iter().map(|(_, runs)| runs))));
        }
    }

    /// Returns the pages that were written after the release `seen`.
    fn since(&self, seen: u64) -> Vec<Run> {
        union(self.written.iter().filter(|(at, _)| *at > seen).map(|(_, runs)| runs))
    }
}

/// Returns the union of several lists, without writers.
pub(super) fn union<'a>(lists: impl Iterator<Item = &'a Vec<Run>>) -> Vec<Run> {
    let all: Vec<_> = lists.flatten().map(|run| (0, Run { writer: run::NOBODY, ..*run })).collect();
    run::merge(&all).into_iter().map(|run| Run { writer: run::NOBODY, ..run }).collect()
}

impl Node {
    /// Returns a lock that the task holds.
    pub fn lock_of(&self, task: Task) -> Option<Lock> {
        let mut locks = self.locks.iter();
        locks.find(|(_, local)| local.place == Place::Here(task)).map(|(&lock, _)| lock)
    }

    pub(super) fn acquire(&mut self, task: Task, lock: Lock, actions: &mut Vec<Action>) {
        let local = self.locks.entry(lock).or_default();
        if local.place == Place::Here(task) || local.waiting.contains(&task) {
            return actions.push(Action::Misuse(task, Misuse::HasIt(lock)));
        }
        local.waiting.push_back(task);
        if local.place == Place::Away {
            self.ask(lock, actions);
        }
    }

    fn ask(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        let local = self.locks.get_mut(&lock).expect("somebody wants it");
        local.place = Place::Asked;
        local.since = self.now;
        let seen = local.seen;
        self.locks_asked += 1;
        self.send(self.manager(lock), Op::Acquire, lock, seen, Body::Empty, actions);
    }

    pub(super) fn release(&mut self, task: Task, lock: Lock, actions: &mut Vec<Action>) {
        let Some(local) =
            self.locks.get_mut(&lock).filter(|local| local.place == Place::Here(task))
        else {
            return actions.push(Action::Misuse(task, Misuse::HasItNot(lock)));
        };
        if local.handed < HANDOVERS
            && let Some(next) = local.waiting.pop_front()
        {
            local.handed += 1;
            local.place = Place::Here(next);
            self.counts.locks.entry(lock).or_default().handed += 1;
            return actions.push(Action::Grant(next));
        }
        local.place = Place::Leaving;
        let at = self.scopes.iter().position(|scope| scope.lock == Some(lock));
        let scope = self.scopes.remove(at.expect("it is open"));
        let runs = self.flush(scope.written, actions);
        self.send_later(self.manager(lock), Op::Release, lock, Body::Runs(runs));
    }

    /// Handles the sent release: requests the lock again if tasks wait for it.
    pub(super) fn released(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        let local = self.locks.get_mut(&lock).expect("it was here");
        local.place = Place::Away;
        // This node held the lock, so its release follows the one that the grant named.
        local.seen += 1;
        if !local.waiting.is_empty() {
            self.ask(lock, actions);
        }
    }

    pub(super) fn granted(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, scope, .. } = header;
        let local = self.locks.get_mut(&lock).filter(|local| local.place == Place::Asked);
        let Some(local) = local.filter(|_| from == lock % self.options.nodes) else {
            return Err(Refused::of(&header, "grants a lock that nobody asked for"));
        };
        if scope < local.seen || scope == u64::MAX {
            return Err(Refused::of(&header, "grants a lock as it never was"));
        }
        local.seen = scope;
        local.handed = 0;
        let task = local.waiting.pop_front().expect("who asked waits");
        local.place = Place::Here(task);
        let asked = self.now.saturating_sub(local.since);
        self.counts.locks.entry(lock).or_default().asked.add(asked);
        let takable = self.takable(&header, rides);
        self.locks_asked -= 1;
        self.forget_noticed();
        let runs = self.whole(from, runs);
        self.notice(&runs, actions);
        self.open(lock, actions);
        actions.push(Action::Grant(task));
        self.take_rides(&header, rides, &takable, actions);
        Ok(())
    }

    /// Handles a request at the manager.
    pub(super) fn asked(
        &mut self,
        header: Header,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, scope, epoch, .. } = header;
        if self.manager(lock) != self.options.me {
            return Err(Refused::of(&header, "wants a lock that is managed elsewhere"));
        }
        let managed = self.managed.entry(lock).or_default();
        // The holder may request the lock again before it releases it: its release waits for diffs.
        if managed.waiting.iter().any(|waiting| waiting.0 == from) {
            return Err(Refused::of(&header, "wants a lock twice"));
        }
        managed.pass(epoch);
        managed.waiting.push_back((from, scope));
        self.told(from, rides);
        self.grant_next(lock, actions);
        Ok(())
    }

    /// Handles a release at the manager.
    pub(super) fn given_back(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, epoch, .. } = header;
        if self.managed.get(&lock).is_none_or(|managed| managed.holder != Some(from)) {
            return Err(Refused::of(&header, "gives back a lock that it has not"));
        }
        let runs = self.whole(from, runs);
        let managed = self.managed.get_mut(&lock).expect("it is held");
        managed.holder = None;
        managed.pass(epoch);
        managed.remember(runs);
        self.grant_next(lock, actions);
        Ok(())
    }

    fn grant_next(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        let managed = self.managed.get_mut(&lock).expect("ours");
        if managed.holder.is_some() {
            return;
        }
        let Some((node, seen)) = managed.waiting.pop_front() else { return };
        managed.holder = Some(node);
        let (released, runs) = (managed.released, managed.since(seen));
        let header = Header { scope: released, ..self.header(node, Op::AcquireGrant, lock) };
        let rides = self.lend(node, Carrier::Lock, None, &runs, actions);
        self.send_runs(header, Op::Invalidate, runs, rides, actions);
    }
}
