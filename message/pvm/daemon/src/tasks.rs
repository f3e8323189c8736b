//! The tasks of one host: attributes, connections, and free tids.

use std::collections::BTreeMap;

use pvm::tid::{LOCAL_MAX, MEMBERS, Tid};
use pvm::wire::{Inheritance, TaskInfo};

/// A connection's number. The event loop never reuses one.
pub type Link = u64;

/// Status bit in ps: the task has enrolled.
pub const CONNECTED: i32 = 0x4;
/// Status bit in ps: the daemon started the task.
pub const STARTED: i32 = 0x2;

/// Exit status and CPU time of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The wait status.
    pub status: i32,
    /// User time: seconds and microseconds.
    pub user: (i32, i32),
    /// System time: seconds and microseconds.
    pub system: (i32, i32),
}

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its tid.
    pub tid: Tid,
    /// Its parent: a tid, `PvmNoParent` or `PvmParentNotSet`.
    pub parent: i32,
    /// Its program's name, for ps.
    pub name: String,
    /// Its PID; 0 before it is known.
    pub pid: u32,
    /// Its connection, once it has enrolled.
    pub link: Option<Link>,
    /// The value of its `PVMEPID`, if the daemon started it.
    pub cookie: Option<u32>,
    /// The tasker that was to start it, if the daemon was not.
    pub tasker: Option<Tid>,
    /// Its inherited attributes.
    pub inheritance: Inheritance,
    /// True if its tracer was notified of it.
    pub told: bool,
    /// True if it has called pvm_exit.
    pub exits: bool,
    /// Status and CPU time of its program, if that has ended first.
    pub usage: Option<Usage>,
}

impl Task {
    /// Returns the description that other tasks see.
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
    /// The last local part assigned.
    last: u32,
    /// The last cookie assigned.
    cookie: u32,
    tasks: BTreeMap<Tid, Task>,
    links: BTreeMap<Link, Tid>,
}

impl Tasks {
    /// Returns an empty set for host `host`.
    pub fn new(host: u16) -> Tasks {
        Tasks { host, last: 0, cookie: 0, tasks: BTreeMap::new(), links: BTreeMap::new() }
    }

    /// Returns a free tid. Tids ascend, as in stock PVM, and map to a free member index of the
    /// window. Returns `None` if all indices are taken.
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

    /// Adds a task. Returns `None` if the host has the maximum number of tasks.
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

    /// Returns a number by which the task's program will identify itself (`PVMEPID`).
    pub fn give_cookie(&mut self, tid: Tid) -> u32 {
        self.cookie += 1;
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.cookie = Some(self.cookie);
        }
        self.cookie
    }

    /// Assigns a connection to a task that enrolls.
    pub fn connect(&mut self, tid: Tid, link: Link) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            assert!(task.link.is_none(), "a task enrolls once");
            task.link = Some(link);
            let other = self.links.insert(link, tid);
            assert!(other.is_none(), "a connection belongs to one task");
        }
    }

    /// Removes a task that has ended.
    pub fn remove(&mut self, tid: Tid) -> Option<Task> {
        let task = self.tasks.remove(&tid)?;
        if let Some(link) = task.link {
            let removed = self.links.remove(&link);
            debug_assert_eq!(removed, Some(tid), "links and tasks agree");
        }
        Some(task)
    }

    /// Returns the task with this tid.
    pub fn get(&self, tid: Tid) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// Returns the task with this tid, mutable.
    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut Task> {
        self.tasks.get_mut(&tid)
    }

    /// Returns the task of this connection.
    pub fn at(&self, link: Link) -> Option<Tid> {
        self.links.get(&link).copied()
    }

    /// Returns the task that the daemon started with this cookie, if it has not enrolled yet.
    pub fn expected(&self, cookie: u32) -> Option<Tid> {
        let fits = |task: &&Task| task.cookie == Some(cookie) && task.link.is_none();
        self.tasks.values().find(fits).map(|task| task.tid)
    }

    /// Iterates over all tasks.
    pub fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }
}
