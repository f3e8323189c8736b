//! Condition variables. Setting one closes a scope. The scope holds all writes since the barrier,
//! and the writes learnt from other condition variables. A task that has waited for it opens the
//! scope.

use super::event::{Action, Body, Task, refusal};
use super::node::Node;
use super::state::condition::{Condition, Waiting};
use crate::message::{Header, Lock, NodeId, Op};
use crate::refusal::Refused;
use crate::run::{Run, union};

/// Upper limit of task numbers in messages.
const TASKS_MAX: Task = 1 << 16;

impl Node {
    /// Handles a task's set of a variable.
    pub(super) fn set(&mut self, lock: Lock, actions: &mut Vec<Action>) {
        // The next barrier must list these pages too.
        let written = self.scopes[0].written.clone();
        let runs = self.flush(written, actions);
        let runs = union([&runs, &self.learnt].into_iter());
        self.send_later(self.manager(lock), Op::Set, lock, Body::Runs(runs));
    }

    /// Handles a task's reset of a variable.
    pub(super) fn reset(&mut self, lock: Lock) {
        self.send_later(self.manager(lock), Op::Reset, lock, Body::Empty);
    }

    /// Handles a task's wait for a variable.
    pub(super) fn wait(&mut self, task: Task, lock: Lock, actions: &mut Vec<Action>) {
        self.waiting.insert(task, Waiting { lock, since: self.now });
        self.send(self.manager(lock), Op::Wait, lock, task.into(), Body::Empty, actions);
    }

    /// Handles a set at the manager.
    pub(super) fn condition_is_set(
        &mut self,
        header: Header,
        runs: Vec<Run>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, epoch, .. } = header;
        self.condition(&header)?;
        let runs = self.take_list(from, runs);
        let condition = self.condition(&header)?;
        condition.pass_barrier(epoch);
        condition.is_set = true;
        condition.written = union([&condition.written, &runs].into_iter());
        for (node, task) in std::mem::take(&mut condition.waiting) {
            self.grant_wait(lock, node, task, actions);
        }
        Ok(())
    }

    /// Handles a reset at the manager.
    pub(super) fn condition_is_reset(&mut self, header: Header) -> Result<(), Refused> {
        self.condition(&header)?.is_set = false;
        Ok(())
    }

    /// Handles a wait at the manager.
    pub(super) fn task_waits(
        &mut self,
        header: Header,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refused> {
        let Header { from, lock, scope, epoch, .. } = header;
        let Some(task) = Task::try_from(scope).ok().filter(|&task| task < TASKS_MAX) else {
            let refused = refusal(&header, "waits with an invalid task");
            return Err(refused.with("task", scope).with("limit", TASKS_MAX));
        };
        let condition = self.condition(&header)?;
        if !condition.is_set && condition.waiting.contains(&(from, task)) {
            return Err(refusal(&header, "waits twice").with("task", task));
        }
        condition.pass_barrier(epoch);
        match condition.is_set {
            true => self.grant_wait(lock, from, task, actions),
            false => condition.waiting.push_back((from, task)),
        }
        Ok(())
    }

    /// Returns a variable that this node manages.
    fn condition(&mut self, header: &Header) -> Result<&mut Condition, Refused> {
        match self.manager(header.lock) == self.options.me {
            true => Ok(self.conditions.entry(header.lock).or_default()),
            false => {
                let refused = refusal(header, "names a variable whose manager is another node");
                Err(refused.with("variable", header.lock))
            }
        }
    }

    /// Notifies a task that a variable is set.
    fn grant_wait(&mut self, lock: Lock, node: NodeId, task: Task, actions: &mut Vec<Action>) {
        let runs = self.conditions[&lock].written.clone();
        let header = Header { scope: task.into(), ..self.header(node, Op::WaitGrant, lock) };
        self.send_runs(header, Op::Invalidate, runs, Vec::new(), actions);
    }

    /// Handles the notification that a variable is set, for a task of this node.
    pub(super) fn wait_is_granted(
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
                let runs = self.take_list(from, runs);
                let took = self.now.saturating_sub(waiting.since);
                self.counts.locks.entry(lock).or_default().asked.add(took);
                self.notice(&runs, actions);
                self.learnt = union([&self.learnt, &runs].into_iter());
                actions.push(Action::Grant(task));
                Ok(())
            }
            _ => {
                let refused = refusal(&header, "grants a wait without a request");
                Err(refused.with("variable", lock).with("task", scope))
            }
        }
    }
}
