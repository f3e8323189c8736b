//! pvm_spawn: distributes tasks over the hosts, starts them, and collects the results.

use std::collections::BTreeMap;

use pvm::constants::{PvmHostCompl, PvmNoSpawnParent, PvmTaskArch, PvmTaskHost};
use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Spawn};

use crate::daemon::{Continuation, Daemon, SpawnTrace, Spawning, Starting};
use crate::errand::{Asker, Errand, Principal, Reply, Start};
use crate::event::Action;
use crate::machine::Machine;
use crate::output::{OutputEvent, OutputItem};
use crate::program::{NotStarted, Program};

/// Most tasks of one spawn: more than a virtual machine can have.
pub const COUNT_MAX: u32 = 1 << 22;

/// Returns the hosts on which `spawn` may run, and the directory in its `place`.
fn candidates<'a>(spawn: &'a Spawn, machine: &Machine, own: u16) -> (Vec<u16>, &'a str) {
    let (place, directory) = spawn.place.split_once(':').unwrap_or((&spawn.place, ""));
    let fits = |host: &pvm::wire::HostInfo| {
        let here = place == "." && host.tid.host() == own;
        let host_fits = spawn.flags & PvmTaskHost == 0 || host.name == place || here;
        let architecture_fits = spawn.flags & PvmTaskArch == 0 || host.architecture == place;
        (host_fits && architecture_fits) != (spawn.flags & PvmHostCompl != 0)
    };
    let hosts = machine.hosts().iter().filter(|host| fits(host));
    (hosts.map(|host| host.tid.host()).collect(), directory)
}

impl Daemon {
    /// Returns the attributes of a task's spawn, if its start is not reported yet.
    pub(crate) fn is_starting(&self, tid: Tid) -> Option<SpawnTrace> {
        let number = self.starting.get(&tid)?;
        self.starts.get(number).map(|starting| starting.trace)
    }

    /// Executes pvm_spawn.
    pub(crate) fn spawn(&mut self, asker: Asker, spawn: Spawn) {
        if spawn.count == 0 || spawn.count > COUNT_MAX {
            return self.answer(asker, Err(Error::BadParam.code()));
        }
        let (hosts, directory) = candidates(&spawn, &self.machine, self.host);
        let directory = directory.to_string();
        let count = spawn.count as usize;
        if hosts.is_empty() {
            let slots = vec![Error::NoHost.code(); count];
            return self.answer(asker, Ok(Answer::Spawned(slots, Vec::new())));
        }
        // Round robin, from the host after the last one that got a task.
        let mut shares: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for slot in 0..count {
            let next = hosts.iter().find(|&&host| host > self.last_host).unwrap_or(&hosts[0]);
            self.last_host = *next;
            shares.entry(*next).or_default().push(slot);
        }
        let quiet = spawn.flags & PvmNoSpawnParent != 0;
        let parent = if quiet { Error::ParentNotSet.code() } else { asker.tid.as_int() };
        self.last_spawn = self.last_spawn.wrapping_add(1);
        let number = self.last_spawn;
        let slots = vec![Error::SysErr.code(); count];
        let output = (spawn.inheritance.output, parent);
        self.spawns.insert(
            number,
            Spawning { asker, slots, why: Vec::new(), waits: shares.len(), output },
        );
        for (host, slots) in shares {
            let spawn = Spawn { count: slots.len() as u32, ..spawn.clone() };
            let start = Start { spawn, directory: directory.clone(), parent };
            self.send_on(host, Errand::Start(start), Continuation::Spawn(number, slots));
        }
    }

    /// Handles a host's reply for its share of a spawn.
    pub(crate) fn spawned(&mut self, number: u32, slots: &[usize], reply: Reply) {
        let Some(spawning) = self.spawns.get_mut(&number) else { return };
        if let Ok(Answer::Spawned(_, why)) = &reply {
            spawning.why.extend_from_slice(why);
        }
        for (n, &slot) in slots.iter().enumerate() {
            spawning.slots[slot] = match &reply {
                Ok(Answer::Spawned(results, _)) => {
                    results.get(n).copied().unwrap_or(Error::SysErr.code())
                }
                Ok(_) => Error::SysErr.code(),
                Err(code) => *code,
            };
        }
        assert!(spawning.waits > 0, "each host replies once");
        spawning.waits -= 1;
        if spawning.waits > 0 {
            return;
        }
        let spawning = self.spawns.remove(&number).expect("it is there");
        let Spawning { asker, mut slots, why, output: (sink, parent), .. } = spawning;
        // Tids first, then errors, as in stock PVM.
        slots.sort_by_key(|result| *result < 0);
        self.announce_spawned(&slots, sink, parent);
        self.answer(asker, Ok(Answer::Spawned(slots, why)));
    }

    /// Starts tasks on this host.
    pub(crate) fn start_tasks(&mut self, principal: Principal, mut start: Start) {
        let by_parent = start.spawn.inheritance.trace.tid > 0;
        let trace = SpawnTrace { flags: start.spawn.flags, by_parent };
        start.spawn.inheritance = self.machine.traced(&start.spawn.inheritance);
        let mut programs = Vec::new();
        let mut results = Vec::new();
        for _ in 0..start.spawn.count {
            let inheritance = start.spawn.inheritance.clone();
            match self.tasks.add(start.parent, start.spawn.file.clone(), inheritance) {
                Some(tid) => {
                    let cookie = self.tasks.give_cookie(tid);
                    let tasker = self.roles.tasker;
                    if let Some(task) = self.tasks.get_mut(tid) {
                        task.tasker = tasker;
                    }
                    programs.push(Program { tid, cookie, tasker, start: start.clone() });
                }
                None => results.push(Error::OutOfRes.code()),
            }
        }
        if programs.is_empty() {
            return self.reply(principal, Ok(Answer::Spawned(results, Vec::new())));
        }
        self.last_spawn = self.last_spawn.wrapping_add(1);
        let number = self.last_spawn;
        self.starts.insert(
            number,
            Starting { principal, trace, results, why: Vec::new(), waits: programs.len() },
        );
        for program in programs {
            self.starting.insert(program.tid, number);
            self.begin_output(program.tid);
            self.actions.push(Action::StartTask(Box::new(program)));
        }
    }

    /// Handles the start of a program, or its failure.
    pub(crate) fn task_started(&mut self, tid: Tid, result: Result<u32, NotStarted>) {
        let Some(number) = self.starting.remove(&tid) else { return };
        let outcome = match result {
            Ok(pid) => {
                if let Some(task) = self.tasks.get_mut(tid) {
                    task.pid = pid;
                }
                self.output(tid, OutputItem::Event(OutputEvent::New));
                tid.as_int()
            }
            Err(NotStarted { error, why }) => {
                self.tasks.remove(tid);
                self.forget_output(tid);
                let host = self.machine.host(self.host).map_or("", |host| &host.name);
                let why = format!("{host}: {why}");
                if let Some(starting) = self.starts.get_mut(&number)
                    && !starting.why.contains(&why)
                {
                    self.actions.push(Action::Log(format!("spawn: {why}")));
                    starting.why.push(why);
                }
                error.code()
            }
        };
        let Some(starting) = self.starts.get_mut(&number) else { return };
        starting.results.push(outcome);
        assert!(starting.waits > 0, "each program starts or fails once");
        starting.waits -= 1;
        if starting.waits > 0 {
            return;
        }
        let Starting { principal, trace, results, why, .. } =
            self.starts.remove(&number).expect("it is there");
        let started = results.iter().filter(|result| **result > 0);
        let started: Vec<Tid> = started.map(|tid| Tid(*tid as u32)).collect();
        self.trace_spawned(&started, trace);
        self.reply(principal, Ok(Answer::Spawned(results, why)));
    }
}
