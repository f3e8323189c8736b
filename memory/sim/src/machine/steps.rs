//! The protocol's steps on the nodes of a cluster, and their effects.

use coherence::message::{NodeId, Page};
use coherence::scope::Event;
use coherence::sequential;

use super::{Due, Machine, Running, Status};
use crate::cluster::{SPIN_NS, Waking};
use crate::faults::Faults;
use crate::host::Effect;
use crate::protocol::{NodeEvent, Packet};
use crate::report::RunError;

impl Machine {
    /// Performs a step of the protocol on a node.
    pub(super) fn step(
        &mut self,
        node: NodeId,
        event: NodeEvent,
        packet: Option<&Packet>,
    ) -> Result<(), RunError> {
        let tasks = self.setup.tasks;
        let waking_ns = self.waking_ns(node, &event);
        let drives = self.tasks_drive();
        let host = &mut self.hosts[node as usize];
        let mut begin = self.now.max(host.busy_until) + waking_ns;
        if let Some(faults) = &mut self.faults {
            begin += faults.pause_ns();
            faults
                .random_message(&host.node, host.sequential.as_ref())
                .map_err(RunError::Violation)?;
        }
        let name = event.name();
        // These calls have no grant: the task resumes at the end of the step.
        let caller = match event {
            NodeEvent::Scope(
                Event::Release(task, _) | Event::Set(task, _) | Event::Reset(task, _),
            ) => Some(task),
            _ => None,
        };
        if let (Some(trace), NodeEvent::Scope(Event::Message(header, _, rides))) =
            (&mut self.trace, &event)
        {
            rides.iter().for_each(|ride| trace.ride(tasks, header, ride, begin));
        }
        let mut effects = std::mem::take(&mut self.effects);
        let end = host.step(&self.setup, begin, event, packet, &mut effects)?;
        debug_assert!(end >= begin, "a step ends before it begins");
        host.busy_until = end;
        if drives {
            host.stolen_ns += (end - begin) / u64::from(tasks);
        }
        if let Some(trace) = &mut self.trace {
            trace.span(node, tasks, name, begin, end.max(begin + 1));
            if let Some(packet) = packet {
                trace.arrive(node, tasks, packet.number, name, begin);
            }
        }
        for (at, effect) in effects.drain(..) {
            self.effect(node, at, effect)?;
        }
        self.effects = effects;
        if let Some(task) = caller {
            self.enqueue(end + self.resume_ns(), Due::Task(node, task));
        }
        Ok(())
    }

    /// Returns the time from a grant until the task resumes. A single task that drives the protocol
    /// is awake. Of several tasks only one drives it.
    fn resume_ns(&self) -> u64 {
        let is_awake = self.tasks_drive() && self.setup.tasks == 1;
        if is_awake { 0 } else { self.setup.cluster.memory.wake_ns }
    }

    /// Handles an effect of a step at its time.
    fn effect(&mut self, node: NodeId, at: u64, effect: Effect) -> Result<(), RunError> {
        match effect {
            Effect::Wake(page) => {
                let wake_ns = self.setup.cluster.memory.wake_ns;
                for task in self.stopped_at(node, page) {
                    self.running[node as usize][task as usize].status = Status::Runs;
                    self.enqueue(at + wake_ns, Due::Task(node, task));
                }
            }
            Effect::Hold(page) => {
                let event = NodeEvent::Sequential(sequential::Event::Touched(page));
                self.enqueue(at, Due::Local(node, event));
            }
            Effect::Gone(page) => {
                for task in self.stopped_at(node, page) {
                    self.running[node as usize][task as usize].status = Status::Gone;
                }
            }
            Effect::Grant(task) => {
                let resumed = at + self.resume_ns();
                let state = &mut self.running[node as usize][task as usize];
                let Status::Waits(since, wait) = state.status else {
                    let what = format!("node {node}, task {task}: a grant without a request");
                    return Err(RunError::Violation(what));
                };
                state.status = Status::Runs;
                self.outcome.add_wait(wait, resumed - since);
                if let Some(trace) = &mut self.trace {
                    trace.span(node, task, wait.name(), since, resumed);
                }
                self.enqueue(resumed, Due::Task(node, task));
            }
            Effect::Send(mut packet) => {
                self.messages += 1;
                packet.number = self.messages;
                self.outcome.bytes += packet.bytes as u64;
                let message = &packet.message;
                let (from, to, name) = (message.from(), message.to(), message.name());
                let delay_ns = self.faults.as_mut().map_or(0, Faults::delay_ns);
                let arrival = self.links.send(at, from, to, packet.bytes, delay_ns);
                if let Some(trace) = &mut self.trace {
                    trace.leave(from, self.setup.tasks, packet.number, name, at);
                }
                self.enqueue(arrival, Due::Arrive(packet));
            }
        }
        Ok(())
    }

    /// Returns the tasks of a node that are stopped at a page.
    fn stopped_at(&self, node: NodeId, page: Page) -> Vec<u32> {
        let tasks = self.running[node as usize].iter().zip(0..);
        let stopped = tasks.filter(|(task, _)| task.status == Status::Faulted(page));
        stopped.map(|(_, number)| number).collect()
    }

    /// Returns the time until the protocol of a node is awake for an event.
    fn waking_ns(&self, node: NodeId, event: &NodeEvent) -> u64 {
        let Waking { waiting_ns, computing_ns } = self.setup.cluster.waking;
        let busy_until = self.hosts[node as usize].busy_until;
        if !self.tasks_drive() || busy_until > self.now {
            return 0;
        }
        let computes = |task: &Running| task.status == Status::Runs;
        if event.is_message() {
            return match self.running[node as usize].iter().any(computes) {
                true => computing_ns,
                false if self.now - busy_until < SPIN_NS => 0,
                false => waiting_ns,
            };
        }
        if event.is_fault() { waiting_ns } else { 0 }
    }
}
