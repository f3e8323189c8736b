//! The tasks of one host: who they are, by which connection they speak, which tids are free.

use std::collections::BTreeMap;

use pvm::tid::{LOCAL_MAX, MEMBERS, Tid};
use pvm::wire::{Inheritance, TaskInfo};

use crate::event::Usage;

/// A connection's number. The driver gives each its own, and none twice.
pub type Link = u64;

/// ps: the task has enrolled.
pub const CONNECTED: i32 = 0x4;
/// ps: the daemon started it.
pub const STARTED: i32 = 0x2;

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Who it is.
    pub tid: Tid,
    /// Who spawned it: a tid, `PvmNoParent` or `PvmParentNotSet`.
    pub parent: i32,
    /// Its program, for ps.
    pub name: String,
    /// Its process, 0 before it is known.
    pub pid: u32,
    /// Where it speaks from, once it has enrolled.
    pub link: Option<Link>,
    /// What `PVMEPID` says to it, if the daemon started it.
    pub cookie: Option<u32>,
    /// Who was to start it, if not the daemon.
    pub tasker: Option<Tid>,
    /// What it has inherited.
    pub inheritance: Inheritance,
    /// Its tracer has been told that it is there.
    pub told: bool,
    /// It has said that it is one no longer.
    pub exits: bool,
    /// What its program has left behind, if that has ended first.
    pub usage: Option<Usage>,
}

impl Task {
    /// As others see it.
    pub fn info(&self) -> TaskInfo {
        let connected = if self.link.is_some() { CONNECTED } else { 0 };
        let started = if self.cookie.is_some() { STARTED } else { 0 };
        TaskInfo {
            tid: self.tid,
            parent: Tid(self.parent.max(0) as u32),
            host: Tid::of_host(self.tid.host()),
            flags: connected | started,
            name: self.name.clone(),
            pid: self.pid as i32,
        }
    }
}

/// All tasks of a host.
#[derive(Debug)]
pub struct Tasks {
    host: u16,
    /// The local part that was given last.
    last: u32,
    /// The cookie that was given last.
    cookie: u32,
    tasks: BTreeMap<Tid, Task>,
    links: BTreeMap<Link, Tid>,
}

impl Tasks {
    /// No tasks yet, of host `host`.
    pub fn new(host: u16) -> Tasks {
        Tasks { host, last: 0, cookie: 0, tasks: BTreeMap::new(), links: BTreeMap::new() }
    }

    /// A tid that nobody has: ascending, as in stock PVM, and with a free place in the
    /// window. Nothing if all places are taken.
    fn free(&mut self) -> Option<Tid> {
        if self.tasks.len() + 1 >= usize::from(MEMBERS) {
            return None;
        }
        let mut taken = [false; MEMBERS as usize];
        taken[0] = true;
        for tid in self.tasks.keys() {
            taken[usize::from(tid.place())] = true;
        }
        loop {
            self.last = if self.last == LOCAL_MAX { 1 } else { self.last + 1 };
            let tid = Tid::task(self.host, self.last);
            if !taken[usize::from(tid.place())] {
                return Some(tid);
            }
        }
    }

    /// A new task. Nothing if there are as many as there can be.
    pub fn add(&mut self, parent: i32, name: String, inheritance: Inheritance) -> Option<Tid> {
        let tid = self.free()?;
        let task = Task {
            tid,
            parent,
            name,
            pid: 0,
            link: None,
            cookie: None,
            tasker: None,
            inheritance,
            told: false,
            exits: false,
            usage: None,
        };
        self.tasks.insert(tid, task);
        Some(tid)
    }

    /// By which number the task's program will say that it is the one (`PVMEPID`).
    pub fn give_cookie(&mut self, tid: Tid) -> u32 {
        self.cookie += 1;
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.cookie = Some(self.cookie);
        }
        self.cookie
    }

    /// The task speaks by this connection from now on.
    pub fn connect(&mut self, tid: Tid, link: Link) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.link = Some(link);
            self.links.insert(link, tid);
        }
    }

    /// The task is one no longer.
    pub fn remove(&mut self, tid: Tid) -> Option<Task> {
        let task = self.tasks.remove(&tid)?;
        if let Some(link) = task.link {
            self.links.remove(&link);
        }
        Some(task)
    }

    /// The task with this tid.
    pub fn get(&self, tid: Tid) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// The task with this tid, to be changed.
    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Task> {
        self.tasks.get_mut(&tid)
    }

    /// Who speaks by this connection.
    pub fn at(&self, link: Link) -> Option<Tid> {
        self.links.get(&link).copied()
    }

    /// The task that the daemon started with this cookie, if it has not enrolled yet.
    pub fn expected(&self, cookie: u32) -> Option<Tid> {
        let fits = |task: &&Task| task.cookie == Some(cookie) && task.link.is_none();
        self.tasks.values().find(fits).map(|task| task.tid)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }
}
