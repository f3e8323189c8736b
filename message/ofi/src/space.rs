//! The calling task, and the space that it is in.

use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pvas::ThisTask;
use pvas::hold::{Attempt, Hold, Identity};

/// Who we are.
#[derive(Debug)]
pub struct Here {
    /// Our task.
    pub task: ThisTask,
    /// The same, as others know us.
    pub us: Identity,
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
        let task = pvas::this_task()?;
        let us = task.control.identity(task.id)?;
        let pid = std::process::id() as libc::pid_t;
        // SAFETY: a plain question.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as u32;
        Some(Here { task, us, pid, mark: mark(&task), processors })
    });
    here.as_ref().filter(|_| !FORKED.load(Relaxed))
}

/// The machine since it was started, the PIDs that it counts in, and the space's owner and place.
fn mark(task: &ThisTask) -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    let numbers = [pids, task.control.owner_pid().into(), task.control.layout().window()];
    let bytes = numbers.into_iter().flat_map(u64::to_le_bytes);
    // FNV-1a.
    boot.into_iter().chain(bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

impl Here {
    /// Holds a task while we are in its memory. `None`: it has ended.
    #[inline]
    pub fn hold(&self, whom: Identity) -> Option<Hold> {
        loop {
            match self.task.hold(whom, pvas::hold::WORK) {
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

    /// Whether there are, or were, more tasks than processors.
    pub fn is_crowded(&self) -> bool {
        self.task.control.tasks_high() > self.processors
    }

    /// Whether a task has an mm of its own.
    pub fn is_far(&self, id: u32) -> bool {
        self.task.control.domain_of(id) != self.task.control.domain_of(self.us.id)
    }
}
