//! Plug-ins: tasks that do a part of the daemon's work. Hosters start daemons, taskers start
//! tasks, and resource managers choose hosts. Their messages are those of stock PVM
//! (pvm_reg_hoster(3), pvm_reg_tasker(3), pvm_reg_rm(3); the tags are in `pvmproto.h`). A
//! resource manager serves the whole virtual machine; hosters and taskers serve their own host.

use pvm::constants::{PvmHostCompl, PvmTaskArch, PvmTaskHost};
use pvm::error::Error;
use pvm::parcel::{Data, Reader};
use pvm::protocol::*;
use pvm::tid::{HOST_MAX, Tid};
use pvm::wire::{Answer, Control, Inheritance, Notice, Parcel, Sink, Spawn};

use crate::daemon::{Continuation, Daemon, Roles};
use crate::errand::{Errand, Reply, Start};
use crate::machine::{Change, Operation};
use crate::task_message::TaskMessage;

/// Most strings of a list in a message.
const STRINGS_MAX: i32 = 1 << 16;

/// A role that a task can have on its host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Hoster,
    Tasker,
}

/// Returns the sink of a message to a plug-in, in the base context.
pub fn to(tid: Tid, tag: i32) -> Sink {
    Sink { tid: tid.as_int(), context: 0, tag }
}

impl Daemon {
    /// Gives a task a role, or takes it away. Errors: Already, if another task has it.
    pub(crate) fn set_role(&mut self, tid: Tid, role: Role, on: bool) -> Result<(), Error> {
        let holder = match role {
            Role::Hoster => &mut self.roles.hoster,
            Role::Tasker => &mut self.roles.tasker,
        };
        match *holder {
            Some(other) if other != tid => return Err(Error::Already),
            _ => *holder = on.then_some(tid),
        }
        match role {
            Role::Hoster if !on => self.lose_hoster(),
            Role::Tasker if !on => self.leave_tasker(tid),
            _ => {}
        }
        Ok(())
    }

    /// Ends the roles of a task that has ended.
    pub(crate) fn leave_roles(&mut self, tid: Tid) {
        let was_hoster = self.roles.hoster == Some(tid);
        let Roles { hoster, tasker } = &mut self.roles;
        for holder in [hoster, tasker] {
            holder.take_if(|holder| *holder == tid);
        }
        if was_hoster {
            self.lose_hoster();
        }
        self.leave_tasker(tid);
    }

    /// Ends the tasks that a tasker was to start and that have not enrolled.
    fn leave_tasker(&mut self, tasker: Tid) {
        let lost = |task: &&crate::tasks::Task| task.tasker == Some(tasker) && task.link.is_none();
        let lost: Vec<Tid> = self.tasks.iter().filter(lost).map(|task| task.tid).collect();
        for tid in lost {
            self.end(tid, None);
        }
    }

    /// Notifies the resource manager of new tasks.
    pub(crate) fn report_start_to_manager(&mut self, tids: &[i32], wait_id: i32) {
        if let Some(manager) = self.machine.manager() {
            let data = Data::default().int(tids.len() as i32);
            let data = tids.iter().fold(data, |data, tid| data.int(*tid));
            self.route(TaskMessage::Whole(data.message(to(manager, SM_EXECACK), wait_id)));
        }
    }

    /// Notifies the resource manager of a task's end.
    pub(crate) fn report_end_to_manager(&mut self, tid: Tid) {
        if let Some(manager) = self.machine.manager() {
            // Status and times are unknown: the task need not be a child of this daemon.
            let data = (0..5).fold(Data::default().int(tid.as_int()), |data, _| data.int(0));
            self.route(TaskMessage::Whole(data.message(to(manager, SM_TASKX), 0)));
        }
    }

    /// Notifies the resource manager of a host's end.
    pub(crate) fn report_host_end_to_manager(&mut self, host: u16) {
        // Only the manager's own host sends it, so that it arrives once.
        if let Some(manager) = self.machine.manager().filter(|tid| tid.host() == self.host) {
            let data = Data::default().int(Tid::of_host(host).as_int());
            self.route(TaskMessage::Whole(data.message(to(manager, SM_HOSTX), 0)));
        }
    }

    /// Processes a plug-in's message. Errors: BadMsg; Denied, if the task lacks the role.
    pub(crate) fn plug_in(&mut self, tid: Tid, tag: i32, parcel: &Parcel) -> Result<(), Error> {
        let mut reader = Reader::new(&parcel.bytes)?;
        match tag {
            SM_TASKX => {
                let ended = Tid::from(reader.int()?);
                let task = self.tasks.get(ended).ok_or(Error::NoTask)?;
                if task.tasker != Some(tid) {
                    return Err(Error::Denied);
                }
                self.end(ended, None);
            }
            SM_STHOSTACK if self.roles.hoster == Some(tid) => {
                let lines = started(&mut reader);
                self.hosted(reader.wait_id(), lines.as_deref().map_err(|_| Error::DSysErr));
                lines?;
            }
            SM_EXEC if self.machine.manager() == Some(tid) => {
                let wait_id = reader.wait_id();
                let start = exec(&mut reader)?;
                let output = (start.spawn.inheritance.output, start.parent);
                self.send_on(
                    self.host,
                    Errand::Start(start),
                    Continuation::Managed(wait_id, output),
                );
            }
            SM_ADD if self.machine.manager() == Some(tid) => {
                let wait_id = reader.wait_id();
                let names = strings(&mut reader)?;
                self.add_hosts_for(tid, wait_id, &names);
            }
            SM_HANDOFF if self.machine.manager() == Some(tid) => {
                let next = Tid::from(reader.int()?);
                match next.is_task() {
                    true => {
                        self.send_on(next.host(), Errand::Status(next), Continuation::HandOff(next))
                    }
                    false => return Err(Error::BadParam),
                }
            }
            SM_EXEC | SM_ADD | SM_HANDOFF | SM_STHOSTACK => return Err(Error::Denied),
            _ => {
                self.log(format!("{tid} sent the daemon a message with the unknown tag {tag:#x}"));
                return Err(Error::BadMsg);
            }
        }
        Ok(())
    }

    /// Continues a handoff with the status of the task that is to become resource manager.
    pub(crate) fn handed_off(&mut self, next: Tid, reply: &Reply) {
        match reply {
            Ok(_) => {
                let operation = Operation::Manager(next);
                self.propose(Change { asker: None, operation });
            }
            Err(_) => self.log(format!("{next} cannot become resource manager: no such task")),
        }
    }

    /// Notifies this host's tasks that the resource manager has ended. They send their pending
    /// requests to the daemon.
    pub(crate) fn manager_gone(&mut self, manager: Tid) {
        for tid in self.tasks.iter().map(|task| task.tid).collect::<Vec<_>>() {
            self.write(tid, &Control::Notice(Notice::Gone(manager)));
        }
    }

    /// Sends the resource manager the results of the hosts that it added.
    pub(crate) fn report_added_hosts_to_manager(
        &mut self,
        manager: Tid,
        wait_id: i32,
        slots: &[i32],
    ) {
        let count = Data::default().int(slots.len() as i32).int(0);
        let data = slots.iter().fold(count, |data, slot| {
            let host = self.machine.host(Tid::from((*slot).max(0)).host());
            match host.filter(|_| *slot > 0) {
                Some(info) => data
                    .int(*slot)
                    .string(&info.name)
                    .string(&info.architecture)
                    .int(info.speed)
                    .int(info.signature),
                None => data.int(*slot).string("").string("").int(0).int(0),
            }
        });
        self.route(TaskMessage::Whole(data.message(to(manager, SM_ADDACK), wait_id)));
    }

    /// Sends the resource manager the results of the tasks that it started.
    pub(crate) fn managed(&mut self, wait_id: i32, (sink, parent): (Sink, i32), reply: Reply) {
        let slots = match reply {
            Ok(Answer::Spawned(slots, _)) => slots,
            Ok(_) => Vec::new(),
            Err(code) => vec![code],
        };
        self.announce_spawned(&slots, sink, parent);
        self.report_start_to_manager(&slots, wait_id);
    }
}

/// Reads a request to start tasks: parent, file, flags, count, arguments, sinks of output and
/// trace, environment. Fields that may follow do not apply to these machines.
fn exec(reader: &mut Reader) -> Result<Start, Error> {
    let parent = reader.int()?;
    let file = reader.string()?;
    // The manager has already chosen the host.
    let flags = reader.int()? & !(PvmTaskHost | PvmTaskArch | PvmHostCompl);
    let count = u32::try_from(reader.int()?).map_err(|_| Error::BadMsg)?;
    let arguments = strings(reader)?;
    let mut sink =
        || Ok::<_, Error>(Sink { tid: reader.int()?, context: reader.int()?, tag: reader.int()? });
    let inheritance = Inheritance { output: sink()?, trace: sink()?, ..Inheritance::default() };
    let (inherited, environment) = inherited(strings(reader)?);
    let inheritance =
        Inheritance { output: inheritance.output, trace: inheritance.trace, ..inherited };
    let (directory, place) = (String::new(), String::new());
    let spawn = Spawn { file, directory, arguments, flags, place, count, environment, inheritance };
    Ok(Start { spawn, directory: String::new(), parent })
}

/// Splits the environment that libpvm sends to a resource manager: the attributes that children
/// inherit, which come as variables, and the other variables.
fn inherited(environment: Vec<String>) -> (Inheritance, Vec<String>) {
    let mut inherited = Inheritance::default();
    let left = environment.into_iter().filter(|variable| {
        let Some((name, value)) = variable.split_once('=') else { return true };
        let number = || match value.strip_prefix("0x") {
            Some(digits) => i32::from_str_radix(digits, 16).unwrap_or(0),
            None => value.parse().unwrap_or(0),
        };
        match name {
            "PVMTMASK" => inherited.trace_mask = value.into(),
            "PVMTRCBUF" => inherited.trace_buffer = number(),
            "PVMTRCOPT" => inherited.trace_options = number(),
            "PVMCTX" => inherited.context = number(),
            _ => return true,
        }
        false
    });
    let left = left.collect();
    (inherited, left)
}

/// Reads a hoster's answer: the number of hosts, and for each its tid and its daemon's line.
fn started(reader: &mut Reader) -> Result<Vec<(u16, String)>, Error> {
    let count = reader.int()?;
    if !(0..=i32::from(HOST_MAX as i16)).contains(&count) {
        return Err(Error::BadMsg);
    }
    (0..count).map(|_| Ok((Tid::from(reader.int()?).host(), reader.string()?))).collect()
}

/// Reads a list of strings after its length.
fn strings(reader: &mut Reader) -> Result<Vec<String>, Error> {
    let count = reader.int()?;
    if !(0..=STRINGS_MAX).contains(&count) {
        return Err(Error::BadMsg);
    }
    (0..count).map(|_| reader.string()).collect()
}
