//! The calling task, cached: the query takes a system call.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use control::ThisTask;

use crate::error::Error;

/// The process is a child by fork(2) of a task, and no task itself.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Relaxed);
}

/// Returns the calling task. In a protected job no task can work on the memory of others.
#[inline]
pub fn this() -> Result<ThisTask, Error> {
    static TASK: OnceLock<Result<ThisTask, Error>> = OnceLock::new();
    let task = TASK.get_or_init(|| {
        // SAFETY: `forked` only stores an atomic, and build.rs links the library so that it is
        // never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let task = control::this_task().ok_or(Error::NotATask)?;
        if task.control.protection().is_some() {
            return Err(Error::Protected);
        }
        if task.is_over_machines() {
            sync::futex::wake_elsewhere(|word| {
                if let Ok(task) = this() {
                    task.wake_elsewhere(word);
                }
            });
        }
        Ok(task)
    });
    if FORKED.load(Relaxed) { Err(Error::NotATask) } else { *task }
}
