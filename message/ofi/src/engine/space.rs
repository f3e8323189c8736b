//! The calling task, and its space.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use control::{Identity, ThisTask};
use sync::lock::Owner;

/// The calling task.
#[derive(Debug)]
pub struct Here {
    /// The task.
    pub task: ThisTask,
    /// Its identity.
    pub us: Identity,
    /// Its identity as the owner of a lock.
    pub owner: Owner,
    /// Its process ID.
    pub pid: libc::pid_t,
    /// The mark of the space: the same for all its tasks, and no other space has it.
    pub mark: u64,
    /// Number of the machine's processors.
    processors: u32,
}

/// This process is a child by fork(2) of a task, and so no task.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Relaxed);
}

/// Returns the calling task, or `None` if this process is no task, or a task that is protected from
/// the others: an endpoint writes to the memory of its peers. It makes system calls only once.
pub fn here() -> Option<&'static Here> {
    static HERE: OnceLock<Option<Here>> = OnceLock::new();
    let here = HERE.get_or_init(|| {
        // SAFETY: the handler stores one word, and the library is never unloaded (`build.rs`).
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let task = control::this_task().filter(|task| task.control.protection().is_none())?;
        let us = task.control.identity(task.id)?;
        let pid = std::process::id() as libc::pid_t;
        // SAFETY: sysconf(3) has no preconditions.
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
    /// Returns true if a task lives.
    #[inline]
    pub fn is_living(&self, task: Identity) -> bool {
        self.task.control.is_living(task)
    }

    /// Returns true if the owner of a lock lives.
    pub fn is_alive(&self, owner: Owner) -> bool {
        self.is_living(Identity { id: owner.index.into(), generation: owner.generation })
    }

    /// Returns true if the space has, or has had, more tasks than the machine has processors.
    pub fn is_crowded(&self) -> bool {
        self.task.control.tasks_high() > self.processors
    }

    /// Returns true if a task has an mm of its own.
    pub fn is_far(&self, id: u32) -> bool {
        self.task.control.domain_of(id) != self.task.control.domain_of(self.us.id)
    }
}
