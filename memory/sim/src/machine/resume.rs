//! The tasks of a cluster: each runs until it computes, waits or ends.

use std::ops::Range;
use std::task::{Context, Poll, Waker};

use coherence::scope::Event;
use coherence::sequential;

use super::{Due, Machine, Status};
use crate::frames::Access;
use crate::protocol::NodeEvent;
use crate::report::{RunError, Wait};
use crate::task::Operation;

impl Machine {
    /// Resumes a task, until it computes, waits or ends.
    pub(super) fn resume(&mut self, node: u32, task: u32) -> Result<(), RunError> {
        loop {
            let state = &mut self.running[node as usize][task as usize];
            state.status = Status::Runs;
            let Some(operation) = state.operation.take() else {
                if self.poll(node, task)? {
                    return Ok(());
                }
                continue;
            };
            let continues = match operation {
                Operation::Compute(ns) => self.compute(node, task, ns),
                Operation::Touch(bytes, access) => self.touch(node, task, bytes, access),
                Operation::Mark(starts) => {
                    self.outcome.mark(starts, self.now);
                    true
                }
                call => {
                    self.call(node, task, &call);
                    false
                }
            };
            if !continues {
                return Ok(());
            }
        }
    }

    /// Polls the task's future for the next operation. Returns true if the task has ended.
    fn poll(&mut self, node: u32, task: u32) -> Result<bool, RunError> {
        let stolen_ns = self.hosts[node as usize].stolen_ns;
        let state = &mut self.running[node as usize][task as usize];
        let polled = state.future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Some(what) = state.task.take_failure() {
            return Err(RunError::Violation(format!("node {node}, task {task}: {what}")));
        }
        if polled == Poll::Ready(()) {
            state.status = Status::Ended;
            return Ok(true);
        }
        state.operation = state.task.take_operation();
        debug_assert!(state.operation.is_some(), "node {node}, task {task}: no operation");
        // Processor time that the protocol used before the grant was part of the wait.
        state.stolen_ns = stolen_ns;
        Ok(false)
    }

    /// Computes for `ns`, and for the time that the protocol has used of the processor since.
    /// Returns true if the computation has ended.
    fn compute(&mut self, node: u32, task: u32, ns: u64) -> bool {
        let stolen_ns = self.hosts[node as usize].stolen_ns;
        let state = &mut self.running[node as usize][task as usize];
        let left_ns = ns + stolen_ns - state.stolen_ns;
        state.stolen_ns = stolen_ns;
        if left_ns > 0 {
            state.since.get_or_insert(self.now);
            state.operation = Some(Operation::Compute(0));
            self.enqueue(self.now + left_ns, Due::Task(node, task));
            return false;
        }
        if let Some(since) = state.since.take() {
            self.outcome.computed_ns += self.now - since;
            if let Some(trace) = &mut self.trace {
                trace.span(node, task, "work", since, self.now);
            }
        }
        true
    }

    /// Reads or writes these bytes. Returns false if the task faults.
    fn touch(&mut self, node: u32, task: u32, mut bytes: Range<u64>, access: Access) -> bool {
        let host = &self.hosts[node as usize];
        let state = &mut self.running[node as usize][task as usize];
        let missing = host.frames.borrow().missing(&bytes, access);
        if let (Some(page), Some(_)) = (missing, &host.sequential) {
            // The task has used the pages before the fault: these may leave again.
            let used = bytes.start..bytes.start.max(page * state.task.page_bytes);
            bytes.start = used.end;
            if access == Access::Write && !used.is_empty() {
                host.frames.borrow_mut().record_write(&used);
            }
        }
        let Some(page) = missing else {
            if access == Access::Write {
                host.frames.borrow_mut().record_write(&bytes);
            }
            if let Some(since) = state.since.take() {
                self.outcome.add_wait(Wait::Fault, self.now - since);
                if let Some(trace) = &mut self.trace {
                    trace.span(node, task, "fault", since, self.now);
                }
            }
            return true;
        };
        let event = match (&host.sequential, access) {
            (None, Access::Write) => NodeEvent::Scope(Event::Write(page)),
            (None, _) => NodeEvent::Scope(Event::Read(page)),
            (_, Access::Write) => NodeEvent::Sequential(sequential::Event::Write(page)),
            (_, _) => NodeEvent::Sequential(sequential::Event::Read(page)),
        };
        state.since.get_or_insert(self.now);
        state.operation = Some(Operation::Touch(bytes, access));
        state.status = Status::Faulted(page);
        let fault_ns = self.setup.cluster.memory.fault_ns;
        self.enqueue(self.now + fault_ns, Due::Local(node, event));
        false
    }

    /// Calls the protocol.
    fn call(&mut self, node: u32, task: u32, call: &Operation) {
        let (event, wait) = match *call {
            Operation::Lock(lock) => (Event::Acquire(task, lock), Some(Wait::Lock)),
            Operation::Unlock(lock) => (Event::Release(task, lock), None),
            Operation::Barrier => (Event::Barrier(task), Some(Wait::Barrier)),
            Operation::Set(lock) => (Event::Set(task, lock), None),
            Operation::Reset(lock) => (Event::Reset(task, lock), None),
            Operation::Wait(lock) => (Event::Wait(task, lock), Some(Wait::Condition)),
            Operation::Meet => (Event::Meet(task), Some(Wait::Barrier)),
            Operation::Compute(_) | Operation::Touch(..) | Operation::Mark(_) => {
                unreachable!("{call:?} is no call")
            }
        };
        if let Some(wait) = wait {
            self.running[node as usize][task as usize].status = Status::Waits(self.now, wait);
        }
        let call_ns = if self.tasks_drive() { 0 } else { self.setup.cluster.memory.call_ns };
        self.enqueue(self.now + call_ns, Due::Local(node, NodeEvent::Scope(event)));
    }
}
