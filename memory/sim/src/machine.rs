//! A cluster that runs a program in virtual time.
//!
//! A queue holds future occurrences in the order of their times. The tasks of a node run in
//! parallel. The protocol's steps on a node run one after the other, on a dedicated processor if
//! the tasks leave one. A step changes the access to pages when it starts, and takes as long as its
//! actions. Each message leaves, and each task resumes, at the time of its action.
//!
//! `resume` runs the tasks, and `steps` the protocol.

mod resume;
mod steps;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use coherence::message::{NodeId, Page};
use coherence::record::Recorder;
use coherence::ride::{self, choices::Choices};
use coherence::scope::{Event, Options};
use coherence::sequential;

use crate::faults::Faults;
use crate::host::{Effect, Host};
use crate::network::Links;
use crate::program::{Program, layout};
use crate::protocol::{Consistency, NodeEvent, Packet};
use crate::report::{Outcome, RunError, Wait};
use crate::setup::Setup;
use crate::task::{Operation, Task, TaskFuture};
use crate::trace::Trace;

/// An occurrence in the queue.
#[derive(Debug)]
enum Due {
    /// A task of a node resumes.
    Task(u32, u32),
    /// A task of a node faulted or made a call.
    Local(u32, NodeEvent),
    /// A message arrives.
    Arrive(Box<Packet>),
    /// The node is lost.
    Lose(u32),
    /// The first node learns that the second is lost.
    LearnLoss(u32, u32),
}

/// An occurrence, with its time and its sequence number.
struct Queued(u64, u64, Due);

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runs,
    Faulted(Page),
    /// Waits for a grant: since when, and of what kind.
    Waits(u64, Wait),
    Ended,
    /// Waited for a page that is lost.
    Gone,
}

/// A task of a node.
struct Running {
    future: TaskFuture,
    task: Task,
    status: Status,
    /// The current operation.
    operation: Option<Operation>,
    /// The time since which the operation is blocked or computes.
    since: Option<u64>,
    /// [`Host::stolen_ns`] when the computation started.
    stolen_ns: u64,
}

/// A cluster that runs a program.
pub struct Machine {
    setup: Setup,
    now: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    queued: u64,
    hosts: Vec<Host>,
    running: Vec<Vec<Running>>,
    links: Links,
    faults: Option<Faults>,
    trace: Option<Trace>,
    outcome: Outcome,
    messages: u64,
    /// Reused, so that a step needs no allocation.
    effects: Vec<(u64, Effect)>,
}

impl Machine {
    /// Creates a cluster. The program's memory is allocated, and its tasks are about to start.
    ///
    /// # Panics
    /// The setup has no nodes or no tasks.
    pub fn new(setup: &Setup, program: &dyn Program) -> Self {
        let Setup { nodes, tasks, page_bytes, .. } = *setup;
        assert!(nodes > 0 && tasks > 0, "at least one node, and at least one task per node");
        let all_tasks = u64::from(nodes) * u64::from(tasks);
        let allocations = program.allocations(all_tasks, page_bytes as u64);
        let (events, bases) = layout(&allocations, setup);
        let mut hosts = Vec::new();
        let mut running = Vec::new();
        for me in 0..nodes {
            let options = Options {
                nodes,
                me,
                tasks,
                migrate: setup.migrate,
                alone: setup.alone,
                rides: setup.rides,
                pages_max: ride::pages_max(page_bytes),
            };
            let host = Host::new(options, setup, program.has_contents());
            let of_node = (0..tasks).map(|task| {
                let number = u64::from(me) * u64::from(tasks) + u64::from(task);
                let frames = Rc::clone(&host.frames);
                let task = Task::new(number, all_tasks, page_bytes as u64, frames);
                let future = with_exit(program.task(task.clone(), &bases), task.clone());
                let status = Status::Runs;
                Running { future, task, status, operation: None, since: None, stolen_ns: 0 }
            });
            running.push(of_node.collect());
            hosts.push(host);
        }
        let mut machine = Self {
            now: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            running,
            links: Links::new(&setup.cluster.network, nodes, setup.contention),
            faults: None,
            trace: None,
            outcome: Outcome::new(nodes, tasks),
            messages: 0,
            effects: Vec::new(),
            setup: setup.clone(),
            hosts,
        };
        for node in 0..nodes {
            for task in 0..tasks {
                machine.enqueue(0, Due::Task(node, task));
            }
        }
        machine.allocate(&events);
        machine
    }

    /// Selects other choices for the paper's policies on all nodes. Call this before
    /// [`run`](Self::run).
    pub fn choose(&mut self, choices: Choices) {
        self.hosts.iter_mut().for_each(|host| host.node.choose(choices));
    }

    /// Records every node, from its first event on.
    pub fn record(&mut self) {
        for host in &mut self.hosts {
            host.recorder = Some(Recorder::new(&host.options));
        }
    }

    /// Writes all occurrences to a trace.
    pub fn write_trace(&mut self, mut trace: Trace) {
        trace.name_threads(self.setup.nodes, self.setup.tasks);
        self.trace = Some(trace);
    }

    /// Injects faults.
    pub fn inject(&mut self, faults: Faults) {
        if let Some((node, at)) = faults.lost {
            self.enqueue(at, Due::Lose(node));
        }
        self.faults = Some(faults);
    }

    /// Allocates pages before the program starts.
    fn allocate(&mut self, events: &[Event]) {
        let event_of = |event: &Event| match (self.setup.consistency, event) {
            // The first node owns all memory initially, like the first process of a real program.
            (Consistency::Sequential, &Event::Allocate { pages, .. }) => {
                let event = sequential::Event::Allocate { pages, owner: 0, everywhere: false };
                NodeEvent::Sequential(event)
            }
            (_, event) => NodeEvent::Scope(event.clone()),
        };
        for host in &mut self.hosts {
            host.allocations = events.iter().map(event_of).collect();
        }
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// The program does not reach its end.
    pub fn run(&mut self) -> Result<Outcome, RunError> {
        for node in 0..self.hosts.len() {
            for event in std::mem::take(&mut self.hosts[node].allocations) {
                self.hosts[node].step(&self.setup, 0, event, None, &mut self.effects)?;
            }
        }
        while let Some(Reverse(Queued(at, _, due))) = self.queue.pop() {
            debug_assert!(at >= self.now, "time goes back");
            self.now = at;
            self.outcome.events += 1;
            match due {
                Due::Lose(node) => self.lose(node),
                Due::Task(node, _) | Due::Local(node, _) if self.is_lost(node) => {}
                Due::Task(node, task) => self.resume(node, task)?,
                Due::Local(node, event) => self.step(node, event, None)?,
                Due::Arrive(packet) if self.is_lost(packet.message.to()) => {}
                Due::Arrive(mut packet) => {
                    let event = packet.message.take_event();
                    self.step(packet.message.to(), event, Some(&packet))?;
                }
                Due::LearnLoss(node, _) if self.is_lost(node) => {}
                Due::LearnLoss(node, lost) => {
                    let event = NodeEvent::Sequential(sequential::Event::Lost(lost));
                    self.step(node, event, None)?;
                }
            }
        }
        self.end()
    }

    /// Takes the recordings of all nodes.
    pub fn recordings(&mut self) -> Vec<Vec<u8>> {
        let recorders = self.hosts.iter_mut().filter_map(|host| host.recorder.as_mut());
        recorders.map(Recorder::take).collect()
    }

    /// Takes the trace after the run. Call [`Trace::finish`] then.
    pub fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    fn is_lost(&self, node: NodeId) -> bool {
        self.hosts[node as usize].is_lost
    }

    fn enqueue(&mut self, at: u64, due: Due) {
        self.queued += 1;
        self.queue.push(Reverse(Queued(at, self.queued, due)));
    }

    /// Checks that all tasks and nodes have reached their end, and completes the outcome.
    fn end(&mut self) -> Result<Outcome, RunError> {
        let mut waiting = Vec::new();
        for (node, tasks) in self.running.iter().enumerate() {
            for (number, task) in tasks.iter().enumerate() {
                let is_at_end = match task.status {
                    Status::Ended | Status::Gone => true,
                    // After the loss of a node, tasks that wait for others end with the program.
                    Status::Waits(..) => self.reports_loss(),
                    _ => false,
                };
                if !is_at_end && !self.hosts[node].is_lost {
                    let what = format!("{:?}: {:?}", task.operation, task.status);
                    waiting.push((node as NodeId, number as u32, what));
                }
            }
        }
        if !waiting.is_empty() {
            return Err(RunError::Deadlock(waiting));
        }
        for host in self.hosts.iter().filter(|host| !host.is_lost) {
            let me = host.options.me;
            if !host.node.is_idle() && !self.reports_loss() {
                return Err(RunError::Violation(format!("node {me} is not idle")));
            }
            self.outcome.add(host.node.statistics());
            if let Some(node) = &host.sequential {
                if !node.is_idle() && !self.reports_loss() {
                    return Err(RunError::Violation(format!("node {me} waits for a page")));
                }
                self.outcome.add_sequential(node.statistics());
            }
        }
        self.outcome.whole_ns = self.now;
        Ok(self.outcome.clone())
    }

    /// Returns true if a node is lost, and all others learn of it.
    fn reports_loss(&self) -> bool {
        let is_sequential = self.setup.consistency == Consistency::Sequential;
        is_sequential && self.hosts.iter().any(|host| host.is_lost)
    }

    fn lose(&mut self, node: NodeId) {
        self.hosts[node as usize].is_lost = true;
        if self.setup.consistency == Consistency::Sequential {
            for other in (0..self.setup.nodes).filter(|&other| other != node) {
                // All messages that the node has sent arrive before.
                let delay_ns = self.faults.as_mut().map_or(0, Faults::delay_ns);
                let at = self.links.send(self.now, node, other, 0, delay_ns);
                self.enqueue(at, Due::LearnLoss(other, node));
            }
        }
    }

    /// Returns true if waiting tasks perform the protocol's work: tasks use all processors of a
    /// node. Production behaves the same (`dsm::agent::driver`).
    fn tasks_drive(&self) -> bool {
        self.setup.tasks >= self.setup.cluster.cores
    }
}

/// Returns the task with the end that `jia_exit` gives it: the task waits for all others.
fn with_exit(future: TaskFuture, task: Task) -> TaskFuture {
    Box::pin(async move {
        future.await;
        task.meet().await;
    })
}
