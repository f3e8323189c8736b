//! The daemon as a pure state machine: [`Daemon::step`] takes an event and returns actions. It
//! reads no clock and makes no system call.
//!
//! A request from a task is handled in one of three ways. The daemon answers at once if this
//! host has the information. A request that concerns one host becomes an [`Errand`], executed
//! here or sent to that host; a `Then` records how to process the reply. A request that changes
//! the virtual machine is proposed as a [`Change`]. All hosts apply it at its position in the
//! total order, and the asker's host answers.

use std::collections::BTreeMap;

use fcp::protocol::Protocol;
use pvm::error::Error;
use pvm::parcel;
use pvm::tid::Tid;
use pvm::wire::{Answer, Frame, HostInfo, Inheritance, Letter, Request, Sink, VERSION, Welcome};

use crate::addresses::Addresses;
use crate::contexts::Contexts;
use crate::errand::{Errand, Principal, Reply};
use crate::event::{Action, Clock, Event, PeerLetter};
use crate::hostfile::HostFile;
use crate::hosts::Hosting;
use crate::load::Load;
use crate::machine::{Asker, Change, Effect, Machine, What};
use crate::notice::Wish;
use crate::order::{Item, Order, Output};
use crate::output::{Outputs, Say};
use crate::plugin::Roles;
use crate::spawn::{Spawning, Starting};
use crate::tasks::{Link, Tasks};
use crate::tracer::Tracers;

/// Signal that a reset sends to the tasks it kills.
const SIGTERM: i32 = 15;

/// Continuation for the reply to an errand.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// The reply answers this request.
    Answer(Asker),
    /// The reply is one part of the answer to this request.
    Gather(Asker),
    /// The reply lists which of these slots of a spawn became tasks.
    Spawn(u32, Vec<usize>),
    /// The reply is the outcome of a resource manager's request with this wait ID. The tasks
    /// have this output sink and this parent.
    Managed(i32, (Sink, i32)),
    /// The reply is the status of this task, whose end a task wants to be notified of.
    Notice(Tid),
    /// The reply is the status of this task, which is to become resource manager.
    HandOff(Tid),
    /// Ignore the reply.
    Nothing,
}

/// A request whose answer is collected from several hosts.
#[derive(Debug, Default)]
struct Gathering {
    waits: usize,
    tasks: Vec<pvm::wire::TaskInfo>,
}

/// The state of one host's daemon.
#[derive(Debug)]
pub struct Daemon {
    pub(crate) host: u16,
    pub(crate) secret: [u8; 32],
    /// Another host started this daemon.
    pub(crate) is_guest: bool,
    /// Silence in milliseconds after which a host counts as lost.
    pub(crate) silence_ms: u32,
    /// Tasks share one address space per host.
    pub(crate) space: bool,
    /// Protocol of the messages in a host's window.
    pub(crate) protocol: Protocol,
    pub(crate) machine: Machine,
    pub(crate) order: Order<Change, Machine>,
    pub(crate) tasks: Tasks,
    pub(crate) errands: BTreeMap<u32, (u16, Then)>,
    last_errand: u32,
    gatherings: BTreeMap<Asker, Gathering>,
    /// Host that received a task last.
    pub(crate) last_host: u16,
    /// Spawns by our tasks, and program starts on this host. Both take numbers from
    /// `last_spawn`.
    pub(crate) spawns: BTreeMap<u32, Spawning>,
    pub(crate) starts: BTreeMap<u32, Starting>,
    pub(crate) starting: BTreeMap<Tid, u32>,
    pub(crate) last_spawn: u32,
    pub(crate) wishes: Vec<Wish>,
    pub(crate) outputs: Outputs,
    pub(crate) contexts: Contexts,
    pub(crate) roles: Roles,
    pub(crate) tracers: Tracers,
    /// The host file's options for hosts that are added.
    pub hostfile: HostFile,
    pub(crate) hosting: Hosting,
    pub(crate) addresses: Addresses,
    pub(crate) now: Clock,
    /// Set by pvm_tickle; nothing depends on it.
    pub(crate) mask: i32,
    /// The virtual machine has ended; later events are ignored.
    pub(crate) halted: bool,
    pub(crate) actions: Vec<Action>,
}

impl Daemon {
    /// Returns the daemon of the first host of a virtual machine.
    pub fn first(host: HostInfo, secret: [u8; 32]) -> Daemon {
        let order = Order::first(host.tid.host());
        Daemon::new(host, secret, order)
    }

    /// Returns the daemon of a host that is to join the virtual machine with this secret. The
    /// first messages from other daemons bring it the state of the machine.
    pub fn guest(host: HostInfo, secret: [u8; 32]) -> Daemon {
        let order = Order::joining(host.tid.host());
        Daemon { is_guest: true, ..Daemon::new(host, secret, order) }
    }

    fn new(host: HostInfo, secret: [u8; 32], order: Order<Change, Machine>) -> Daemon {
        let number = host.tid.host();
        Daemon {
            host: number,
            secret,
            is_guest: false,
            silence_ms: crate::invitation::SILENCE_MS,
            space: false,
            protocol: Protocol::default(),
            machine: Machine::new(host),
            order,
            tasks: Tasks::new(number),
            errands: BTreeMap::new(),
            last_errand: 0,
            gatherings: BTreeMap::new(),
            last_host: number,
            spawns: BTreeMap::new(),
            starts: BTreeMap::new(),
            starting: BTreeMap::new(),
            last_spawn: 0,
            wishes: Vec::new(),
            outputs: Outputs::default(),
            contexts: Contexts::new(number),
            roles: Roles::default(),
            tracers: Tracers::default(),
            hostfile: HostFile::default(),
            hosting: Hosting::default(),
            addresses: Addresses::default(),
            now: Clock::default(),
            mask: 0,
            halted: false,
            actions: Vec::new(),
        }
    }

    /// Processes `event`, which happened at `now`, and returns the actions to execute.
    pub fn step(&mut self, now: Clock, event: Event) -> Vec<Action> {
        if self.halted {
            return Vec::new();
        }
        self.now = now;
        match event {
            Event::Frame(link, pid, frame) => self.frame(link, pid, frame),
            Event::Closed(link) => {
                if let Some(tid) = self.tasks.at(link) {
                    self.end(tid, None);
                }
            }
            Event::TaskStarted(tid, result) => self.task_started(tid, result),
            Event::Output(tid, bytes) => self.output(tid, Say::Bytes(&bytes)),
            Event::OutputEnd(tid) => self.end_output(tid),
            Event::Ended(tid) => {
                if self.tasks.get(tid).is_some() {
                    self.end(tid, None);
                }
            }
            Event::Reaped(tid, usage) => self.reaped(tid, usage),
            Event::Peer(host, letter) => self.peer(host, letter),
            Event::Counted(closing, count) => {
                let what = What::Counted(self.host, closing, count);
                self.propose(Change { asker: None, what });
            }
            Event::Load(host, load) => {
                self.heard(host);
                self.route(load);
            }
            Event::PeerLost(host) => self.host_lost(host),
            Event::Tick => self.tick(),
            Event::Begin => self.begin_hosts(),
            Event::Terminate if self.is_guest => self.halt(None),
            Event::Terminate => self.halt_all(None),
            Event::Fabric(address) => self.fabric(address),
            Event::Started(started) => self.started(started),
            Event::Launched(acceptances) => self.launched(acceptances),
        }
        std::mem::take(&mut self.actions)
    }

    /// Fails the errands that a lost host has not answered.
    pub(crate) fn fail_errands(&mut self, host: u16) {
        let lost = self.errands.iter().filter(|(_, (to, _))| *to == host);
        let lost: Vec<u32> = lost.map(|(serial, _)| *serial).collect();
        for serial in lost {
            self.replied(serial, Err(Error::HostFail.code()));
        }
    }

    pub(crate) fn peer(&mut self, host: u16, letter: PeerLetter) {
        self.heard(host);
        match letter {
            // A host that joined before us may know us before we know the machine.
            letter
                if self.order.members().is_empty() && !matches!(letter, PeerLetter::Order(_)) =>
            {
                self.keep(host, letter);
            }
            PeerLetter::Order(letter) => {
                self.order.receive(host, letter);
                self.follow_order();
            }
            PeerLetter::Errand(serial, errand) => self.run(Principal { host, serial }, errand),
            PeerLetter::Reply(serial, reply) => {
                if self.errands.get(&serial).is_some_and(|(to, _)| *to == host) {
                    self.replied(serial, reply);
                }
            }
            PeerLetter::Alive | PeerLetter::Full(_) | PeerLetter::Room(_) => {}
            PeerLetter::Ready => self.ready(host),
            PeerLetter::Halt => self.halt_all(None),
        }
    }

    fn frame(&mut self, link: Link, pid: u32, Frame { id, request }: Frame) {
        match (self.tasks.at(link), request) {
            (None, Request::Enroll { version, started_as, name }) => {
                self.enroll(link, pid, version, started_as, name);
            }
            (Some(tid), request) => self.request(Asker { tid, id }, request),
            (None, _) => {
                self.log(format!("process {pid} asks for something before it is a task"));
                self.actions.push(Action::Close(link));
            }
        }
    }

    fn enroll(&mut self, link: Link, pid: u32, version: u32, cookie: Option<u32>, name: String) {
        if version != VERSION {
            self.log(format!(
                "process {pid} speaks version {version} of the protocol, not {VERSION}"
            ));
            let code = Error::BadVersion.code();
            return self.actions.push(Action::Welcome(link, Err(code)));
        }
        let known = cookie.and_then(|cookie| self.tasks.expected(cookie));
        let parent = Error::NoParent.code();
        let tid = known.or_else(|| {
            let inheritance = self.machine.traced(&Inheritance::default());
            self.tasks.add(parent, name, inheritance)
        });
        let Some(tid) = tid else {
            let code = Error::OutOfRes.code();
            return self.actions.push(Action::Welcome(link, Err(code)));
        };
        self.tasks.connect(tid, link);
        // Announce the task to its tracer before it sends trace events itself. The daemon may
        // learn only later that the program runs.
        match self.is_starting(tid) {
            Some(how) => self.trace_spawned(&[tid], how),
            None if known.is_none() => self.trace_come(tid),
            None => {}
        }
        let task = self.tasks.get_mut(tid).expect("it was just found");
        task.pid = pid;
        let welcome = Welcome {
            tid,
            parent: task.parent,
            inheritance: task.inheritance.clone(),
            secret: self.secret,
            space: self.space,
            protocol: self.protocol as u8,
            manager: self.machine.manager(),
        };
        self.actions.push(Action::Welcome(link, Ok(Box::new(welcome))));
        self.open_if_wanted(tid);
        if known.is_none() {
            self.tell_manager_of_start(&[tid.as_int()], 0);
        }
    }

    /// Proposes that the task has ended. `asker` is the request to answer then, if any.
    pub(crate) fn end(&mut self, tid: Tid, asker: Option<Asker>) {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.exits = asker.is_some();
        }
        self.propose(Change { asker, what: What::Ended(tid) });
        // Nobody needs the answers to its pending requests now.
        self.gatherings.retain(|asker, _| asker.tid != tid);
    }

    pub(crate) fn propose(&mut self, change: Change) {
        self.order.propose(Item::Change(change));
        self.follow_order();
    }

    /// Executes the outputs of the total order.
    pub(crate) fn follow_order(&mut self) {
        for output in self.order.outputs() {
            match output {
                Output::Send(host, letter) => {
                    self.actions.push(Action::Send(host, Box::new(PeerLetter::Order(letter))));
                }
                Output::Apply(entry) => {
                    let effects = self.machine.apply(entry.item);
                    for effect in effects {
                        self.effect(effect);
                    }
                }
                Output::Snapshot(host, head) => {
                    let letter = crate::order::Letter::Snapshot(head, self.machine.clone());
                    self.actions.push(Action::Send(host, Box::new(PeerLetter::Order(letter))));
                }
                Output::Install(machine) => {
                    self.machine = machine;
                    for (slot, change) in self.machine.groups().slots() {
                        self.actions.push(Action::Slot(slot, change));
                    }
                    self.installed();
                }
                Output::Expelled => {
                    self.log("the virtual machine goes on without this host".into());
                    self.halt(None);
                }
            }
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Answer(asker, reply) => {
                if asker.tid.host() == self.host {
                    self.answer(asker, reply);
                }
            }
            Effect::Reserved(asker, first) => {
                if asker.tid.host() == self.host {
                    self.reserved(asker, first);
                }
            }
            Effect::Joined(place) => {
                self.joined(&place);
                self.hosts_added(&[place.info.tid]);
            }
            Effect::Left(host) => {
                self.left(host);
                self.fail_errands(host);
                self.tell_manager_of_host(host);
                self.host_gone(host);
            }
            Effect::Ended(tid) => {
                if tid.host() == self.host {
                    self.actions.push(Action::Forget(tid));
                    let task = self.tasks.remove(tid);
                    self.contexts.ended(tid);
                    self.forget_address(tid);
                    if let Some(task) = task {
                        self.leave_roles(tid);
                        self.trace_ended(&task);
                        self.tell_manager_of_end(tid);
                        if task.tasker.is_some() {
                            self.end_output(tid);
                        }
                    }
                }
                self.forget_tracer(tid);
                self.has_ended(tid);
            }
            Effect::Reset(kept) => {
                let all = self.tasks.iter().map(|task| task.tid);
                let killed: Vec<Tid> = all.filter(|tid| !kept.contains(tid)).collect();
                for tid in killed {
                    self.actions.push(Action::Signal(tid, SIGTERM));
                }
            }
            Effect::ManagerGone(tid) => self.manager_gone(tid),
            Effect::Slot(slot, change) => {
                if change.host().is_none_or(|host| host == self.host) {
                    self.actions.push(Action::Slot(slot, change));
                }
            }
        }
    }

    /// Executes an errand here or sends it to `host`; `then` processes the reply.
    pub(crate) fn send_on(&mut self, host: u16, errand: Errand, then: Then) {
        self.last_errand = self.last_errand.wrapping_add(1);
        let serial = self.last_errand;
        self.errands.insert(serial, (host, then));
        if host == self.host {
            self.run(Principal { host, serial }, errand);
        } else if self.machine.host(host).is_none() || self.order.is_lost(host) {
            self.replied(serial, Err(Error::NoHost.code()));
        } else {
            self.actions.push(Action::Send(host, Box::new(PeerLetter::Errand(serial, errand))));
        }
    }

    /// Executes an errand on this host.
    fn run(&mut self, principal: Principal, errand: Errand) {
        let reply = match errand {
            Errand::Address(tid) => return self.give_address(principal, tid),
            Errand::Start(start) => return self.start_tasks(principal, start),
            Errand::Tasks(which) => {
                let fits = |tid: Tid| which.is_none_or(|which| which == tid);
                let tasks = self.tasks.iter().filter(|task| fits(task.tid));
                Ok(Answer::Tasks(tasks.map(|task| task.info()).collect()))
            }
            Errand::Status(tid) => match self.tasks.get(tid) {
                Some(_) => Ok(Answer::Done),
                None => Err(Error::NoTask.code()),
            },
            Errand::PlugIn(tid, tag, parcel) => {
                self.plug_in(tid, tag, &parcel).map(|()| Answer::Done).map_err(Error::code)
            }
            Errand::Clock => Ok(Answer::Clock(self.now.seconds, self.now.microseconds)),
            Errand::Signal(tid, signal) => {
                if self.tasks.get(tid).is_some() {
                    self.actions.push(Action::Signal(tid, signal));
                }
                Ok(Answer::Done)
            }
        };
        self.reply(principal, reply);
    }

    /// Returns the reply of an errand to the host that sent it.
    pub(crate) fn reply(&mut self, principal: Principal, reply: Reply) {
        if principal.host == self.host {
            self.replied(principal.serial, reply);
        } else {
            let letter = PeerLetter::Reply(principal.serial, reply);
            self.actions.push(Action::Send(principal.host, Box::new(letter)));
        }
    }

    pub(crate) fn replied(&mut self, serial: u32, reply: Reply) {
        let Some((_, then)) = self.errands.remove(&serial) else { return };
        match then {
            Then::Answer(asker) => self.answer(asker, reply),
            Then::Gather(asker) => {
                let Some(gathering) = self.gatherings.get_mut(&asker) else { return };
                if let Ok(Answer::Tasks(tasks)) = reply {
                    gathering.tasks.extend(tasks);
                }
                gathering.waits -= 1;
                if gathering.waits == 0 {
                    let mut gathering = self.gatherings.remove(&asker).expect("it is there");
                    gathering.tasks.sort_by_key(|task| task.tid);
                    self.answer(asker, Ok(Answer::Tasks(gathering.tasks)));
                }
            }
            Then::Spawn(number, slots) => self.spawned(number, &slots, reply),
            Then::Managed(wait_id, output) => self.managed(wait_id, output, reply),
            Then::Notice(tid) => self.noticed(tid, &reply),
            Then::HandOff(next) => self.handed_off(next, &reply),
            Then::Nothing => {}
        }
    }

    /// Answers a request of a task on this host.
    pub(crate) fn answer(&mut self, asker: Asker, reply: Reply) {
        if asker.id != 0 && self.tasks.get(asker.tid).is_some() {
            self.write(asker.tid, &Letter::Answer(asker.id, reply));
        }
    }

    /// Sends a control message to a task on this host.
    pub(crate) fn write(&mut self, to: Tid, letter: &Letter) {
        // Postcard fails only on data of unknown length; every part of a `Letter` has a length.
        let data = postcard::to_allocvec(letter).expect("a letter");
        self.actions.push(Action::Deliver(to, Load::Whole(parcel::letter(to, &data))));
    }

    /// Sends the errand to all hosts and answers with the collected tasks.
    pub(crate) fn gather(&mut self, asker: Asker, errand: &Errand) {
        let hosts: Vec<u16> = self.machine.hosts().iter().map(|host| host.tid.host()).collect();
        let gathering = Gathering { waits: hosts.len(), tasks: Vec::new() };
        self.gatherings.insert(asker, gathering);
        for host in hosts {
            self.send_on(host, errand.clone(), Then::Gather(asker));
        }
    }

    /// Routes a message to its destination. A message to an unknown task is dropped, as in stock
    /// PVM.
    pub(crate) fn route(&mut self, mut load: Load) {
        let to = load.destination().filter(|to| to.is_task());
        self.actions.push(match to {
            Some(to) if to.host() == self.host && self.tasks.get(to).is_some() => {
                Action::Deliver(to, load)
            }
            Some(to) if to.host() != self.host && self.machine.host(to.host()).is_some() => {
                Action::PassOn(to, load)
            }
            _ => Action::Drop(load),
        });
    }

    pub(crate) fn log(&mut self, line: String) {
        self.actions.push(Action::Log(line));
    }
}
