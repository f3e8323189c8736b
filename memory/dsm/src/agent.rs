//! The agent: what of a node drives the protocol.
//!
//! It takes turns: what other nodes say, what tasks ask for, who was stopped at a page. Each
//! is an event for the protocol, whose actions are carried out before the next. Whose thread
//! that is, and when it sleeps, says the [`driver`].

mod accesses;
mod allocations;
mod copies;
pub mod driver;
mod ended;
mod engine;
mod letters;
pub(crate) mod observe;
mod requests;
mod watch;

use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::iter;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coherence::content::Content;
use coherence::message::{NodeId, Op, Page};
use coherence::record::{self, Recorder};
use coherence::ride;
use coherence::scope::event::Body;
use coherence::scope::tree::children;
use coherence::scope::{Action, Event, Node, Options};
use net::mesh::{Gone, Mesh, Received};
use node::batch::run_length;
use node::driver::{Driver as _, Engine};
use node::flush::FLUSH;
use node::memory::Memory as _;
use pager::{Access, Fault, Place, Region, Stops};

use allocations::Made;
use copies::Copies;
use driver::Driven;
use ended::Ended;
use letters::Post;
use observe::Observer;
use watch::Watch;

use crate::desk::{Bell, Desk};
use crate::error::{DsmError, say};
use crate::frame::Frame;
use crate::launch::Launch;
use crate::ledger::Ledger;
use crate::mail::{self, Letter};
use crate::report::Traffic;
use crate::settings::{Agreed, Settings, Statistics};
use crate::world::World;

/// How long an agent that leaves waits for the others to have heard it.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// What who is to say why the job ends may take to say so.
const TELL_MAX: Duration = Duration::from_secs(2);
/// Bytes of a recording that wait to be written.
const RECORD_BYTES: usize = 1 << 16;

/// A task, as the agent knows it.
#[derive(Default)]
struct Seat {
    letters: mail::Box,
    /// What it has received last, until it asks again.
    letter: Vec<u8>,
    /// It waits for all nodes to be there; for all tasks to leave.
    joins: bool,
    leaves: bool,
    has_left: bool,
    is_at_barrier: bool,
    /// How many barriers it has reached.
    barriers: u64,
    /// How many allocations it has made.
    allocations: usize,
}

/// The job ends, and another node says why; if it does not until then, we do.
struct Doom {
    until: Instant,
    line: String,
}

/// A node's agent.
pub struct Agent {
    node: Node,
    options: Options,
    engine: Engine<Region>,
    copies: Copies,
    desk: &'static Desk,
    bell: Bell,
    world: Arc<World>,
    launch: Arc<Launch>,
    statistics: Statistics,
    traffic: Traffic,
    record: Option<(Recorder, File)>,
    /// What the report is to know, and the beginning of its files' names.
    observer: Option<(Observer, String)>,
    seats: Vec<Seat>,
    allocations: Vec<Made>,
    /// All nodes' allocations, at the node that keeps it.
    ledger: Ledger,
    /// Letters that wait for room.
    posts: Vec<Post>,
    /// Tasks of any node that have ended without having left.
    ended: Vec<Ended>,
    unreceived: mail::Unreceived,
    received: mail::Received,
    /// Requests that are not answered.
    waiting: usize,
    /// Pages that tasks are stopped at.
    missing: HashSet<Page>,
    actions: Vec<Action>,
    looks: Looks,
    watch: Arc<Watch>,
    /// What other nodes say wakes its thread.
    listens: bool,
    driven: Option<Driven>,
    doom: Option<Doom>,
    /// All tasks have left; until when the others may take.
    leaving: Option<Instant>,
}

/// What an agent is made of.
pub struct Parts {
    /// Its settings, of which `agreed` is the job's.
    pub settings: Settings,
    /// All tasks and nodes.
    pub world: Arc<World>,
    /// By which the job can be ended.
    pub launch: Arc<Launch>,
    /// Where its tasks ask.
    pub desk: &'static Desk,
    /// By which they wake it.
    pub bell: Bell,
    /// The way to other nodes, if there are any.
    pub network: Option<Mesh>,
    /// Who may look before it sleeps.
    pub looks: Looks,
}

/// For whom on this machine there are processors enough to look for a moment, each of them,
/// before they sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looks {
    /// Agents, while tasks compute.
    pub beside: bool,
    /// Agents in the place of their tasks, while all of these wait.
    pub instead: bool,
    /// Tasks.
    pub tasks: bool,
}

impl Agent {
    /// Of this process's node.
    pub fn new(parts: Parts) -> Result<Self, DsmError> {
        let Parts { settings, world, launch, desk, bell, network, looks } = parts;
        let Agreed { page_bytes, start, migrate, alone, rides, letters_max, calls, .. } =
            settings.agreed;
        let tasks = world.neighbours().len();
        let me = world.own().node;
        let nodes = world.nodes.len() as u32;
        let pages_max = ride::pages_max(page_bytes);
        let options = Options { nodes, me, tasks: tasks as u32, migrate, alone, rides, pages_max };
        let stops = if calls { Stops::All } else { Stops::Programs };
        let region = Region::new(Place { start, page_bytes }, stops)?;
        let faults = region.descriptor();
        let watch = Watch::new(&bell, faults, network.as_ref().map(Mesh::descriptor))?;
        let record = match settings.record {
            None => None,
            Some(directory) => {
                let path = directory.join(record::file_name(me));
                let file = File::create(&path).map_err(|error| {
                    DsmError::System(format!("NAGAYA_DSM_RECORD: {}: {error}", path.display()))
                })?;
                Some((Recorder::new(&options), file))
            }
        };
        Ok(Self {
            node: Node::new(options),
            options,
            engine: Engine::new(region, network),
            copies: Copies::new(page_bytes),
            desk,
            bell,
            world,
            launch,
            statistics: settings.statistics,
            traffic: Traffic::default(),
            record,
            observer: settings.report.map(|beginning| (Observer::default(), beginning)),
            seats: (0..tasks).map(|_| Seat::default()).collect(),
            allocations: Vec::new(),
            ledger: Ledger::new(iter::once(me).chain(children(me, nodes))),
            posts: Vec::new(),
            ended: Vec::new(),
            unreceived: mail::Unreceived::new(letters_max),
            received: mail::Received::new(letters_max),
            waiting: 0,
            missing: HashSet::new(),
            actions: Vec::new(),
            looks,
            watch: Arc::new(watch),
            listens: false,
            driven: None,
            doom: None,
            leaving: None,
        })
    }

    /// The userfaultfd of its memory.
    pub fn faults(&self) -> BorrowedFd<'_> {
        self.engine.memory.descriptor()
    }

    /// Whether who drives it may look for a moment before it sleeps.
    fn may_look(&self) -> bool {
        let Looks { beside, instead, tasks } = self.looks;
        let stalled = self.waiting + self.missing.len() >= self.seats.len();
        beside || instead && stalled || tasks && self.driven.is_some()
    }

    /// Tasks begin when all nodes are there; whether any do.
    fn join(&mut self) -> bool {
        if self.engine.mesh.as_ref().is_some_and(|network| !network.is_whole()) {
            return false;
        }
        let mut found = false;
        for task in 0..self.seats.len() {
            if std::mem::take(&mut self.seats[task].joins) {
                found = true;
                self.reply(task as u32, Ok([0, 0]));
            }
        }
        found
    }

    /// Looks after what happens by time alone.
    fn look_at_clock(&mut self) {
        if self.leaving.is_none() && self.seats.iter().all(|seat| seat.has_left) {
            self.leaving = Some(Instant::now() + LEAVE_MAX);
            if let Some(network) = &mut self.engine.mesh {
                network.leave();
            }
        }
        let now = Instant::now();
        if let Some(Doom { until, line }) = &self.doom
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

    /// Before who drives it sleeps, or leaves it: whether what comes will wake a sleeper. If
    /// not, there is something to do.
    fn may_sleep(&mut self) -> bool {
        self.write_record(RECORD_BYTES);
        if !self.desk.may_sleep() {
            return false;
        }
        match self.engine.arm() {
            Ok(true) => {}
            Ok(false) => {
                self.desk.wakes();
                return false;
            }
            Err(error) => self.fail(&error),
        }
        // A task that drives serves the network, but while a signal's handler runs, or is stopped
        // at a page.
        let serves = self.driven.as_ref().is_some_and(|it| !it.dozes);
        self.listen(!serves || !self.missing.is_empty());
        true
    }

    /// Whether what other nodes say wakes its thread.
    fn listen(&mut self, listens: bool) {
        if let Some(network) = &self.engine.mesh
            && self.listens != listens
        {
            self.watch.listen(network.descriptor(), listens);
            self.listens = listens;
        }
    }

    /// When there is something to do, even if nothing comes.
    fn deadline(&self) -> Option<Instant> {
        let network = self.engine.mesh.as_ref().and_then(Mesh::deadline);
        let doom = self.doom.as_ref().map(|doom| doom.until);
        [network, doom, self.leaving].into_iter().flatten().min()
    }

    fn stopped(&mut self, fault: &Fault) {
        let wants = self.engine.memory.wanted(fault.wants);
        self.missing.insert(fault.page);
        if let Some((observer, _)) = &mut self.observer {
            observer.stopped(fault.page, fault.at, fault.thread);
            if wants == Access::Write && self.node.home(fault.page) == Some(self.options.me) {
                observer.wrote(fault.page, self.options.me, self.node.epoch());
            }
        }
        let event = match wants {
            Access::Write => Event::Write(fault.page),
            _ => Event::Read(fault.page),
        };
        self.step(event, &mut Vec::new());
    }

    fn handle(&mut self, message: Received) {
        let Received { from, header, mut body } = message;
        let frame = Frame::parse(&header);
        match frame {
            Some(Frame::Page(header)) if header.from == from => {
                match Content::parse(&header, &body, self.engine.memory.page_bytes()) {
                    Some((content, rides)) => {
                        self.step(Event::Message(header, content, rides), &mut body);
                        if header.op == Op::GetPage {
                            self.check_asked();
                        }
                    }
                    None => self.nonsense(from, header.op.name()),
                }
            }
            Some(Frame::Letter(address)) => {
                let members = &self.world.members;
                let node = |task: u32| members.get(task as usize).map(|member| member.node);
                match (node(address.from), node(address.to)) {
                    (Some(sender), Some(to)) if sender == from && to == self.options.me => {
                        let which = (address.to, sender);
                        if self.received.came(which, mail::cost(body.len())).is_none() {
                            self.nonsense(from, "more letters than it may");
                        }
                        self.came(Letter { address, text: body });
                    }
                    _ => self.nonsense(from, "a letter"),
                }
            }
            Some(Frame::Received { task, bytes }) => {
                let members = &self.world.members;
                let is_theirs = members.get(task as usize).is_some_and(|it| it.node == from);
                match is_theirs.then(|| self.unreceived.remove(task, bytes)).flatten() {
                    Some(()) => self.post_what_may_go(),
                    None => self.nonsense(from, "word of letters"),
                }
            }
            Some(Frame::Ended { task, barriers }) => {
                let members = &self.world.members;
                match members.get(task as usize).is_some_and(|member| member.node == from) {
                    true => self.has_ended(Ended { task, barriers }),
                    false => self.nonsense(from, "that a task has ended"),
                }
            }
            Some(Frame::Allocated(allocation)) if self.ledger.is_of(from) => {
                self.allocated(from, allocation);
            }
            // Who ends it has said why.
            Some(Frame::End(status)) => self.finish(status, &String::from_utf8_lossy(&body)),
            Some(Frame::Alive) => {}
            _ => self.nonsense(from, "a header"),
        }
    }

    fn nonsense(&mut self, from: NodeId, what: &str) -> ! {
        let name = self.world.name(from);
        self.end(1, &format!("{name} says {what} that makes no sense; is its libjia the same?"))
    }

    fn gone(&mut self, gone: Gone) {
        if self.leaving.is_some() || self.doom.is_some() {
            return;
        }
        let Gone::Lost(node, why) = gone else { return };
        let line = format!("{} is lost: {why}", self.world.name(node));
        let first = if node == 0 { 1 } else { 0 };
        if self.options.me == first {
            self.end(1, &line);
        }
        self.doom(line);
    }

    /// Ends the job with this line, unless another node says why before.
    fn doom(&mut self, line: String) {
        let until = Instant::now() + TELL_MAX;
        self.doom.get_or_insert(Doom { until, line });
        // Its thread sleeps longer, perhaps.
        self.bell.ring();
    }

    fn traffic(&self) -> Traffic {
        Traffic { diff_bytes: self.copies.changed, ..self.traffic }
    }

    /// Tells the protocol, and does what it wants. What a task did wrong, if it did.
    fn step(&mut self, event: Event, body: &mut Vec<u8>) -> Option<String> {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        if let Some((recorder, _)) = &mut self.record {
            recorder.event(now, &event);
        }
        self.observe(&event, body);
        let allocates = matches!(event, Event::Allocate { .. });
        let result = self.node.step(event, now, &mut actions);
        if let Some((recorder, _)) = &mut self.record {
            recorder.outcome(&actions, &result);
            self.write_record(RECORD_BYTES);
        }
        if let Err(refused) = result {
            let name = self.world.name(refused.from);
            let (op, reason) = (refused.op, refused.reason());
            let line = format!("{name}: {op} {reason}: a defect of libjia");
            // Who asks for memory would go on without.
            if allocates {
                self.end(1, &line);
            }
            // Programs whose nodes allocate differently come here, too: then node 0 says so.
            self.doom(line);
        }
        let mut misused = None;
        let mut rest = &actions[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(run_length(rest, together));
            rest = later;
            let done = match together(&now[0]) {
                Some((first, access)) => {
                    self.set_access(first..first + now.len() as Page, access).map(|()| None)
                }
                None => self.carry_out(&now[0], body),
            };
            match done {
                Ok(Some(misuse)) => misused = Some(misuse),
                Ok(None) => {}
                Err(error) => self.fail(&error),
            }
        }
        actions.clear();
        self.actions = actions;
        misused
    }

    /// Gives neighbouring pages to tasks, or takes them.
    fn set_access(
        &mut self,
        pages: Range<Page>,
        access: SetAccess,
    ) -> Result<(), pager::PagerError> {
        let memory = &mut self.engine.memory;
        match access {
            SetAccess::Protect => memory.protect_all(pages),
            SetAccess::Unmap => memory.forbid_all(pages),
            SetAccess::Map(access) => {
                self.missing.retain(|page| !pages.contains(page));
                if access == Access::Write || memory.can_allow_read() {
                    return memory.allow_all(pages, access);
                }
                // Threads fault again, and then ask to write: see `stopped`.
                pages.into_iter().try_for_each(|page| memory.retry(page))
            }
        }
    }

    /// Lets the observer see an event before its step.
    fn observe(&mut self, event: &Event, body: &[u8]) {
        let (Some((observer, _)), Event::Message(header, ..)) = (&mut self.observer, event) else {
            return;
        };
        match header.op {
            Op::Diff => {
                let (epoch, page_bytes) = (self.node.epoch(), self.engine.memory.page_bytes());
                observer.changed(header.from, epoch, body, page_bytes);
            }
            Op::AcquireGrant | Op::BarrierGrant | Op::WaitGrant => observer.learned(),
            _ => {}
        }
    }

    fn carry_out(
        &mut self,
        action: &Action,
        body: &mut Vec<u8>,
    ) -> Result<Option<String>, pager::PagerError> {
        match action {
            Action::Fill(page, place) => {
                let bytes = self.engine.memory.page_bytes();
                self.engine.memory.write(*page, 0, &body[place * bytes..][..bytes])?;
            }
            Action::Keep(kept) => self.copies.keep(*kept, std::mem::take(body)),
            Action::FillKept(page, kept, place) => {
                self.engine.memory.write(*page, 0, self.copies.kept(*kept, *place))?;
            }
            Action::Forget(kept) => self.copies.forget(*kept),
            Action::Twin(page) => self.copies.twin(&self.engine.memory, *page)?,
            Action::Wake(page) => {
                self.missing.remove(page);
                self.engine.memory.retry(*page)?;
            }
            Action::Diff(page, home) => self.copies.compare(&self.engine.memory, *page, *home),
            Action::Change => copies::change(&mut self.engine.memory, body)?,
            Action::MapRead(_) | Action::MapWrite(_) | Action::Protect(_) | Action::Unmap(_) => {
                unreachable!("{action:?} is carried out in runs")
            }
            Action::Send(header, body, rides) => {
                if matches!(header.op, Op::Barrier | Op::BarrierGrant) {
                    self.compare_nodes();
                }
                match (header.op, &mut self.observer) {
                    (Op::GetPage, Some((observer, _))) => {
                        observer.fetches(header.scope, header.to);
                    }
                    (Op::GetPageGrant, Some((observer, _))) => {
                        observer.sends(header.scope, header.to);
                    }
                    _ => {}
                }
                let diffs = match body {
                    Body::Diffs => self.copies.take_changes(header.to),
                    _ => Vec::new(),
                };
                let memory = &self.engine.memory;
                let append = |page, bytes: &mut Vec<u8>| copies::append_page(memory, page, bytes);
                let body = body.clone().bytes(rides, diffs, append);
                self.send(header.to, Frame::Page(*header), body);
            }
            Action::Grant(task) => self.granted(*task),
            Action::Misuse(_, misuse) => return Ok(Some(requests::reason(*misuse))),
        }
        Ok(None)
    }

    fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        // What nodes compare of allocations is not the program's.
        let counts = !matches!(frame, Frame::Allocated(_));
        let bytes = self.engine.send(to, &frame.bytes(), body);
        if counts {
            self.traffic.bytes += bytes;
        }
    }

    /// Ends the job, since this node cannot go on.
    fn fail(&mut self, why: &dyn std::fmt::Display) -> ! {
        let line = format!("{}: {why}", self.world.name(self.options.me));
        self.end(1, &line)
    }

    /// Ends the job, on all nodes, with one line.
    fn end(&mut self, status: u8, line: &str) -> ! {
        if !line.is_empty() {
            say(line);
        }
        if let Some(network) = &mut self.engine.mesh {
            network.send_all(&Frame::End(status).bytes(), line.as_bytes());
            FLUSH.run(network);
        }
        self.finish(status, line)
    }

    fn finish(&mut self, status: u8, line: &str) -> ! {
        self.write_record(0);
        self.launch.abort(status, line)
    }

    /// Writes what was recorded, if it is more than that.
    fn write_record(&mut self, more_than: usize) {
        let Some((recorder, file)) = &mut self.record else { return };
        if recorder.waiting() > more_than
            && let Err(error) = file.write_all(&recorder.take())
        {
            let _ = writeln!(
                std::io::stderr(),
                "nagaya: NAGAYA_DSM_RECORD: {error}; nothing more is recorded"
            );
            self.record = None;
        }
    }
}

/// A change of the access to neighbouring pages, made at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SetAccess {
    Map(Access),
    Protect,
    Unmap,
}

/// The page of an action that is carried out with its neighbours', and what that is.
fn together(action: &Action) -> Option<(Page, SetAccess)> {
    match *action {
        Action::MapRead(page) => Some((page, SetAccess::Map(Access::Read))),
        Action::MapWrite(page) => Some((page, SetAccess::Map(Access::Write))),
        Action::Protect(page) => Some((page, SetAccess::Protect)),
        Action::Unmap(page) => Some((page, SetAccess::Unmap)),
        _ => None,
    }
}
