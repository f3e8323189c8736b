//! Locks. The node's side passes a lock between tasks of the node. The manager's side records the
//! pages that were written under the lock.

use super::event::{Action, Body, Misuse, Task, refusal};
use super::node::Node;
use super::state::lock::Holder;
use crate::message::{Header, Lock, Op};
use crate::refusal::Refused;
use crate::ride::{Carrier, Ride};
use crate::run::Run;

/// Maximum number of consecutive hand-overs between tasks of a node before the lock goes back to
/// its manager.
pub const HANDOVERS: u32 = 8;

impl Node {
    /// Returns a lock that the task holds.
    pub fn lock_of(&self, task: Task) -> Option<Lock> {
        let mut locks = self.locks.iter();
        locks.find(|(_, local)| local.holder == Holder::Task(task)).map(|(&lock, _)| lock)
    }

    /// Handles a task's request of a lock.
    pub(super) fn acquire(&mut self, task: Task, lock: Lock, actions: &mut Vec<Action>) {
        let local = self.locks.entry(lock).or_default();
        if local.holder == Holder::Task(task) || local.waiting.contains(&task) {
            return actions.push(Action::Misuse(task, Misuse::HasIt(lock)));
        }
        local.waiting.push_back(task);
        if local.holder == Holder::Elsewhere {
            self.request_lock(lock, actions);
        }
    }

    /// Requests a lock from its manager.
    fn request_lock(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        let local = self.locks.get_mut(&lock).expect("a task waits for it");
        local.holder = Holder::Requested;
        local.since = self.now;
        let seen = local.seen;
        self.locks_requested += 1;
        self.send(self.manager(lock), Op::Acquire, lock, seen, Body::Empty, actions);
    }

    /// Handles a task's release of a lock: passes it on, or returns it to its manager.
    pub(super) fn release(&mut self, task: Task, lock: Lock, actions: &mut Vec<Action>) {
        let Some(local) =
            self.locks.get_mut(&lock).filter(|local| local.holder == Holder::Task(task))
        else {
            return actions.push(Action::Misuse(task, Misuse::HasItNot(lock)));
        };
        if local.handovers < HANDOVERS
            && let Some(next) = local.waiting.pop_front()
        {
            local.handovers += 1;
            local.holder = Holder::Task(next);
            self.counts.locks.entry(lock).or_default().handed += 1;
            return actions.push(Action::Grant(next));
        }
        local.holder = Holder::Releasing;
        let at = self.scopes.iter().position(|scope| scope.lock == Some(lock));
        let scope = self.scopes.remove(at.expect("the scope of a lock that is held"));
        let runs = self.flush(scope.written, actions);
        self.send_later(self.manager(lock), Op::Release, lock, Body::Runs(runs));
    }

    /// Handles the end of a release: requests the lock again if tasks wait for it.
    pub(super) fn lock_is_released(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        let local = self.locks.get_mut(&lock).expect("a lock that is being released");
        debug_assert_eq!(local.holder, Holder::Releasing, "lock {lock} is not being released");
        local.holder = Holder::Elsewhere;
        // This node held the lock, so its release follows the one that the grant named.
        local.seen += 1;
        if !local.waiting.is_empty() {
            self.request_lock(lock, actions);
        }
    }

    /// Handles the grant of a lock.
    pub(super) fn lock_is_granted(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, scope, .. } = header;
        let local = self.locks.get_mut(&lock).filter(|local| local.holder == Holder::Requested);
        let Some(local) = local.filter(|_| from == lock % self.options.nodes) else {
            return Err(refusal(&header, "grants a lock without a request").with("lock", lock));
        };
        if scope < local.seen || scope == u64::MAX {
            let refused = refusal(&header, "grants a lock with an impossible release number");
            return Err(refused.with("release", scope).with("known", local.seen));
        }
        local.seen = scope;
        local.handovers = 0;
        let task = local.waiting.pop_front().expect("a task waits for a requested lock");
        local.holder = Holder::Task(task);
        let asked = self.now.saturating_sub(local.since);
        self.counts.locks.entry(lock).or_default().asked.add(asked);
        let acceptable = self.acceptable(&header, rides);
        debug_assert!(self.locks_requested > 0, "lock {lock} is granted without a request");
        self.locks_requested -= 1;
        self.forget_notices();
        let runs = self.take_list(from, runs);
        self.notice(&runs, actions);
        self.open(lock, actions);
        actions.push(Action::Grant(task));
        self.accept_rides(&header, rides, &acceptable, actions);
        Ok(())
    }

    /// Handles a request at the manager.
    pub(super) fn lock_is_requested(
        &mut self,
        header: Header,
        rides: &[Ride],
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, scope, epoch, .. } = header;
        if self.manager(lock) != self.options.me {
            let refused = refusal(&header, "requests a lock whose manager is another node");
            return Err(refused.with("lock", lock).with("manager", self.manager(lock)));
        }
        let managed = self.managed.entry(lock).or_default();
        // The holder may request the lock again before it releases it: its release waits for diffs.
        if managed.waiting.iter().any(|waiting| waiting.0 == from) {
            return Err(refusal(&header, "requests a lock twice").with("lock", lock));
        }
        managed.pass_barrier(epoch);
        managed.waiting.push_back((from, scope));
        self.learn_fates(from, rides);
        self.grant_next(lock, actions);
        Ok(())
    }

    /// Handles a release at the manager.
    pub(super) fn lock_is_returned(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, epoch, .. } = header;
        if self.managed.get(&lock).is_none_or(|managed| managed.holder != Some(from)) {
            return Err(
                refusal(&header, "releases a lock that it does not hold").with("lock", lock)
            );
        }
        let runs = self.take_list(from, runs);
        let managed = self.managed.get_mut(&lock).expect("checked above");
        managed.holder = None;
        managed.pass_barrier(epoch);
        managed.record_release(runs);
        self.grant_next(lock, actions);
        Ok(())
    }

    /// Grants a lock to the next node, if no node holds it.
    fn grant_next(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        let managed = self.managed.get_mut(&lock).expect("managed here");
        if managed.holder.is_some() {
            return;
        }
        let Some((node, seen)) = managed.waiting.pop_front() else { return };
        debug_assert!(node < self.options.nodes, "lock {lock} is granted to a node");
        managed.holder = Some(node);
        let (released, runs) = (managed.released, managed.written_since(seen));
        let header = Header { scope: released, ..self.header(node, Op::AcquireGrant, lock) };
        let rides = self.send_rides(node, Carrier::Lock, None, &runs, actions);
        self.send_runs(header, Op::Invalidate, runs, rides, actions);
    }
}
