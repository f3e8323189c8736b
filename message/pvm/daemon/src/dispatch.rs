//! The transitions of the daemon, a pure state machine: [`Daemon::step`] takes an event and
//! returns actions. It reads no clock and makes no system call.
//!
//! A request from a task is handled in one of three ways. The daemon answers at once if this
//! host has the information. A request that concerns one host becomes an [`Errand`], executed
//! here or sent to that host; a [`Continuation`] records how to process the reply. A request
//! that changes the virtual machine is proposed as a [`Change`]. All hosts apply it at its
//! position in the total order, and the asker's host answers.

use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Frame, Inheritance, Request, VERSION, Welcome};

use crate::daemon::{Continuation, Daemon, Gathering};
use crate::errand::{Asker, Errand, Principal, Reply};
use crate::event::{Action, Clock, Event, PeerMessage};
use crate::machine::{Change, Effect, Operation};
use crate::order::{Item, Message, Output};
use crate::output::OutputItem;
use crate::tasks::Link;

/// Signal that a reset sends to the tasks it kills.
const SIGTERM: i32 = 15;

impl Daemon {
    /// Processes `event`, which happened at `now`, and returns the actions to execute.
    pub fn step(&mut self, now: Clock, event: Event) -> Vec<Action> {
        if self.halted {
            return Vec::new();
        }
        assert!(self.actions.is_empty(), "the last step returned all its actions");
        self.now = now;
        match event {
            Event::Frame(link, pid, frame) => self.frame(link, pid, frame),
            Event::Closed(link) => {
                if let Some(tid) = self.tasks.at(link) {
                    self.end(tid, None);
                }
            }
            Event::TaskStarted(tid, result) => self.task_started(tid, result),
            Event::Output(tid, bytes) => self.output(tid, OutputItem::Bytes(&bytes)),
            Event::OutputEnd(tid) => self.end_output(tid),
            Event::Ended(tid) => {
                if self.tasks.get(tid).is_some() {
                    self.end(tid, None);
                }
            }
            Event::Reaped(tid, usage) => self.reaped(tid, usage),
            Event::Peer(host, message) => self.peer(host, message),
            Event::Counted(closing, count) => {
                let operation = Operation::Counted(self.host, closing, count);
                self.propose(Change { asker: None, operation });
            }
            Event::TaskMessage(host, message) => {
                self.note_alive(host);
                self.route(message);
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

    pub(crate) fn peer(&mut self, host: u16, message: PeerMessage) {
        self.note_alive(host);
        match message {
            // A host that joined before us may know us before we know the machine.
            message
                if self.order.members().is_empty() && !matches!(message, PeerMessage::Order(_)) =>
            {
                self.keep_early(host, message);
            }
            PeerMessage::Order(message) => {
                self.order.receive(host, message);
                self.follow_order();
            }
            PeerMessage::Errand(serial, errand) => self.run(Principal { host, serial }, errand),
            PeerMessage::Reply(serial, reply) => {
                if self.errands.get(&serial).is_some_and(|(to, _)| *to == host) {
                    self.replied(serial, reply);
                }
            }
            PeerMessage::Alive | PeerMessage::Full(_) | PeerMessage::Room(_) => {}
            PeerMessage::Ready => self.ready(host),
            PeerMessage::Halt => self.halt_all(None),
        }
    }

    fn frame(&mut self, link: Link, pid: u32, Frame { id, request }: Frame) {
        match (self.tasks.at(link), request) {
            (None, Request::Enroll { version, started_as, name }) => {
                self.enroll(link, pid, version, started_as, name);
            }
            (Some(tid), request) => self.request(Asker { tid, id }, request),
            (None, _) => {
                self.log(format!("process {pid} sent a request before it enrolled"));
                self.actions.push(Action::Close(link));
            }
        }
    }

    fn enroll(&mut self, link: Link, pid: u32, version: u32, cookie: Option<u32>, name: String) {
        if version != VERSION {
            self.log(format!(
                "process {pid} uses version {version} of the protocol, not {VERSION}"
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
            self.report_start_to_manager(&[tid.as_int()], 0);
        }
    }

    /// Proposes that the task has ended. `asker` is the request to answer then, if any.
    pub(crate) fn end(&mut self, tid: Tid, asker: Option<Asker>) {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.exits = asker.is_some();
        }
        self.propose(Change { asker, operation: Operation::Ended(tid) });
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
                Output::Send(host, message) => {
                    self.actions.push(Action::Send(host, Box::new(PeerMessage::Order(message))));
                }
                Output::Apply(entry) => {
                    let effects = self.machine.apply(entry.item);
                    for effect in effects {
                        self.effect(effect);
                    }
                }
                Output::Snapshot(host, head) => {
                    let message = Message::Snapshot(head, self.machine.clone());
                    self.actions.push(Action::Send(host, Box::new(PeerMessage::Order(message))));
                }
                Output::Install(machine) => {
                    self.machine = machine;
                    for (slot, change) in self.machine.groups().slots() {
                        self.actions.push(Action::Slot(slot, change));
                    }
                    self.installed();
                }
                Output::Expelled => {
                    self.log("the virtual machine continues without this host".into());
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
                self.report_host_end_to_manager(host);
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
                        self.report_end_to_manager(tid);
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
    pub(crate) fn send_on(&mut self, host: u16, errand: Errand, then: Continuation) {
        self.last_errand = self.last_errand.wrapping_add(1);
        let serial = self.last_errand;
        self.errands.insert(serial, (host, then));
        if host == self.host {
            self.run(Principal { host, serial }, errand);
        } else if self.machine.host(host).is_none() || self.order.is_lost(host) {
            self.replied(serial, Err(Error::NoHost.code()));
        } else {
            self.actions.push(Action::Send(host, Box::new(PeerMessage::Errand(serial, errand))));
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
            let message = PeerMessage::Reply(principal.serial, reply);
            self.actions.push(Action::Send(principal.host, Box::new(message)));
        }
    }

    pub(crate) fn replied(&mut self, serial: u32, reply: Reply) {
        let Some((_, then)) = self.errands.remove(&serial) else { return };
        match then {
            Continuation::Answer(asker) => self.answer(asker, reply),
            Continuation::Gather(asker) => {
                let Some(gathering) = self.gatherings.get_mut(&asker) else { return };
                if let Ok(Answer::Tasks(tasks)) = reply {
                    gathering.tasks.extend(tasks);
                }
                assert!(gathering.waits > 0, "each host replies once");
                gathering.waits -= 1;
                if gathering.waits == 0 {
                    let mut gathering = self.gatherings.remove(&asker).expect("it is there");
                    gathering.tasks.sort_by_key(|task| task.tid);
                    self.answer(asker, Ok(Answer::Tasks(gathering.tasks)));
                }
            }
            Continuation::Spawn(number, slots) => self.spawned(number, &slots, reply),
            Continuation::Managed(wait_id, output) => self.managed(wait_id, output, reply),
            Continuation::Notice(tid) => self.noticed(tid, &reply),
            Continuation::HandOff(next) => self.handed_off(next, &reply),
            Continuation::Nothing => {}
        }
    }

    /// Sends the errand to all hosts and answers with the collected tasks.
    pub(crate) fn gather(&mut self, asker: Asker, errand: &Errand) {
        let hosts: Vec<u16> = self.machine.hosts().iter().map(|host| host.tid.host()).collect();
        let gathering = Gathering { waits: hosts.len(), tasks: Vec::new() };
        self.gatherings.insert(asker, gathering);
        for host in hosts {
            self.send_on(host, errand.clone(), Continuation::Gather(asker));
        }
    }
}
