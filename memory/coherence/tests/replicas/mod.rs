//! Nodes with memory, a network, and tasks that read and write without locks. The model checker and
//! the random walks of sequential consistency drive them. Messages are the real bytes.
//!
//! The check is stricter than sequential consistency, and simpler: linearizability. Every read
//! returns the last write in the order of steps. While a node may write a page, no other node may
//! read it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use coherence::message::{NodeId, Page};
use coherence::sequential::message::{Header, parse};
use coherence::sequential::page::{EVENTS, PageEvent, STATES, State, TABLE};
use coherence::sequential::{Action, Event, Node, Options};

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
pub const PAGE: usize = 2;
/// The contents of a dropped page.
const NOTHING: u8 = 0xee;

/// The next operation of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads the byte and stores its value.
    Read(Page, usize),
    /// Writes the byte.
    Write(Page, usize, u8),
    /// Increments the byte atomically (x86's `lock inc`).
    Add(Page, usize),
}

/// The scripts of all tasks, and the layout of memory.
#[derive(Clone, Debug)]
pub struct Program {
    /// The script of each task, by node and task.
    pub nodes: Vec<Vec<Vec<Operation>>>,
    /// The initial owner of each page. `None`: all nodes have copies.
    pub owners: Vec<Option<NodeId>>,
    /// The options of all nodes, except `nodes` and `me`.
    pub options: Options,
    /// True if other steps may happen between a fault and its handling.
    pub slow_faults: bool,
    /// True if a requested page may leave at any time, not only after its use.
    pub hasty: bool,
    /// The node that is lost, at any time.
    pub lost: Option<usize>,
    /// True if pages are reported as loaded initially.
    pub loaded: bool,
    /// The page that is reset, at any time, and its owner then.
    pub renewed: Option<(Page, NodeId)>,
}

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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Status {
    Runs,
    /// Was stopped at the page, has this access now, and is about to retry.
    Woken(Page, Access),
    /// Faulted on a page, and its node does not know yet.
    Faults(Page, Access),
    /// Waits for a page.
    Faulted(Page),
    /// Waited for a page that is lost.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Task {
    at: usize,
    read: Vec<u8>,
    status: Status,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Host {
    node: Node,
    frames: Vec<Frame>,
    tasks: Vec<Task>,
    /// Pages for which other nodes wait.
    held: BTreeSet<Page>,
    /// The node has learnt of the lost node.
    knows: bool,
    renewal: Renewal,
}

/// The progress of a node in the reset of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Renewal {
    Before,
    Closed,
    Renewed,
    Open,
}

/// The messages in flight between two nodes, in order.
type Way = VecDeque<(Header, Vec<u8>)>;

/// All nodes and the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    hosts: Vec<Host>,
    network: BTreeMap<(NodeId, NodeId), Way>,
    /// The last value of each byte.
    memory: Vec<[u8; PAGE]>,
    is_lost: bool,
    now: u64,
    /// The first violation.
    pub wrong: Option<String>,
}

/// A possible next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// A task continues.
    Task(usize, usize),
    /// A node learns of a task's fault.
    Fault(usize, usize),
    /// A node's tasks have used a page for which other nodes wait, or had time to.
    Touch(usize, Page),
    /// A message arrives.
    Deliver(NodeId, NodeId),
    /// A node is lost.
    Lose(usize),
    /// Another node learns of the loss.
    Hear(usize, usize),
    /// A node performs the next step of a page's reset.
    Renew(usize),
}

impl Machine {
    pub fn new(program: &Program) -> Self {
        let nodes = program.nodes.len() as u32;
        let hosts = program.nodes.iter().enumerate().map(|(me, scripts)| {
            let me = me as NodeId;
            let mut node = Node::new(Options { nodes, me, ..program.options });
            let frame = |owner: &Option<NodeId>| {
                let (owner, everywhere) = (owner.unwrap_or(0), owner.is_none());
                let allocate = Event::Allocate { pages: 1, owner, everywhere };
                let page = node.pages();
                node.step(allocate, 0, &mut Vec::new()).expect("no message");
                if program.loaded {
                    let loaded = Event::Loaded(page..page + 1);
                    node.step(loaded, 0, &mut Vec::new()).expect("no message");
                }
                let is_here = everywhere || owner == me;
                let bytes = [if is_here { 0 } else { NOTHING }; PAGE];
                Frame { access: Access::None, bytes }
            };
            let frames = program.owners.iter().map(frame).collect();
            let task = Task { at: 0, read: Vec::new(), status: Status::Runs };
            let tasks = vec![task; scripts.len()];
            Host {
                node,
                frames,
                tasks,
                held: BTreeSet::new(),
                knows: false,
                renewal: Renewal::Before,
            }
        });
        Self {
            hosts: hosts.collect(),
            network: BTreeMap::new(),
            memory: vec![[0; PAGE]; program.owners.len()],
            is_lost: false,
            now: 0,
            wrong: None,
        }
    }

    fn lives(&self, program: &Program, host: usize) -> bool {
        !self.is_lost || program.lost != Some(host)
    }

    pub fn next(&self, program: &Program) -> Vec<Next> {
        let mut next = Vec::new();
        for (number, scripts) in program.nodes.iter().enumerate() {
            let host = &self.hosts[number];
            if !self.lives(program, number) {
                continue;
            }
            let is_closed = |page| {
                let is_closed = (Renewal::Closed..Renewal::Open).contains(&host.renewal);
                is_closed && program.renewed.is_some_and(|(renewed, _)| renewed == page)
            };
            for (task, script) in scripts.iter().enumerate() {
                let state = &host.tasks[task];
                let Some(
                    Operation::Read(page, _) | Operation::Write(page, ..) | Operation::Add(page, _),
                ) = script.get(state.at)
                else {
                    continue;
                };
                match state.status {
                    _ if is_closed(*page) => {}
                    Status::Runs | Status::Woken(..) => next.push(Next::Task(number, task)),
                    Status::Faults(..) => next.push(Next::Fault(number, task)),
                    _ => {}
                }
            }
            if program.renewed.is_some_and(|renewed| self.may_renew(host, renewed.0)) {
                next.push(Next::Renew(number));
            }
            let used = |page: &Page| {
                let woken = |it: &Task| matches!(it.status, Status::Woken(its, _) if its == *page);
                program.hasty || is_closed(*page) || !host.tasks.iter().any(woken)
            };
            let touched = host.held.iter().copied().filter(used);
            next.extend(touched.map(|page| Next::Touch(number, page)));
            if program.lost == Some(number) && !self.is_lost {
                next.push(Next::Lose(number));
            }
        }
        let arrives = |(way, messages): &(&(NodeId, NodeId), &Way)| {
            !messages.is_empty() && self.lives(program, way.1 as usize)
        };
        let waiting = self.network.iter().filter(arrives);
        next.extend(waiting.map(|(&(from, to), _)| Next::Deliver(from, to)));
        if let Some(lost) = program.lost.filter(|_| self.is_lost) {
            let hears = |host: &usize| {
                let way = self.network.get(&(lost as NodeId, *host as NodeId));
                *host != lost && !self.hosts[*host].knows && way.is_none_or(VecDeque::is_empty)
            };
            let hosts = (0..self.hosts.len()).filter(hears);
            next.extend(hosts.map(|host| Next::Hear(host, lost)));
        }
        next
    }

    /// Returns true if all nodes have progressed enough for this node's next step.
    fn may_renew(&self, host: &Host, page: Page) -> bool {
        let pages = page..page + 1;
        self.hosts.iter().all(|other| match host.renewal {
            Renewal::Before => true,
            Renewal::Closed => {
                other.renewal > Renewal::Closed
                    || other.renewal == Renewal::Closed && other.node.is_quiet(&pages)
            }
            Renewal::Renewed => other.renewal >= Renewal::Renewed,
            Renewal::Open => false,
        })
    }

    fn renew(&mut self, number: usize, (page, owner): (Page, NodeId)) {
        let host = &mut self.hosts[number];
        let pages = page..page + 1;
        let (renewal, event) = match host.renewal {
            Renewal::Before => (Renewal::Closed, Event::Close(pages)),
            Renewal::Closed => {
                let bytes = [if owner == number as NodeId { 0 } else { NOTHING }; PAGE];
                host.frames[page as usize] = Frame { access: Access::None, bytes };
                self.memory[page as usize] = [0; PAGE];
                let woken =
                    |it: &&mut Task| matches!(it.status, Status::Woken(its, _) if its == page);
                host.tasks.iter_mut().filter(woken).for_each(|task| task.status = Status::Runs);
                (Renewal::Renewed, Event::Renew { pages, owner, everywhere: false })
            }
            Renewal::Renewed | Renewal::Open => (Renewal::Open, Event::Open(pages)),
        };
        host.renewal = renewal;
        self.step(number, event, &[]);
    }

    /// Returns true if all scripts have ended or wait for lost pages, and nothing is in flight.
    pub fn is_done(&self, program: &Program) -> bool {
        (0..self.hosts.len()).filter(|&host| self.lives(program, host)).all(|number| {
            let host = &self.hosts[number];
            let mut tasks = host.tasks.iter().zip(&program.nodes[number]);
            let ended = |(task, script): (&Task, &Vec<Operation>)| {
                task.at == script.len() || task.status == Status::Gone
            };
            (self.is_lost || host.node.is_idle()) && tasks.all(ended)
        })
    }

    /// Returns the values that the tasks have read.
    #[allow(dead_code, reason = "not all tests ask")]
    pub fn read(&self) -> Vec<Vec<u8>> {
        let tasks = self.hosts.iter().flat_map(|host| &host.tasks);
        tasks.map(|task| task.read.clone()).collect()
    }

    /// Advances the time.
    #[allow(dead_code, reason = "not all tests have time")]
    pub fn tick(&mut self) {
        self.now += 1;
    }

    /// Performs a step. Its requests prefetch these pages.
    pub fn go(&mut self, program: &Program, next: Next, prefetches: Vec<Page>) {
        match next {
            Next::Task(host, task) => {
                let script = &program.nodes[host][task];
                self.hosts[host].node.suggest(prefetches);
                self.task(program, host, task, script);
            }
            Next::Fault(host, task) => {
                self.hosts[host].node.suggest(prefetches);
                self.fault(host, task);
            }
            Next::Touch(host, page) => {
                self.hosts[host].held.remove(&page);
                self.step(host, Event::Touched(page), &[]);
            }
            Next::Deliver(from, to) => {
                let messages = self.network.get_mut(&(from, to)).expect("a message in flight");
                let (header, body) = messages.pop_front().expect("a message in flight");
                if messages.is_empty() {
                    self.network.remove(&(from, to));
                }
                let header = Header::parse(&header.bytes()).expect("a well-formed message");
                let (content, _) = parse(&header, &body, PAGE).expect("a well-formed message");
                self.step(to as usize, Event::Message(header, content), &body);
            }
            Next::Renew(host) => self.renew(host, program.renewed.expect("a page to reset")),
            Next::Lose(host) => {
                self.is_lost = true;
                self.network.retain(|way, _| way.1 as usize != host);
            }
            Next::Hear(host, lost) => {
                self.hosts[host].knows = true;
                self.step(host, Event::Lost(lost as NodeId), &[]);
            }
        }
        if let Next::Task(host, _) | Next::Fault(host, _) = next {
            self.hosts[host].node.suggest(Vec::new());
        }
        self.check(program);
    }

    /// Checks that no node may read a page that another node may write, and that readable pages are
    /// current.
    fn check(&mut self, program: &Program) {
        // No task uses a page during its reset.
        let opens = |host: &Host| (Renewal::Closed..Renewal::Open).contains(&host.renewal);
        let closed = program.renewed.filter(|_| self.hosts.iter().any(opens));
        let pages = self.memory.iter().enumerate();
        for (page, memory) in
            pages.filter(|(page, _)| closed.is_none_or(|it| it.0 != *page as Page))
        {
            let living = (0..self.hosts.len()).filter(|&host| self.lives(program, host));
            let frames = || living.clone().map(|host| &self.hosts[host].frames[page]);
            let readers = frames().filter(|frame| frame.access >= Access::Read).count();
            let writers = frames().filter(|frame| frame.access == Access::Write).count();
            let is_old = |frame: &Frame| frame.access >= Access::Read && frame.bytes != *memory;
            let is_seen_old = frames().any(is_old);
            if writers > 0 && readers > 1 {
                self.wrong = Some(format!("page {page}: {writers} write it, {readers} read it"));
            } else if is_seen_old {
                self.wrong = Some(format!("page {page}: somebody sees an old one"));
            }
        }
    }

    fn task(&mut self, program: &Program, host: usize, task: usize, script: &[Operation]) {
        let (page, wants) = match script[self.hosts[host].tasks[task].at] {
            Operation::Read(page, _) => (page, Access::Read),
            Operation::Write(page, ..) | Operation::Add(page, _) => (page, Access::Write),
        };
        if self.hosts[host].frames[page as usize].access < wants {
            if let Status::Woken(its, may) = self.hosts[host].tasks[task].status
                && (its == page && may >= wants && !program.hasty)
            {
                self.wrong = Some(format!("node {host}: page {page} goes before it was used"));
            }
            self.hosts[host].tasks[task].status = Status::Faults(page, wants);
            if !program.slow_faults {
                self.fault(host, task);
            }
            return;
        }
        let Host { frames, tasks, .. } = &mut self.hosts[host];
        let (bytes, state) = (&mut frames[page as usize].bytes, &mut tasks[task]);
        let memory = &mut self.memory[page as usize];
        match script[state.at] {
            Operation::Read(_, at) => state.read.push(bytes[at]),
            Operation::Write(_, at, value) => bytes[at] = value,
            Operation::Add(_, at) => bytes[at] = bytes[at].wrapping_add(1),
        }
        match script[state.at] {
            Operation::Read(_, at) if bytes[at] != memory[at] => {
                self.wrong = Some(format!("node {host}, task {task}: reads {}", bytes[at]));
            }
            Operation::Read(..) => {}
            Operation::Write(_, at, value) => memory[at] = value,
            Operation::Add(_, at) => memory[at] = memory[at].wrapping_add(1),
        }
        state.at += 1;
        state.status = Status::Runs;
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
        let Host { node, frames, tasks, held, .. } = &mut self.hosts[host];
        let pages = match &event {
            Event::Message(header, _) => parse(header, body, PAGE).map(|(_, pages)| pages),
            _ => None,
        };
        if let Err(refused) = node.step(event, self.now, &mut actions) {
            self.wrong = Some(format!("node {host} refuses {happened}: {refused}"));
        }
        for (taken, counts) in TAKEN.iter().zip(&node.statistics().rules) {
            for (taken, count) in taken.iter().zip(counts) {
                taken.fetch_add(*count, Ordering::Relaxed);
            }
        }
        node.forget_statistics();
        let mut go_on = |page, status| {
            for task in tasks.iter_mut().filter(|task| task.status == Status::Faulted(page)) {
                task.status = status;
            }
        };
        for action in actions {
            match action {
                Action::Fill(page, place) => {
                    let zeros = [0; PAGE];
                    let came = pages.as_ref().expect("pages in the message").get(place);
                    let frame = &mut frames[page as usize];
                    if frame.access != Access::None {
                        self.wrong = Some(format!("page {page} is filled while it is used"));
                    }
                    frame.bytes.copy_from_slice(came.unwrap_or(&zeros));
                }
                Action::MapRead(page) => {
                    let frame = &mut frames[page as usize];
                    frame.access = frame.access.max(Access::Read);
                    go_on(page, Status::Woken(page, Access::Read));
                }
                Action::MapWrite(page) => {
                    frames[page as usize].access = Access::Write;
                    go_on(page, Status::Woken(page, Access::Write));
                }
                Action::Protect(page) => {
                    let frame = &mut frames[page as usize];
                    frame.access = frame.access.min(Access::Read);
                }
                Action::Unmap(page) => {
                    frames[page as usize] = Frame { access: Access::None, bytes: [NOTHING; PAGE] };
                }
                Action::Wake(page) => go_on(page, Status::Woken(page, Access::None)),
                Action::Hold(page) => {
                    held.insert(page);
                }
                Action::Send(header, body) => {
                    let body = body.bytes(|pages, bytes| {
                        for page in pages {
                            let frame = &frames[page as usize];
                            if frame.access == Access::Write {
                                let wrong = format!("page {page} is sent while it is written");
                                self.wrong = Some(wrong);
                            }
                            bytes.extend(frame.bytes);
                        }
                    });
                    let way = (header.from, header.to);
                    self.network.entry(way).or_default().push_back((header, body));
                }
                Action::Lost(..) => {}
                Action::Gone(page) => go_on(page, Status::Gone),
            }
        }
    }
}
