//! The calling task, remembered: to ask who we are takes a system call.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use control::ThisTask;

use crate::error::Error;

/// We are a child by fork(2) of a process that asked: no task.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Relaxed);
}

/// The calling task.
#[inline]
pub fn this() -> Result<ThisTask, Error> {
    static TASK: OnceLock<Option<ThisTask>> = OnceLock::new();
    let task = TASK.get_or_init(|| {
        // SAFETY: the handler stores one word, and the library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let task = control::this_task();
        if task.is_some_and(|task| task.is_over_machines()) {
            sync::futex::wake_elsewhere(|word| {
                if let Ok(task) = this() {
                    task.wake_elsewhere(word);
                }
            });
        }
        task
    });
    match task {
        Some(task) if !FORKED.load(Relaxed) => Ok(*task),
        _ => Err(Error::NotATask),
    }
}
