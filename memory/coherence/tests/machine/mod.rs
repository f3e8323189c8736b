//! Nodes with memory, a network, and tasks that run scripts. The model checker and the random walks
//! drive them. Messages are the real bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use coherence::content::Content;
use coherence::diff;
use coherence::message::{Header, NodeId, Page};
use coherence::random::{Operation, Program};
use coherence::scope::event::{Body, Kept};
use coherence::scope::page::{EVENTS, PageEvent, STATES, State, TABLE};
use coherence::scope::{Action, Event, Node, Options};

/// Number of times each rule was applied, by state and event.
static TAKEN: [[AtomicU64; EVENTS]; STATES] =
    [const { [const { AtomicU64::new(0) }; EVENTS] }; STATES];

/// Returns the rules that were never applied.
#[allow(dead_code, reason = "not all tests ask")]
pub fn never_followed() -> Vec<(State, PageEvent)> {
    let cells = TABLE.rules().iter().map(|rule| (rule.state, rule.event));
    let taken = |(state, on): &(State, PageEvent)| &TAKEN[*state as usize][*on as usize];
    cells.filter(|cell| taken(cell).load(Ordering::Relaxed) == 0).collect()
}

/// Size of a page in bytes.
pub const PAGE: usize = 4;
/// The contents of a dropped page.
const NOTHING: u8 = 0xee;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Access {
    None,
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Frame {
    access: Access,
    bytes: [u8; PAGE],
    twin: Option<[u8; PAGE]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Status {
    Runs,
    /// Faulted on a page, and its node does not know yet.
    Faults(Page, Access),
    /// Waits for a page.
    Faulted(Page),
    /// Waits for a grant.
    Waits,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Task {
    at: usize,
    /// The value that a [`Operation::Add`] has read.
    read: Option<u8>,
    status: Status,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Host {
    node: Node,
    frames: Vec<Frame>,
    changes: BTreeMap<NodeId, Vec<u8>>,
    kept: BTreeMap<Kept, Vec<u8>>,
    tasks: Vec<Task>,
}

/// The messages in flight between two nodes, in order.
type Way = VecDeque<(Header, Vec<u8>)>;

/// All nodes and the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    hosts: Vec<Host>,
    network: BTreeMap<(NodeId, NodeId), Way>,
    /// The first violation.
    pub wrong: Option<String>,
    /// True if other steps may happen between a fault and its handling.
    pub slow_faults: bool,
}

/// A possible next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// A task continues.
    Task(usize, usize),
    /// A node learns of a task's fault.
    Fault(usize, usize),
    /// A message arrives.
    Deliver(NodeId, NodeId),
}

impl Machine {
    pub fn new(program: &Program) -> Self {
        let nodes = program.nodes.len() as u32;
        let hosts = program.nodes.iter().enumerate().map(|(me, scripts)| {
            let mut node = Node::new(Options {
                nodes,
                me: me as NodeId,
                tasks: scripts.len() as u32,
                migrate: program.migrate,
                alone: program.alone,
                rides: program.rides,
                pages_max: 4,
            });
            let allocate = Event::Allocate { pages: program.pages, homes: program.homes };
            node.step(allocate, 0, &mut Vec::new()).expect("no message");
            let frame = |page| {
                let home = program.homes.of(page, nodes) == me as NodeId;
                let bytes = if home { [0; PAGE] } else { [NOTHING; PAGE] };
                Frame { access: Access::None, bytes, twin: None }
            };
            let task = Task { at: 0, read: None, status: Status::Runs };
            Host {
                node,
                frames: (0..program.pages).map(frame).collect(),
                changes: BTreeMap::new(),
                kept: BTreeMap::new(),
                tasks: vec![task; scripts.len()],
            }
        });
        Self { hosts: hosts.collect(), network: BTreeMap::new(), wrong: None, slow_faults: false }
    }

    pub fn next(&self, program: &Program) -> Vec<Next> {
        let mut next = Vec::new();
        for (host, scripts) in program.nodes.iter().enumerate() {
            for (task, script) in scripts.iter().enumerate() {
                let state = &self.hosts[host].tasks[task];
                match state.status {
                    Status::Runs if state.at < script.len() => next.push(Next::Task(host, task)),
                    Status::Faults(..) => next.push(Next::Fault(host, task)),
                    _ => {}
                }
            }
        }
        let waiting = self.network.iter().filter(|(_, messages)| !messages.is_empty());
        next.extend(waiting.map(|(&(from, to), _)| Next::Deliver(from, to)));
        next
    }

    /// Returns true if all scripts have ended, and nothing is in flight.
    pub fn is_done(&self, program: &Program) -> bool {
        let ended = |(host, scripts): (&Host, &Vec<Vec<Operation>>)| {
            let mut tasks = host.tasks.iter().zip(scripts);
            host.node.is_idle() && tasks.all(|(task, script)| task.at == script.len())
        };
        self.hosts.iter().zip(&program.nodes).all(ended)
    }

    /// Performs a step. Its grants carry those of these pages that they may carry.
    pub fn go_with(&mut self, program: &Program, next: Next, rides: Vec<Page>) {
        let host = match next {
            Next::Task(host, _) | Next::Fault(host, _) => host,
            Next::Deliver(_, to) => to as usize,
        };
        self.hosts[host].node.suggest(rides);
        self.go(program, next);
        self.hosts[host].node.suggest(Vec::new());
    }

    pub fn go(&mut self, program: &Program, next: Next) {
        match next {
            Next::Task(host, task) => self.task(host, task, program.nodes[host][task].as_slice()),
            Next::Fault(host, task) => self.fault(host, task),
            Next::Deliver(from, to) => {
                let messages = self.network.get_mut(&(from, to)).expect("a message in flight");
                let (header, body) = messages.pop_front().expect("a message in flight");
                if messages.is_empty() {
                    self.network.remove(&(from, to));
                }
                let header = Header::parse(&header.bytes()).expect("a well-formed message");
                let (content, rides) =
                    Content::parse(&header, &body, PAGE).expect("a well-formed message");
                self.step(to as usize, Event::Message(header, content, rides), &body);
            }
        }
    }

    fn task(&mut self, host: usize, task: usize, script: &[Operation]) {
        let state = &mut self.hosts[host].tasks[task];
        let number = task as u32;
        let next = script[state.at];
        let event = match next {
            Operation::Expect(page, at, value) => {
                if let Some(read) = self.access(host, task, page, Access::Read) {
                    if read[at] != value {
                        self.wrong = Some(format!(
                            "node {host}, task {task}: byte {at} of page {page} is {}, not {value}",
                            read[at]
                        ));
                    }
                    self.hosts[host].tasks[task].at += 1;
                }
                return;
            }
            Operation::Write(page, at, value) => {
                if let Some(bytes) = self.access(host, task, page, Access::Write) {
                    bytes[at] = value;
                    self.hosts[host].tasks[task].at += 1;
                }
                return;
            }
            Operation::Add(page, at) => {
                match state.read {
                    None => {
                        if let Some(read) = self.access(host, task, page, Access::Read) {
                            let read = read[at];
                            self.hosts[host].tasks[task].read = Some(read);
                        }
                    }
                    Some(read) => {
                        if let Some(bytes) = self.access(host, task, page, Access::Write) {
                            bytes[at] = read.wrapping_add(1);
                            let state = &mut self.hosts[host].tasks[task];
                            state.read = None;
                            state.at += 1;
                        }
                    }
                }
                return;
            }
            Operation::Unlock(lock) => Event::Release(number, lock),
            Operation::Set(lock) => Event::Set(number, lock),
            Operation::Reset(lock) => Event::Reset(number, lock),
            Operation::Lock(lock) => Event::Acquire(number, lock),
            Operation::Wait(lock) => Event::Wait(number, lock),
            Operation::Barrier => Event::Barrier(number),
            Operation::Meet => Event::Meet(number),
        };
        state.at += 1;
        if !matches!(next, Operation::Unlock(_) | Operation::Set(_) | Operation::Reset(_)) {
            state.status = Status::Waits;
        }
        self.step(host, event, &[]);
    }

    /// Returns the page if the task has this access; otherwise the task faults.
    fn access(
        &mut self,
        host: usize,
        task: usize,
        page: Page,
        wants: Access,
    ) -> Option<&mut [u8; PAGE]> {
        if self.hosts[host].frames[page as usize].access < wants {
            self.hosts[host].tasks[task].status = Status::Faults(page, wants);
            if !self.slow_faults {
                self.fault(host, task);
            }
            return None;
        }
        Some(&mut self.hosts[host].frames[page as usize].bytes)
    }

    fn fault(&mut self, host: usize, task: usize) {
        let task = &mut self.hosts[host].tasks[task];
        let Status::Faults(page, wants) = task.status else { unreachable!("it does") };
        task.status = Status::Faulted(page);
        let event = match wants {
            Access::Write => Event::Write(page),
            _ => Event::Read(page),
        };
        self.step(host, event, &[]);
    }

    fn step(&mut self, host: usize, event: Event, body: &[u8]) {
        let mut actions = Vec::new();
        let happened = format!("{event:?}");
        let Host { node, frames, changes, kept: kept_here, tasks } = &mut self.hosts[host];
        if let Err(refused) = node.step(event, 0, &mut actions) {
            self.wrong = Some(format!("node {host} refuses {happened}: {refused}"));
        }
        for (taken, counts) in TAKEN.iter().zip(&node.statistics().rules) {
            for (taken, count) in taken.iter().zip(counts) {
                taken.fetch_add(*count, Ordering::Relaxed);
            }
        }
        node.forget_statistics();
        let mut go_on = |page| {
            for task in tasks.iter_mut().filter(|task| task.status == Status::Faulted(page)) {
                task.status = Status::Runs;
            }
        };
        let mut granted = Vec::new();
        for action in actions {
            match action {
                Action::Fill(page, place) => {
                    let bytes = &body[place * PAGE..][..PAGE];
                    frames[page as usize].bytes.copy_from_slice(bytes);
                }
                Action::Keep(kept) => {
                    let before = kept_here.insert(kept, body.to_vec());
                    assert_eq!(before, None, "a second message for one barrier");
                }
                Action::FillKept(page, kept, place) => {
                    let bytes = &kept_here[&kept][place * PAGE..][..PAGE];
                    frames[page as usize].bytes.copy_from_slice(bytes);
                }
                Action::Forget(kept) => {
                    kept_here.remove(&kept).expect("a kept message");
                }
                Action::Twin(page) => {
                    let frame = &mut frames[page as usize];
                    frame.twin = Some(frame.bytes);
                }
                Action::MapRead(page) => {
                    let frame = &mut frames[page as usize];
                    frame.access = frame.access.max(Access::Read);
                    go_on(page);
                }
                Action::MapWrite(page) => {
                    frames[page as usize].access = Access::Write;
                    go_on(page);
                }
                Action::Protect(page) => {
                    let frame = &mut frames[page as usize];
                    frame.access = frame.access.min(Access::Read);
                }
                Action::Unmap(page) => {
                    frames[page as usize] =
                        Frame { access: Access::None, bytes: [NOTHING; PAGE], twin: None };
                }
                Action::Wake(page) => go_on(page),
                Action::Diff(page, to) => {
                    let frame = &mut frames[page as usize];
                    let twin = frame.twin.take().expect("a twin");
                    diff::append(changes.entry(to).or_default(), page, &twin, &frame.bytes);
                }
                Action::Change => {
                    for (page, runs) in diff::pages(body, PAGE).expect("parsed before") {
                        diff::apply(runs, &mut frames[page as usize].bytes);
                    }
                }
                Action::Send(header, body, rides) => {
                    let diffs = match body {
                        Body::Diffs => changes.remove(&header.to).unwrap_or_default(),
                        _ => Vec::new(),
                    };
                    let body = body.bytes(&rides, diffs, |page, bytes| {
                        bytes.extend(frames[page as usize].bytes);
                    });
                    let way = (header.from, header.to);
                    self.network.entry(way).or_default().push_back((header, body));
                }
                Action::Grant(task) => granted.push(task),
                Action::Misuse(task, misuse) => {
                    self.wrong = Some(format!("node {host}, task {task}: {misuse:?}"));
                }
            }
        }
        for task in granted {
            let task = &mut self.hosts[host].tasks[task as usize];
            if task.status != Status::Waits {
                self.wrong = Some(format!("node {host}: a grant that nobody waits for"));
            }
            task.status = Status::Runs;
        }
    }
}
