//! Handling of the requests that tasks send to their daemon.

use fcp::loan::Terms;
use pvm::error::Error;
use pvm::parcel;
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupRequest, Inheritance, MailboxRequest, Parcel, Request, Sink};

use crate::daemon::{Continuation, Daemon};
use crate::errand::{Asker, Errand, Reply};
use crate::event::Action;
use crate::machine::{Change, Operation};
use crate::notice::NotifyRequest;
use crate::pattern;
use crate::plugin::Role;
use crate::task_message::TaskMessage;

/// Commands of pvm_tickle.
const HOSTS: i32 = 1;
const TASKS: i32 = 2;
const GET_MASK: i32 = 5;
const SET_MASK: i32 = 6;

impl Daemon {
    /// Handles a request of a task.
    pub(crate) fn request(&mut self, asker: Asker, request: Request) {
        let answer = match request {
            Request::Enroll { .. } => Err(Error::Already.code()),
            Request::Exit => return self.end(asker.tid, Some(asker)),
            Request::Route(Parcel { bytes }) => self.forward(asker, TaskMessage::Whole(bytes)),
            Request::RouteExposed(Parcel { bytes }, terms) => {
                self.forward(asker, TaskMessage::Exposed(bytes, Terms::parse(terms)))
            }
            Request::Group(GroupRequest::Members(name)) => {
                let info = self.machine.groups().info(&name);
                info.map(Answer::Group).map_err(Error::code)
            }
            Request::Group(request) => return self.change(asker, Operation::Group(request)),
            Request::Config => return self.config(asker),
            Request::Address(tid) => return self.find_address(asker, tid),
            Request::Publish(address) => {
                self.publish(asker.tid, address);
                Ok(Answer::Done)
            }
            Request::HostStatus(name) => match self.machine.named(&name, self.host) {
                Some(_) => Ok(Answer::Done),
                None => Err(Error::NoHost.code()),
            },
            Request::TaskStatus(tid) => return self.task_status(asker, tid),
            Request::Tasks(Tid(0)) => return self.gather(asker, &Errand::Tasks(None)),
            Request::Tasks(tid) => {
                let which = tid.is_task().then_some(tid);
                return self.send_on(tid.host(), Errand::Tasks(which), Continuation::Answer(asker));
            }
            Request::Clock(tid) => {
                return self.send_on(tid.host(), Errand::Clock, Continuation::Answer(asker));
            }
            Request::Signal(tid, signal) => {
                let errand = Errand::Signal(tid, signal);
                self.send_on(tid.host(), errand, Continuation::Nothing);
                Ok(Answer::Done)
            }
            Request::Inherit(inheritance) => self.inherit(asker.tid, inheritance),
            Request::Spawn(spawn) => return self.spawn(asker, spawn),
            Request::Notify { what, context, tag, tids, count } => {
                let sink = Sink { tid: asker.tid.as_int(), context, tag };
                let request = NotifyRequest { what, sink, tids, count };
                self.notify(request).map(|()| Answer::Done).map_err(Error::code)
            }
            Request::NewContext => match self.contexts.new_for(asker.tid) {
                Some(context) => Ok(Answer::Number(context)),
                None => Err(Error::OutOfRes.code()),
            },
            Request::FreeContext(context) => match self.contexts.free(context) {
                true => Ok(Answer::Done),
                false => Err(Error::NotFound.code()),
            },
            Request::NoReset(on) => return self.change(asker, Operation::NoReset(on)),
            Request::NoResets => {
                let tids = self.machine.no_resets().into_iter();
                Ok(Answer::Each(tids.map(Tid::as_int).collect()))
            }
            Request::Reset => return self.change(asker, Operation::Reset),
            Request::Mailbox(MailboxRequest::List(pattern)) => {
                let fits = |name: &str| pattern::fits(&pattern, name);
                Ok(Answer::Classes(self.machine.mailboxes().list(fits)))
            }
            Request::Mailbox(request) => return self.change(asker, Operation::Mailbox(request)),
            Request::Halt => {
                self.answer(asker, Ok(Answer::Done));
                return self.halt_all(Some(asker.tid));
            }
            Request::Hoster(on) => self.role(asker, Role::Hoster, on),
            Request::Tasker(on) => self.role(asker, Role::Tasker, on),
            Request::ResourceManager => return self.change(asker, Operation::Manager(asker.tid)),
            Request::Tracer(wanted) => return self.change(asker, Operation::Tracer(wanted)),
            Request::PlugIn(tag, parcel) => return self.send_plug_in(asker, tag, parcel),
            Request::Tickle(arguments) => Ok(Answer::Each(self.tickle(&arguments))),
            Request::AddHosts(lines) => return self.add_hosts(asker, &lines),
            Request::DeleteHosts(names) => return self.delete_hosts(asker, &names),
        };
        self.answer(asker, answer);
    }

    /// Executes pvm_pstat.
    fn task_status(&mut self, asker: Asker, tid: Tid) {
        if !tid.is_task() {
            self.answer(asker, Err(Error::BadParam.code()));
        } else if self.machine.host(tid.host()).is_none() {
            self.answer(asker, Err(Error::NoTask.code()));
        } else {
            self.send_on(tid.host(), Errand::Status(tid), Continuation::Answer(asker));
        }
    }

    /// Sets the attributes that the task's children inherit, and that apply to itself.
    fn inherit(&mut self, tid: Tid, inheritance: Inheritance) -> Reply {
        self.redirect_output(tid, inheritance.output);
        if let Some(task) = self.tasks.get_mut(tid) {
            let old = std::mem::replace(&mut task.inheritance, inheritance);
            self.tracer_changed(tid, old.trace);
        }
        Ok(Answer::Done)
    }

    /// Sends a plug-in's message to the daemon that it addresses.
    fn send_plug_in(&mut self, asker: Asker, tag: i32, parcel: Parcel) {
        let host = parcel::addressee(&parcel.bytes).map_or(0, Tid::host);
        let host = if host == 0 { self.host } else { host };
        let errand = Errand::PlugIn(asker.tid, tag, parcel);
        self.send_on(host, errand, Continuation::Answer(asker));
    }

    fn forward(&mut self, asker: Asker, mut message: TaskMessage) -> Reply {
        if message.destination().is_none() {
            self.actions.push(Action::Drop(message));
            self.log(format!("{} sent an invalid message", asker.tid));
            return Err(Error::BadMsg.code());
        }
        self.route(message.sent_by(asker.tid));
        Ok(Answer::Done)
    }

    fn role(&mut self, asker: Asker, role: Role, on: bool) -> Reply {
        self.set_role(asker.tid, role, on).map(|()| Answer::Done).map_err(Error::code)
    }

    /// Executes pvm_tickle: writes a part of the daemon's state into its log, or returns it.
    fn tickle(&mut self, arguments: &[i32]) -> Vec<i32> {
        match arguments {
            [HOSTS, ..] => {
                for host in self.machine.hosts().to_vec() {
                    let line = format!("{} {} speed {}", host.tid, host.name, host.speed);
                    self.log(line);
                }
            }
            [TASKS, ..] => {
                let lines: Vec<String> = self
                    .tasks
                    .iter()
                    .map(|task| format!("{} {} process {}", task.tid, task.name, task.pid))
                    .collect();
                lines.into_iter().for_each(|line| self.log(line));
            }
            [GET_MASK] => return vec![self.mask],
            [SET_MASK, mask] => self.mask = *mask,
            _ => {}
        }
        Vec::new()
    }

    /// Proposes a change. The asker is answered when the change is applied.
    fn change(&mut self, asker: Asker, operation: Operation) {
        self.propose(Change { asker: Some(asker), operation });
    }
}
