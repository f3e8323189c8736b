//! A cluster that runs a program in virtual time.
//!
//! What will happen stands in a queue by time. A node's tasks run beside each other; all that
//! the protocol does on a node is done one after the other, on a processor of its own if the
//! tasks leave one. A step of the protocol changes what tasks may touch when it begins, and
//! takes as long as its actions do; messages leave and tasks go on at the times of the actions
//! that say so.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use coherence::message::{NodeId, Page};
use coherence::record::Recorder;
use coherence::ride::{self, Policy};
use coherence::scope::{Event, Options};
use coherence::sequential;

use crate::cluster::{Cluster, LOOKS_NS, Waking, duration};
use crate::frames::Access;
use crate::host::{Effect, Host};
use crate::network::Links;
use crate::program::{Program, layout};
use crate::protocol::{Consistency, Letter, Told};
use crate::report::{Outcome, Wait};
use crate::soak::Faults;
use crate::task::{Life, Me, Op};
use crate::trace::Trace;

/// What a program runs on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Times.
    pub cluster: Cluster,
    /// Nodes: at least one.
    pub nodes: u32,
    /// Tasks of each: at least one.
    pub tasks: u32,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Which protocol keeps pages consistent.
    pub consistency: Consistency,
    /// Copies of others' pages that a node keeps, at most
    /// ([`sequential::Options::copies_max`]).
    pub copies_max: u64,
    /// Homes move to single writers ([`Options::migrate`]).
    pub migrate: bool,
    /// Pages that nobody else has are written without notice ([`Options::alone`]).
    pub alone: bool,
    /// Which messages carry rides ([`Options::rides`]).
    pub rides: Policy,
    /// A link carries one message at a time.
    pub contention: bool,
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Mail {
    pub letter: Letter,
    /// Its bytes, if the program has contents.
    pub body: Vec<u8>,
    /// How many there are, header included.
    pub bytes: usize,
    /// Its number, for the trace.
    pub number: u64,
}

/// What happens at a time.
#[derive(Debug)]
enum Due {
    /// A task goes on.
    Task(u32, u32),
    /// A task of a node has made a fault or a call.
    Local(u32, Told),
    /// A message arrives.
    Arrive(Box<Mail>),
    /// The node is lost.
    Lose(u32),
    /// A node hears that another is lost.
    Hear(u32, u32),
}

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

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runs,
    Faulted(Page),
    /// For a grant, since when and of what.
    Waits(u64, Wait),
    Ended,
    /// Waited for a page that is lost.
    Gone,
}

struct Running {
    life: Life,
    me: Me,
    status: Status,
    /// What it is at, and since when it cannot go on with that.
    op: Option<Op>,
    since: Option<u64>,
    /// What the protocol had taken from the node's processors when its work began.
    stolen: u64,
}

/// Why a program did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Nothing happens any more, and these tasks (node, task) have not ended: what they wait for.
    Waiting(Vec<(NodeId, u32, String)>),
    /// A node refused a message, or a task misused the protocol: an error of the core or of the
    /// program.
    Wrong(String),
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
    mails: u64,
    /// Spare, so that no step allocates.
    effects: Vec<(u64, Effect)>,
}

impl Machine {
    /// With the program's memory allocated, and its tasks about to begin.
    pub fn new(setup: &Setup, program: &dyn Program) -> Self {
        let Setup { nodes, tasks, page_bytes, .. } = *setup;
        assert!(nodes > 0 && tasks > 0, "a node at least, and a task on each");
        let all = u64::from(nodes) * u64::from(tasks);
        let allocations = program.allocations(all, page_bytes as u64);
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
            running.push(
                (0..tasks)
                    .map(|task| {
                        let number = u64::from(me) * u64::from(tasks) + u64::from(task);
                        let frames = Rc::clone(&host.frames);
                        let me = Me::new(number, all, page_bytes as u64, frames);
                        let life = leaving(program.task(me.clone(), &bases), me.clone());
                        let status = Status::Runs;
                        Running { life, me, status, op: None, since: None, stolen: 0 }
                    })
                    .collect(),
            );
            hosts.push(host);
        }
        let mut machine = Self {
            now: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            running,
            links: Links::new(&setup.network(), nodes, setup.contention),
            faults: None,
            trace: None,
            outcome: Outcome::new(nodes, tasks),
            mails: 0,
            effects: Vec::new(),
            setup: setup.clone(),
            hosts,
        };
        for node in 0..nodes {
            for task in 0..tasks {
                machine.at(0, Due::Task(node, task));
            }
        }
        machine.allocate(&events);
        machine
    }

    /// Records every node, from its first event on.
    pub fn record(&mut self) {
        for host in &mut self.hosts {
            host.recorder = Some(Recorder::new(&host.options));
        }
    }

    /// Draws all that happens.
    pub fn draw(&mut self, mut trace: Trace) {
        trace.begin(self.setup.nodes, self.setup.tasks);
        self.trace = Some(trace);
    }

    /// Makes messages late, nodes slow, and one lost.
    pub fn disturb(&mut self, faults: Faults) {
        if let Some((node, at)) = faults.lost {
            self.at(at, Due::Lose(node));
        }
        self.faults = Some(faults);
    }

    /// Pages are allocated before time begins.
    fn allocate(&mut self, events: &[Event]) {
        let told = |event: &Event| match (self.setup.consistency, event) {
            // All memory is the first node's at first, as with one process that spreads.
            (Consistency::Sequential, &Event::Allocate { pages, .. }) => {
                let event = sequential::Event::Allocate { pages, owner: 0, everywhere: false };
                Told::Sequential(event)
            }
            (_, event) => Told::Scope(event.clone()),
        };
        for host in &mut self.hosts {
            host.allocations = events.iter().map(told).collect();
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// It does not come to its end.
    pub fn run(&mut self) -> Result<Outcome, Stuck> {
        for node in 0..self.hosts.len() {
            for told in std::mem::take(&mut self.hosts[node].allocations) {
                self.hosts[node].step(&self.setup, 0, told, None, &mut self.effects)?;
            }
        }
        while let Some(Reverse(Queued(at, _, due))) = self.queue.pop() {
            self.now = at;
            self.outcome.events += 1;
            match due {
                Due::Lose(node) => self.lose(node),
                Due::Task(node, _) | Due::Local(node, _) if self.hosts[node as usize].lost => {}
                Due::Task(node, task) => self.go_on(node, task)?,
                Due::Local(node, told) => self.step(node, told, None)?,
                Due::Arrive(mail) if self.hosts[mail.letter.to() as usize].lost => {}
                Due::Arrive(mut mail) => {
                    let told = mail.letter.arrives();
                    self.step(mail.letter.to(), told, Some(&mail))?;
                }
                Due::Hear(node, _) if self.hosts[node as usize].lost => {}
                Due::Hear(node, lost) => {
                    self.step(node, Told::Sequential(sequential::Event::Lost(lost)), None)?;
                }
            }
        }
        self.end()
    }

    /// What the nodes recorded.
    pub fn recordings(&mut self) -> Vec<Vec<u8>> {
        let recorders = self.hosts.iter_mut().filter_map(|host| host.recorder.as_mut());
        recorders.map(Recorder::take).collect()
    }

    /// The trace, whole.
    pub fn drawn(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    fn at(&mut self, at: u64, due: Due) {
        self.queued += 1;
        self.queue.push(Reverse(Queued(at, self.queued, due)));
    }

    fn end(&mut self) -> Result<Outcome, Stuck> {
        let mut waiting = Vec::new();
        for (node, tasks) in self.running.iter().enumerate() {
            for (number, task) in tasks.iter().enumerate() {
                let is_at_end = match task.status {
                    Status::Ended | Status::Gone => true,
                    // Who waits for others ends with the program, as a node is lost.
                    Status::Waits(..) => self.tells_of_loss(),
                    _ => false,
                };
                if !is_at_end && !self.hosts[node].lost {
                    let what = format!("{:?}: {:?}", task.op, task.status);
                    waiting.push((node as NodeId, number as u32, what));
                }
            }
        }
        if !waiting.is_empty() {
            return Err(Stuck::Waiting(waiting));
        }
        for host in self.hosts.iter().filter(|host| !host.lost) {
            if !host.node.is_idle() && !self.tells_of_loss() {
                return Err(Stuck::Wrong(format!("node {} is not idle", host.options.me)));
            }
            self.outcome.add(host.node.statistics());
            if let Some(node) = &host.sequential {
                if !node.is_idle() && !self.tells_of_loss() {
                    let me = host.options.me;
                    return Err(Stuck::Wrong(format!("node {me} waits for a page")));
                }
                self.outcome.add_sequential(node.statistics());
            }
        }
        self.outcome.whole_ns = self.now;
        Ok(self.outcome.clone())
    }

    /// A node is lost, and all others hear of it.
    fn tells_of_loss(&self) -> bool {
        let is_sequential = self.setup.consistency == Consistency::Sequential;
        is_sequential && self.hosts.iter().any(|host| host.lost)
    }

    fn lose(&mut self, node: NodeId) {
        self.hosts[node as usize].lost = true;
        if self.setup.consistency == Consistency::Sequential {
            for other in (0..self.setup.nodes).filter(|&other| other != node) {
                // Whatever it has said arrives before.
                let delay = self.faults.as_mut().map_or(0, Faults::delay);
                let hears = self.links.send(self.now, node, other, 0, delay);
                self.at(hears, Due::Hear(other, node));
            }
        }
    }

    /// A task goes on: until it has to wait, or works.
    fn go_on(&mut self, node: u32, task: u32) -> Result<(), Stuck> {
        let memory = &self.setup.cluster.memory;
        let fault = memory.fault_ns;
        let call = if self.tasks_drive() { 0 } else { memory.call_ns };
        loop {
            let host = &mut self.hosts[node as usize];
            let state = &mut self.running[node as usize][task as usize];
            state.status = Status::Runs;
            let Some(op) = state.op.take() else {
                let polled = state.life.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if let Some(what) = state.me.complaint() {
                    return Err(Stuck::Wrong(format!("node {node}, task {task}: {what}")));
                }
                match polled {
                    Poll::Ready(()) => {
                        state.status = Status::Ended;
                        return Ok(());
                    }
                    Poll::Pending => state.op = state.me.wanted(),
                }
                // What was written before the grant is part of the wait no more.
                state.stolen = host.stolen;
                continue;
            };
            match op {
                Op::Compute(ns) => {
                    // What the protocol took meanwhile of the processors is added.
                    let lost = host.stolen - state.stolen;
                    state.stolen = host.stolen;
                    let left = ns + lost;
                    if left == 0 {
                        self.outcome.computed_ns += state.since.take().map_or(0, |since| {
                            let worked = self.now - since;
                            if let Some(trace) = &mut self.trace {
                                trace.span(node, task, "work", since, self.now);
                            }
                            worked
                        });
                        continue;
                    }
                    state.since.get_or_insert(self.now);
                    state.op = Some(Op::Compute(0));
                    self.at(self.now + left, Due::Task(node, task));
                    return Ok(());
                }
                Op::Touch(mut bytes, wants) => {
                    let missing = host.frames.borrow().missing(&bytes, wants);
                    if let (Some(page), Some(_)) = (missing, &host.sequential) {
                        // Nobody waits for what was used: it may go again.
                        let used = bytes.start..bytes.start.max(page * state.me.page_bytes);
                        bytes.start = used.end;
                        if wants == Access::Write && !used.is_empty() {
                            host.frames.borrow_mut().written(&used);
                        }
                    }
                    let Some(page) = missing else {
                        if let Some(since) = state.since.take() {
                            self.outcome.waited(Wait::Fault, self.now - since);
                            if let Some(trace) = &mut self.trace {
                                trace.span(node, task, "fault", since, self.now);
                            }
                        }
                        if wants == Access::Write {
                            host.frames.borrow_mut().written(&bytes);
                        }
                        continue;
                    };
                    state.since.get_or_insert(self.now);
                    state.op = Some(Op::Touch(bytes, wants));
                    state.status = Status::Faulted(page);
                    let told = match (&host.sequential, wants) {
                        (None, Access::Write) => Told::Scope(Event::Write(page)),
                        (None, _) => Told::Scope(Event::Read(page)),
                        (_, Access::Write) => Told::Sequential(sequential::Event::Write(page)),
                        (_, _) => Told::Sequential(sequential::Event::Read(page)),
                    };
                    self.at(self.now + fault, Due::Local(node, told));
                    return Ok(());
                }
                Op::Mark(begins) => {
                    self.outcome.mark(begins, self.now);
                    continue;
                }
                _ => {}
            }
            let (event, wait) = match op {
                Op::Lock(lock) => (Event::Acquire(task, lock), Some(Wait::Lock)),
                Op::Unlock(lock) => (Event::Release(task, lock), None),
                Op::Barrier => (Event::Barrier(task), Some(Wait::Barrier)),
                Op::Set(lock) => (Event::Set(task, lock), None),
                Op::Reset(lock) => (Event::Reset(task, lock), None),
                Op::Wait(lock) => (Event::Wait(task, lock), Some(Wait::Condition)),
                Op::Meet => (Event::Meet(task), Some(Wait::Barrier)),
                Op::Compute(_) | Op::Touch(..) | Op::Mark(_) => unreachable!("done above"),
            };
            if let Some(wait) = wait {
                state.status = Status::Waits(self.now, wait);
            }
            self.at(self.now + call, Due::Local(node, Told::Scope(event)));
            return Ok(());
        }
    }

    /// A step of the protocol on a node.
    fn step(&mut self, node: NodeId, told: Told, mail: Option<&Mail>) -> Result<(), Stuck> {
        let waking = self.waking(node, &told);
        let drives = self.tasks_drive();
        let host = &mut self.hosts[node as usize];
        let mut begins = self.now.max(host.free) + waking;
        if let Some(faults) = &mut self.faults {
            begins += faults.pause();
            faults.nonsense(host).map_err(Stuck::Wrong)?;
        }
        let name = told.name();
        // What is granted to nobody is answered when it is done.
        let answered = match told {
            Told::Scope(Event::Release(task, _) | Event::Set(task, _) | Event::Reset(task, _)) => {
                Some(task)
            }
            _ => None,
        };
        if let (Some(trace), Told::Scope(Event::Message(header, _, rides))) =
            (&mut self.trace, &told)
        {
            rides.iter().for_each(|ride| trace.ride(self.setup.tasks, header, ride, begins));
        }
        let mut effects = std::mem::take(&mut self.effects);
        let ends = host.step(&self.setup, begins, told, mail, &mut effects)?;
        host.free = ends;
        if drives {
            host.stolen += (ends - begins) / u64::from(self.setup.tasks);
        }
        if let Some(trace) = &mut self.trace {
            trace.span(node, self.setup.tasks, name, begins, ends.max(begins + 1));
            if let Some(mail) = mail {
                trace.arrive(node, self.setup.tasks, mail.number, name, begins);
            }
        }
        let wake = self.setup.cluster.memory.wake_ns;
        // A task that drives is there when it is answered; of several, one drives.
        let go_on = if drives && self.setup.tasks == 1 { 0 } else { wake };
        for (at, effect) in effects.drain(..) {
            match effect {
                Effect::Wake(page) => {
                    for task in self.stopped_at(node, page) {
                        self.running[node as usize][task as usize].status = Status::Runs;
                        self.at(at + wake, Due::Task(node, task));
                    }
                }
                Effect::Hold(page) => {
                    let told = Told::Sequential(sequential::Event::Touched(page));
                    self.at(at, Due::Local(node, told));
                }
                Effect::Gone(page) => {
                    for task in self.stopped_at(node, page) {
                        self.running[node as usize][task as usize].status = Status::Gone;
                    }
                }
                Effect::Grant(task) => {
                    let state = &mut self.running[node as usize][task as usize];
                    let Status::Waits(since, wait) = state.status else {
                        let what = format!("node {node}, task {task}: a grant nobody waits for");
                        return Err(Stuck::Wrong(what));
                    };
                    self.outcome.waited(wait, at + go_on - since);
                    if let Some(trace) = &mut self.trace {
                        trace.span(node, task, wait.name(), since, at + go_on);
                    }
                    state.status = Status::Runs;
                    self.at(at + go_on, Due::Task(node, task));
                }
                Effect::Send(mut mail) => {
                    self.mails += 1;
                    mail.number = self.mails;
                    self.outcome.bytes += mail.bytes as u64;
                    let (from, to, name) =
                        (mail.letter.from(), mail.letter.to(), mail.letter.name());
                    let delay = self.faults.as_mut().map_or(0, Faults::delay);
                    let arrives = self.links.send(at, from, to, mail.bytes, delay);
                    if let Some(trace) = &mut self.trace {
                        trace.leave(from, self.setup.tasks, mail.number, name, at);
                    }
                    self.at(arrives, Due::Arrive(mail));
                }
            }
        }
        self.effects = effects;
        if let Some(task) = answered {
            self.at(ends + go_on, Due::Task(node, task));
        }
        Ok(())
    }

    /// The tasks of a node that were stopped at a page.
    fn stopped_at(&self, node: NodeId, page: Page) -> Vec<u32> {
        let tasks = self.running[node as usize].iter().zip(0..);
        let stopped = tasks.filter(|(task, _)| task.status == Status::Faulted(page));
        stopped.map(|(_, number)| number).collect()
    }

    /// Whether who waits does the protocol's work itself: where tasks use all processors of a
    /// node, as in production (`dsm::agent::driver`).
    fn tasks_drive(&self) -> bool {
        self.setup.tasks >= self.setup.cluster.cores
    }

    /// How long the protocol of a node takes to be awake for what comes now: a message, a call
    /// or a fault.
    fn waking(&self, node: NodeId, told: &Told) -> u64 {
        let Waking { waiting_ns, computing_ns } = self.setup.cluster.waking;
        let free = self.hosts[node as usize].free;
        if !self.tasks_drive() || free > self.now {
            return 0;
        }
        let computes = |task: &Running| task.status == Status::Runs;
        if told.is_message() {
            return match self.running[node as usize].iter().any(computes) {
                true => computing_ns,
                false if self.now - free < LOOKS_NS => 0,
                false => waiting_ns,
            };
        }
        if told.is_fault() { waiting_ns } else { 0 }
    }
}

/// A task's life with what `jia_exit` does at its end: it waits for all others.
fn leaving(life: Life, me: Me) -> Life {
    Box::pin(async move {
        life.await;
        me.meet().await;
    })
}

impl Setup {
    fn network(&self) -> crate::cluster::Network {
        self.cluster.network.clone()
    }

    /// What the processor of a message's sender or receiver does for its bytes.
    pub(crate) fn per_bytes(&self, bytes: usize) -> u64 {
        bytes as u64 * self.cluster.network.kib_ns / 1024
    }

    /// To copy so many bytes.
    pub(crate) fn copy(&self, bytes: usize) -> u64 {
        duration(bytes, self.cluster.memory.copy_mb_s)
    }

    /// To compare so many bytes with others.
    pub(crate) fn compare(&self, bytes: usize) -> u64 {
        duration(bytes, self.cluster.memory.diff_mb_s)
    }
}

/// What a program's tasks share, and what a node has of it.
pub(crate) type Shared<T> = Rc<RefCell<T>>;
