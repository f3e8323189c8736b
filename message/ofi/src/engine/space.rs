//! The calling task, and the space that it is in.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use control::hold::{Attempt, Hold};
use control::{Identity, ThisTask};
use sync::lock::Owner;

/// Who we are.
#[derive(Debug)]
pub struct Here {
    /// Our task.
    pub task: ThisTask,
    /// The same, as others know us.
    pub us: Identity,
    /// The same, as the owner of a lock.
    pub owner: Owner,
    /// Our process.
    pub pid: libc::pid_t,
    /// The same for all tasks of a space, and for nobody else.
    pub mark: u64,
    /// Processors of the machine.
    processors: u32,
}

/// We are a child by fork(2) of a task: no task.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Relaxed);
}

/// The calling task, remembered: to ask takes system calls.
pub fn here() -> Option<&'static Here> {
    static HERE: OnceLock<Option<Here>> = OnceLock::new();
    let here = HERE.get_or_init(|| {
        // SAFETY: the handler stores one word, and the library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let task = control::this_task()?;
        let us = task.control.identity(task.id)?;
        let pid = std::process::id() as libc::pid_t;
        // SAFETY: a plain question.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u32;
        // IDs are below `TASKS_MAX`, which is 2^16.
        let owner = Owner { index: us.id as u16, generation: us.generation };
        Some(Here { task, us, owner, pid, mark: task.mark(), processors })
    });
    here.as_ref().filter(|_| !FORKED.load(Relaxed))
}

/// Returns the ticket by which the receiver of a ring asks if a sender lives.
pub fn ticket(sender: Identity) -> u32 {
    sender.id << 16 | sender.generation & 0xffff
}

impl Here {
    /// Holds a task while we are in its memory. `None`: it has ended.
    #[inline]
    pub fn hold(&self, whom: Identity) -> Option<Hold> {
        loop {
            match self.task.hold(whom, control::hold::WORK) {
                Ok(held) => return Some(held),
                Err(Attempt::Gone) => return None,
                Err(_) => rustix::thread::sched_yield(), // other threads of ours are at it
            }
        }
    }

    /// Whether a task lives.
    #[inline]
    pub fn is_living(&self, whom: Identity) -> bool {
        self.task.control.is_living(whom)
    }

    /// Returns true if the owner of a lock lives.
    pub fn is_alive(&self, owner: Owner) -> bool {
        self.is_living(Identity { id: owner.index.into(), generation: owner.generation })
    }

    /// Whether there are, or were, more tasks than processors.
    pub fn is_crowded(&self) -> bool {
        self.task.control.tasks_high() > self.processors
    }

    /// Whether a task has an mm of its own.
    pub fn is_far(&self, id: u32) -> bool {
        self.task.control.domain_of(id) != self.task.control.domain_of(self.us.id)
    }
}
