//! Tasks that take over a part of the daemon's work: hosters start daemons, taskers start
//! tasks, resource managers say where; and tracers. Their messages are those of stock PVM
//! (pvm_reg_hoster(3), pvm_reg_tasker(3), pvm_reg_rm(3); the tags are in `pvmproto.h`). Each
//! works for the host on which it is.

use pvm::constants::{PvmHostCompl, PvmTaskArch, PvmTaskHost};
use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Inheritance, Parcel, Sink, Spawn};

use crate::daemon::{Daemon, Then};
use crate::errand::{Errand, Reply};
use crate::invitation::{Acceptance, Line};
use crate::machine::Asker;
use crate::parcel::{Data, Reader};
use crate::spawn::Start;
use crate::start::Started;

const SM_FIRST: i32 = 0x8004_0001_u32 as i32;
/// From a resource manager: start tasks.
const SM_EXEC: i32 = SM_FIRST + 1;
/// To a resource manager: these are started, or have come.
const SM_EXECACK: i32 = SM_FIRST + 2;
/// From a tasker and to a resource manager: a task has ended.
const SM_TASKX: i32 = SM_FIRST + 10;
/// To a resource manager: a host has gone.
const SM_HOSTX: i32 = SM_FIRST + 11;
/// To a hoster: start daemons.
pub const SM_STHOST: i32 = SM_FIRST + 14;
/// From it: what came of that.
const SM_STHOSTACK: i32 = SM_FIRST + 15;
/// To a tasker: start a task.
pub const SM_STTASK: i32 = SM_FIRST + 16;
/// Most strings of a list in a message.
const STRINGS_MAX: i32 = 1 << 16;

/// Who has which role on this host.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    pub hoster: Option<Tid>,
    pub tasker: Option<Tid>,
    pub manager: Option<Tid>,
    /// What tasks get that nobody spawned, as this one wants it.
    pub tracer: Option<(Tid, Inheritance)>,
}

/// A role.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Hoster,
    Tasker,
    Manager,
}

/// A message to a plug-in: where it goes, as a message of the base context.
pub fn to(tid: Tid, tag: i32) -> Sink {
    Sink { tid: tid.as_int(), context: 0, tag }
}

impl Daemon {
    /// Gives a task a role, or takes it back. Errors: Already, if another has it.
    pub(crate) fn play(&mut self, tid: Tid, role: Role, on: bool) -> Result<(), Error> {
        let player = match role {
            Role::Hoster => &mut self.roles.hoster,
            Role::Tasker => &mut self.roles.tasker,
            Role::Manager => &mut self.roles.manager,
        };
        match *player {
            Some(other) if other != tid => return Err(Error::Already),
            _ => *player = on.then_some(tid),
        }
        if !on {
            self.leave_tasker(tid);
        }
        Ok(())
    }

    /// What a task gets that nobody spawned.
    pub(crate) fn traced(&self) -> Inheritance {
        self.roles.tracer.as_ref().map(|(_, inherited)| inherited.clone()).unwrap_or_default()
    }

    /// A task has ended, with its roles.
    pub(crate) fn leave_roles(&mut self, tid: Tid) {
        let was_hoster = self.roles.hoster == Some(tid);
        let Roles { hoster, tasker, manager, tracer } = &mut self.roles;
        for player in [hoster, tasker, manager] {
            player.take_if(|player| *player == tid);
        }
        tracer.take_if(|(tracer, _)| *tracer == tid);
        if was_hoster {
            self.lose_hoster();
        }
        self.leave_tasker(tid);
    }

    /// What a tasker was to start, and what has not enrolled, never will.
    fn leave_tasker(&mut self, tasker: Tid) {
        let lost = |task: &&crate::tasks::Task| task.tasker == Some(tasker) && task.link.is_none();
        let lost: Vec<Tid> = self.tasks.iter().filter(lost).map(|task| task.tid).collect();
        for tid in lost {
            self.end(tid, None);
        }
    }

    /// Tells the resource manager that these tasks are there.
    pub(crate) fn tell_manager_of_start(&mut self, tids: &[i32], wait_id: i32) {
        if let Some(manager) = self.roles.manager {
            let data = Data::default().int(tids.len() as i32);
            let data = tids.iter().fold(data, |data, tid| data.int(*tid));
            self.route(Parcel { bytes: data.message(to(manager, SM_EXECACK), wait_id) });
        }
    }

    /// Tells the resource manager that a task has ended.
    pub(crate) fn tell_manager_of_end(&mut self, tid: Tid) {
        if let Some(manager) = self.roles.manager {
            // Its status and times are not known: it need not be our child.
            let data = (0..5).fold(Data::default().int(tid.as_int()), |data, _| data.int(0));
            self.route(Parcel { bytes: data.message(to(manager, SM_TASKX), 0) });
        }
    }

    /// Tells the resource manager that a host has gone.
    pub(crate) fn tell_manager_of_host(&mut self, host: u16) {
        if let Some(manager) = self.roles.manager {
            let data = Data::default().int(Tid::of_host(host).as_int());
            self.route(Parcel { bytes: data.message(to(manager, SM_HOSTX), 0) });
        }
    }

    /// What a plug-in says. Errors: BadMsg; Denied, if it has no such role.
    pub(crate) fn plug_in(&mut self, asker: Asker, tag: i32, parcel: &Parcel) -> Result<(), Error> {
        let tid = asker.tid;
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
                while !reader.is_at_end() {
                    let host = Tid::from(reader.int()?).host();
                    let line = reader.string()?;
                    let acceptance = Acceptance::parse(&line).unwrap_or(Err(line));
                    self.started(Started { host, acceptance });
                }
            }
            SM_EXEC if self.roles.manager == Some(tid) => {
                let wait_id = reader.wait_id();
                let start = exec(&mut reader)?;
                self.send_on(self.host, Errand::Start(start), Then::Managed(wait_id));
            }
            SM_EXEC | SM_STHOSTACK => return Err(Error::Denied),
            _ => {
                self.log(format!(
                    "{tid} sends the daemon a message {tag:#x}, which is none for it"
                ));
                return Err(Error::BadMsg);
            }
        }
        Ok(())
    }

    /// The tasks that a resource manager wanted are started.
    pub(crate) fn managed(&mut self, wait_id: i32, reply: Reply) {
        let slots = match reply {
            Ok(Answer::Each(slots)) => slots,
            Ok(_) => Vec::new(),
            Err(code) => vec![code],
        };
        self.tell_manager_of_start(&slots, wait_id);
    }
}

/// What is to be started: parent, file, flags, count, arguments, sinks of output and trace,
/// environment. What may follow is for other machines than these.
fn exec(reader: &mut Reader) -> Result<Start, Error> {
    let parent = reader.int()?;
    let file = reader.string()?;
    // Where, it has decided.
    let flags = reader.int()? & !(PvmTaskHost | PvmTaskArch | PvmHostCompl);
    let count = u32::try_from(reader.int()?).map_err(|_| Error::BadMsg)?;
    let arguments = strings(reader)?;
    let mut sink =
        || Ok::<_, Error>(Sink { tid: reader.int()?, context: reader.int()?, tag: reader.int()? });
    let inheritance = Inheritance { output: sink()?, trace: sink()?, ..Inheritance::default() };
    let environment = strings(reader)?;
    let place = String::new();
    let spawn = Spawn { file, arguments, flags, place, count, environment, inheritance };
    Ok(Start { spawn, directory: String::new(), parent })
}

/// A list of strings after its length.
fn strings(reader: &mut Reader) -> Result<Vec<String>, Error> {
    let count = reader.int()?;
    if !(0..=STRINGS_MAX).contains(&count) {
        return Err(Error::BadMsg);
    }
    (0..count).map(|_| reader.string()).collect()
}
