//! The agent of a node: it drives the protocol for all tasks of the node.
//!
//! It handles one event at a time: a message from another node, a request of a task, or a fault.
//! The [page engine](node) passes faults and messages to the protocol and carries out its actions
//! on pages. The agent adds locks, barriers, allocations and messages between tasks. [`driver`]
//! says which thread runs the agent, and when it sleeps.

mod accesses;
mod allocations;
pub mod driver;
mod ended;
mod engine;
mod messages;
pub(crate) mod observe;
mod requests;
mod tasks;
mod watch;

use std::fs::File;
use std::io::Write as _;
use std::iter;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coherence::message::{NodeId, Op};
use coherence::record::{self, Recorder};
use coherence::ride;
use coherence::scope::tree::children;
use coherence::scope::{Node, Options};
use net::mesh::{Gone, Mesh, Received};
use node::driver::Engine;
use node::flush::FLUSH;
use node::memory::Memory as _;
use node::scope::{Scope, Scoped as _};
use pager::{Access, Fault, Place, Region, Stops};

use observe::Observer;
use tasks::{DrivingTask, EndedTask, PendingSend, TaskState};
use watch::Watch;

use crate::error::{DsmError, say_last};
use crate::frame::Frame;
use crate::launch::Launch;
use crate::ledger::{Ledger, LocalAllocation};
use crate::mailbox::{self, Message};
use crate::report::Traffic;
use crate::request_table::{Doorbell, RequestTable};
use crate::settings::{Agreed, Settings, Statistics};
use crate::world::World;

/// Time limit for the other nodes to learn that this one leaves.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// Time limit for the failing node to report the cause.
const REPORT_MAX: Duration = Duration::from_secs(2);
/// Recorded bytes that are written together.
const RECORD_BYTES: usize = 1 << 16;

/// The end of the job, unless another node reports its cause before `until`.
struct PendingEnd {
    until: Instant,
    line: String,
}

/// A node's agent.
pub struct Agent {
    pages: Scope,
    options: Options,
    engine: Engine<Region>,
    table: &'static RequestTable,
    doorbell: Doorbell,
    world: Arc<World>,
    launch: Arc<Launch>,
    statistics: Statistics,
    traffic: Traffic,
    record: Option<File>,
    /// The observer for reports, and the prefix of their file names.
    observer: Option<(Observer, String)>,
    tasks: Vec<TaskState>,
    allocations: Vec<LocalAllocation>,
    /// The allocations of this node and its children in the barriers' tree.
    ledger: Ledger,
    /// Messages that wait for room at their receiver.
    pending_sends: Vec<PendingSend>,
    /// Tasks of any node that have ended without having left.
    ended: Vec<EndedTask>,
    unreceived: mailbox::Unreceived,
    received: mailbox::Received,
    /// The number of requests that are not answered yet.
    waiting: usize,
    may_spin: MaySpin,
    watch: Arc<Watch>,
    /// Messages of other nodes wake the agent's thread.
    listens: bool,
    driving_task: Option<DrivingTask>,
    pending_end: Option<PendingEnd>,
    /// All tasks have left. The others have to leave before this time.
    leaving: Option<Instant>,
}

/// The parts of an agent.
pub struct Parts {
    /// The settings of this node; `agreed` are those of the job.
    pub settings: Settings,
    /// All tasks and nodes.
    pub world: Arc<World>,
    /// The launcher, which can end the job.
    pub launch: Arc<Launch>,
    /// The requests of the node's tasks.
    pub table: &'static RequestTable,
    /// The doorbell that tasks ring to wake the agent.
    pub doorbell: Doorbell,
    /// The connections to other nodes, if there are any.
    pub network: Option<Mesh>,
    /// Which threads may spin.
    pub may_spin: MaySpin,
}

/// Which threads may spin before they sleep: this machine has a processor for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaySpin {
    /// Agents, while tasks compute.
    pub agents_beside_tasks: bool,
    /// Agents, while all of their tasks wait.
    pub agents_instead_of_tasks: bool,
    /// Tasks.
    pub tasks: bool,
}

impl Agent {
    /// Makes the agent of this process's node.
    pub fn new(parts: Parts) -> Result<Self, DsmError> {
        let Parts { settings, world, launch, table, doorbell, network, may_spin } = parts;
        let Agreed { page_bytes, start, migrate, alone, rides, messages_max, calls, .. } =
            settings.agreed;
        let tasks = world.neighbours().len();
        let me = world.own().node;
        let nodes = world.nodes.len() as u32;
        let pages_max = ride::pages_max(page_bytes);
        let options = Options { nodes, me, tasks: tasks as u32, migrate, alone, rides, pages_max };
        let stops = if calls { Stops::All } else { Stops::Programs };
        let region = Region::new(Place { start, page_bytes }, stops)?;
        let faults = region.descriptor();
        let watch = Watch::new(&doorbell, faults, network.as_ref().map(Mesh::descriptor))?;
        let record = match settings.record {
            None => None,
            Some(directory) => {
                let path = directory.join(record::file_name(me));
                let file = File::create(&path).map_err(|error| {
                    DsmError::System(format!("NAGAYA_DSM_RECORD: {}: {error}", path.display()))
                })?;
                Some(file)
            }
        };
        let recorder = record.as_ref().map(|_| Recorder::new(&options));
        Ok(Self {
            pages: Scope::new(Node::new(options), page_bytes, recorder),
            options,
            engine: Engine::new(region, network),
            table,
            doorbell,
            world,
            launch,
            statistics: settings.statistics,
            traffic: Traffic::default(),
            record,
            observer: settings.report.map(|prefix| (Observer::default(), prefix)),
            tasks: (0..tasks).map(|_| TaskState::default()).collect(),
            allocations: Vec::new(),
            ledger: Ledger::new(iter::once(me).chain(children(me, nodes))),
            pending_sends: Vec::new(),
            ended: Vec::new(),
            unreceived: mailbox::Unreceived::new(messages_max),
            received: mailbox::Received::new(messages_max),
            waiting: 0,
            may_spin,
            watch: Arc::new(watch),
            listens: false,
            driving_task: None,
            pending_end: None,
            leaving: None,
        })
    }

    /// Returns the userfaultfd of its memory.
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.engine.memory.descriptor()
    }

    /// Returns true if the thread that drives the agent may spin before it sleeps.
    fn may_spin(&self) -> bool {
        let MaySpin { agents_beside_tasks, agents_instead_of_tasks, tasks } = self.may_spin;
        let all_wait = self.waiting + self.pages.missing() >= self.tasks.len();
        agents_beside_tasks
            || agents_instead_of_tasks && all_wait
            || tasks && self.driving_task.is_some()
    }

    /// Lets tasks start once all nodes are connected. Returns true if it let one start.
    fn join(&mut self) -> bool {
        if self.engine.mesh.as_ref().is_some_and(|network| !network.is_whole()) {
            return false;
        }
        let mut found = false;
        for task in 0..self.tasks.len() {
            if std::mem::take(&mut self.tasks[task].joins) {
                found = true;
                self.reply(task as u32, Ok([0, 0]));
            }
        }
        found
    }

    /// Starts to leave when all tasks have left, and ends the job when its time has come.
    fn check_time(&mut self) {
        if self.leaving.is_none() && self.tasks.iter().all(|task| task.has_left) {
            self.leaving = Some(Instant::now() + LEAVE_MAX);
            if let Some(network) = &mut self.engine.mesh {
                network.leave();
            }
        }
        let now = Instant::now();
        if let Some(PendingEnd { until, line }) = &self.pending_end
            && now >= *until
        {
            let line = line.clone();
            self.end(1, &line);
        }
    }

    fn is_over(&self) -> bool {
        let is_alone = || self.engine.mesh.as_ref().is_none_or(Mesh::is_empty);
        self.leaving.is_some_and(|until| is_alone() || Instant::now() >= until)
    }

    /// Prepares to sleep. Returns true if every later event will wake a sleeper, and false if there
    /// is something to do.
    fn may_sleep(&mut self) -> bool {
        self.write_record(RECORD_BYTES);
        if !self.table.may_sleep() {
            return false;
        }
        match self.engine.arm() {
            Ok(true) => {}
            Ok(false) => {
                self.table.awake();
                return false;
            }
            Err(error) => self.fail(&error),
        }
        // A task that drives the agent serves the network, unless it runs a signal handler or is
        // stopped at a page.
        let task_serves = self.driving_task.as_ref().is_some_and(|it| !it.dozes);
        self.listen(!task_serves || self.pages.missing() > 0);
        true
    }

    /// Selects whether messages of other nodes wake the agent's thread.
    fn listen(&mut self, listens: bool) {
        if let Some(network) = &self.engine.mesh
            && self.listens != listens
        {
            self.watch.listen(network.descriptor(), listens);
            self.listens = listens;
        }
    }

    /// Returns when there is something to do, even if nothing arrives.
    fn deadline(&self) -> Option<Instant> {
        let network = self.engine.mesh.as_ref().and_then(Mesh::deadline);
        let pending_end = self.pending_end.as_ref().map(|it| it.until);
        [network, pending_end, self.leaving].into_iter().flatten().min()
    }

    /// Handles a fault.
    fn stopped(&mut self, fault: &Fault) {
        let wants = self.engine.memory.wanted(fault.wants);
        if let Some((observer, _)) = &mut self.observer {
            observer.stopped(fault.page, fault.at, fault.thread);
            let node = &self.pages.node;
            if wants == Access::Write && node.home(fault.page) == Some(self.options.me) {
                observer.wrote(fault.page, self.options.me, node.epoch());
            }
        }
        self.resolve(fault.page, fault.wants);
    }

    /// Handles a message of another node.
    fn handle(&mut self, message: Received) {
        let Received { from, header, mut body } = message;
        let members = &self.world.members;
        let node = |task: u32| members.get(task as usize).map(|member| member.node);
        match Frame::parse(&header) {
            Some(Frame::Page(header)) if header.from == from => {
                if !self.receive(header, &mut body) {
                    self.protocol_violation(from, header.op.name());
                }
                if header.op == Op::GetPage {
                    self.check_page_requests();
                }
            }
            Some(Frame::Message(address)) => match (node(address.from), node(address.to)) {
                (Some(sender), Some(to)) if sender == from && to == self.options.me => {
                    let which = (address.to, sender);
                    if self.received.arrived(which, mailbox::cost(body.len())).is_none() {
                        self.protocol_violation(from, "messages beyond the limit");
                    }
                    self.deliver_or_keep(Message { address, text: body });
                }
                _ => self.protocol_violation(from, "a message between other tasks"),
            },
            Some(Frame::Received { task, bytes }) => {
                let is_theirs = node(task) == Some(from);
                match is_theirs.then(|| self.unreceived.remove(task, bytes)).flatten() {
                    Some(()) => self.send_pending(),
                    None => self.protocol_violation(from, "a receipt of unsent messages"),
                }
            }
            Some(Frame::Ended { task, barriers }) => match node(task) == Some(from) {
                true => self.has_ended(EndedTask { task, barriers }),
                false => self.protocol_violation(from, "the end of another node's task"),
            },
            Some(Frame::Allocated(allocation)) if self.ledger.is_of(from) => {
                self.allocated(from, allocation);
            }
            // The node that ends the job has printed the line.
            Some(Frame::End(status)) => self.finish(status, &String::from_utf8_lossy(&body)),
            Some(Frame::Alive) => {}
            _ => self.protocol_violation(from, "an unknown header"),
        }
    }

    /// Ends the job: a node has sent a message that the protocol does not allow.
    fn protocol_violation(&mut self, from: NodeId, what: &str) -> ! {
        let name = self.world.name(from);
        self.end(
            1,
            &format!(
                "{name} has sent {what}: a protocol violation; install the same libjia on all hosts"
            ),
        )
    }

    /// Handles the end of a connection.
    fn gone(&mut self, gone: Gone) {
        if self.leaving.is_some() || self.pending_end.is_some() {
            return;
        }
        let Gone::Lost(node, why) = gone else { return };
        let line = format!("{} is lost: {why}", self.world.name(node));
        let first = if node == 0 { 1 } else { 0 };
        if self.options.me == first {
            self.end(1, &line);
        }
        self.end_later(line);
    }

    /// Ends the job with this line, unless another node reports the cause before.
    fn end_later(&mut self, line: String) {
        let until = Instant::now() + REPORT_MAX;
        self.pending_end.get_or_insert(PendingEnd { until, line });
        // Its thread may sleep until later.
        self.doorbell.ring();
    }

    fn traffic(&self) -> Traffic {
        Traffic { diff_bytes: self.pages.twins.diff_bytes, ..self.traffic }
    }

    fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        // The comparison of allocations is no traffic of the program.
        let counts = !matches!(frame, Frame::Allocated(_));
        let bytes = self.engine.send(to, &frame.bytes(), body);
        if counts {
            self.traffic.bytes += bytes;
        }
    }

    /// Ends the job, because this node cannot continue.
    fn fail(&mut self, why: &dyn std::fmt::Display) -> ! {
        let line = format!("{}: {why}", self.world.name(self.options.me));
        self.end(1, &line)
    }

    /// Ends the job on all nodes, and prints the line.
    fn end(&mut self, status: u8, line: &str) -> ! {
        if !line.is_empty() {
            say_last(line);
        }
        if let Some(network) = &mut self.engine.mesh {
            network.send_all(&Frame::End(status).bytes(), line.as_bytes());
            FLUSH.run(network);
        }
        self.finish(status, line)
    }

    /// Ends this process.
    fn finish(&mut self, status: u8, line: &str) -> ! {
        self.write_record(0);
        self.launch.abort(status, line)
    }

    /// Writes the recording to its file, if more than `more_than` bytes wait.
    fn write_record(&mut self, more_than: usize) {
        let (Some(recorder), Some(file)) = (&mut self.pages.recorder, &mut self.record) else {
            return;
        };
        if recorder.waiting() > more_than
            && let Err(error) = file.write_all(&recorder.take())
        {
            proc::error_line!("nagaya: NAGAYA_DSM_RECORD: {error}; nothing more is recorded");
            (self.pages.recorder, self.record) = (None, None);
        }
    }
}
