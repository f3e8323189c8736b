//! This process's task, which both headers' calls use.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dsm::error::{DsmError, say_last};
use dsm::task::{NotJoined, Task};

use crate::variables;

static TASK: Mutex<Option<Task>> = Mutex::new(None);

/// This task and how many there are, which loops ask at every turn.
pub static RANK: AtomicU32 = AtomicU32::new(0);
pub static SIZE: AtomicU32 = AtomicU32::new(1);

/// Whether there was a job; it has been left if there is no task.
static JOINED: AtomicBool = AtomicBool::new(false);
/// The process that is a task; not its forked children, which have all but its memory.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The time when it joined; before that, the time of the first call of jia_clock.
static BEGIN: Mutex<Option<Instant>> = Mutex::new(None);

thread_local! {
    /// Why the thread's last call failed.
    static REASON: RefCell<CString> = RefCell::default();
}

fn task() -> MutexGuard<'static, Option<Task>> {
    TASK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the task do something.
pub fn with<T>(work: impl FnOnce(&mut Task) -> Result<T, DsmError>) -> Result<T, DsmError> {
    if is_child() {
        return Err(DsmError::State(
            "a forked child has no shared memory; only its parent is a task",
        ));
    }
    match task().as_mut() {
        Some(task) => work(task),
        None if JOINED.load(Ordering::Relaxed) => {
            Err(DsmError::State("this task has left its job; make this call before that"))
        }
        None => Err(DsmError::State("this process is no task yet; call jia_init first")),
    }
}

fn is_child() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process != std::process::id()
}

/// Joins, once a process.
pub fn join() -> Result<(), NotJoined> {
    let mut task = task();
    if JOINED.swap(true, Ordering::Relaxed) {
        let twice = "a process joins its job once; this is the second call";
        return Err(DsmError::State(twice).into());
    }
    let joined = match Task::join() {
        Ok(joined) => joined,
        Err(error) => {
            JOINED.store(false, Ordering::Relaxed);
            return Err(error);
        }
    };
    RANK.store(joined.rank(), Ordering::Relaxed);
    SIZE.store(joined.size(), Ordering::Relaxed);
    variables::set(joined.rank(), joined.size());
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    *begin() = Some(Instant::now());
    *task = Some(joined);
    // SAFETY: a function that stays, since the library does.
    unsafe { on_exit(ends_early, std::ptr::null_mut()) };
    Ok(())
}

fn begin() -> MutexGuard<'static, Option<Instant>> {
    BEGIN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds since it joined. Programs ask before they join and after they have left, too.
pub fn seconds() -> f64 {
    begin().get_or_insert_with(Instant::now).elapsed().as_secs_f64()
}

/// Leaves.
pub fn leave() -> Result<(), DsmError> {
    with(|_| Ok(()))?;
    let task = task().take().expect("it was there");
    task.leave()
}

unsafe extern "C" {
    /// glibc's: as atexit(3), with the status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// A task that ends without having left leaves, if its status is 0. If it is not, or if others
/// need this task's pages, they cannot go on, and the job ends.
extern "C" fn ends_early(status: c_int, _: *mut c_void) {
    if is_child() {
        return;
    }
    // A thread that holds it ends the job, or waits in vain for another task.
    let Ok(mut task) = TASK.try_lock() else { return };
    let Some(mut task) = task.take() else { return };
    // Written before the wait for others, which may be long.
    flush();
    // A process's status has eight bits.
    let status = status as u8;
    if status != 0 {
        let line = format!("task {} has ended without jia_exit, with status {status}", task.rank());
        task.abort(status, &line);
    }
    if let Err(error) = task.exit() {
        say_last(&format!("at the end of a task without jia_exit: {error}"));
    }
}

/// Flushes the program's output streams.
pub fn flush() {
    // SAFETY: all streams, which stay.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Ends the job with a line.
pub fn end(line: &str) -> ! {
    flush();
    let mut task = if is_child() { None } else { Some(task()) };
    match task.as_mut().and_then(|task| task.as_mut()) {
        Some(task) => {
            let line = format!("task {}: {line}", task.rank());
            task.abort(1, &line)
        }
        None => {
            say_last(line);
            // SAFETY: ends the process.
            unsafe { libc::_exit(1) }
        }
    }
}

/// Remembers why a call failed.
pub fn remember(error: &DsmError) {
    let line = CString::new(error.to_string()).unwrap_or_default();
    REASON.with(|reason| *reason.borrow_mut() = line);
}

/// Why the thread's last call failed.
pub fn reason() -> *const c_char {
    REASON.with(|reason| reason.borrow().as_ptr())
}
