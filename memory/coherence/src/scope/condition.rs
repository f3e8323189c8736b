//! Condition variables. Setting one closes a scope. The scope holds all writes since the barrier,
//! and the writes learnt from other condition variables. A task that has waited for it opens the
//! scope.

use std::collections::VecDeque;

use super::event::{Action, Body, Refused, Task};
use super::lock::union;
use super::node::Node;
use crate::message::{Header, Lock, NodeId, Op};
use crate::run::Run;

/// Upper limit of task numbers in messages.
const TASKS_MAX: Task = 1 << 16;

/// The manager's state of a condition variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Condition {
    set: bool,
    waiting: VecDeque<(NodeId, Task)>,
    /// The barriers passed, and the pages written since then and before the variable was set.
    epoch: u64,
    written: Vec<Run>,
}

/// A task that waits for a condition variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    lock: Lock,
    since: u64,
}

impl Condition {
    fn pass(&mut self, epoch: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.written.clear();
        }
    }
}

impl Node {
    pub(super) fn set(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        // The next barrier must list these pages too.
        let written = self.scopes[0].written.clone();
        let runs = self.flush(written, actions);
        let runs = union([&runs, &self.heard].into_iter());
        self.send_later(self.manager(lock), Op::Set, lock, Body::Runs(runs));
    }

    pub(super) fn reset(&mut self, lock: Lock) {
        self.send_later(self.manager(lock), Op::Reset, lock, Body::Empty);
    }

    pub(super) fn wait(&mut self, task: Task, lock: Lock, actions: &mut Vec<Action>) {
        self.waiting.insert(task, Waiting { lock, since: self.now });
        self.send(self.manager(lock), Op::Wait, lock, task.into(), Body::Empty, actions);
    }

    /// Handles a set at the manager.
    pub(super) fn is_set(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, epoch, .. } = header;
        self.condition(&header)?;
        let runs = self.whole(from, runs);
        let condition = self.condition(&header)?;
        condition.pass(epoch);
        condition.set = true;
        condition.written = union([&condition.written, &runs].into_iter());
        for (node, task) in std::mem::take(&mut condition.waiting) {
            self.tell(lock, node, task, actions);
        }
        Ok(())
    }

    /// Handles a reset at the manager.
    pub(super) fn is_reset(&mut self, header: Header) -> Result<(), Refused> {
        self.condition(&header)?.set = false;
        Ok(())
    }

    /// Handles a wait at the manager.
    pub(super) fn waits(
        &mut self,
        header: Header,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, scope, epoch, .. } = header;
        let Some(task) = Task::try_from(scope).ok().filter(|&task| task < TASKS_MAX) else {
            return Err(Refused::of(&header, "waits with a task that cannot be"));
        };
        let condition = self.condition(&header)?;
        if !condition.set && condition.waiting.contains(&(from, task)) {
            return Err(Refused::of(&header, "waits twice"));
        }
        condition.pass(epoch);
        match condition.set {
            true => self.tell(lock, from, task, actions),
            false => condition.waiting.push_back((from, task)),
        }
        Ok(())
    }

    fn condition(&mut self, header: &Header) -> Result<&mut Condition, Refused> {
        match self.manager(header.lock) == self.options.me {
            true => Ok(self.conditions.entry(header.lock).or_default()),
            false => Err(Refused::of(header, "means a variable that is managed elsewhere")),
        }
    }

    fn tell(&mut self, lock: Lock, node: NodeId, task: Task, actions: &mut Vec<Action>) {
        let runs = self.conditions[&lock].written.clone();
        let header = Header { scope: task.into(), ..self.header(node, Op::WaitGrant, lock) };
        self.send_runs(header, Op::Invalidate, runs, Vec::new(), actions);
    }

    /// Handles the notification that a variable is set, for a task of this node.
    pub(super) fn waited(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, scope, .. } = header;
        let task = Task::try_from(scope).ok();
        let waiting = task.and_then(|task| self.waiting.get(&task).map(|waiting| (task, *waiting)));
        match waiting {
            Some((task, waiting)) if waiting.lock == lock && self.manager(lock) == from => {
                self.waiting.remove(&task);
                let runs = self.whole(from, runs);
                let took = self.now.saturating_sub(waiting.since);
                self.counts.locks.entry(lock).or_default().asked.add(took);
                self.notice(&runs, actions);
                self.heard = union([&self.heard, &runs].into_iter());
                actions.push(Action::Grant(task));
                Ok(())
            }
            _ => Err(Refused::of(&header, "tells of what nobody waits for")),
        }
    }
}
