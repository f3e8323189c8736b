//! Access of the C functions to the library's state.
//!
//! Each function of `pvm3.h` is one [`call`]. It holds the lock, works on the [`State`] in short
//! steps, and reports an error as libpvm does. Between the steps, functions of the program
//! (message handlers, matching functions) may run, which call PVM's functions again.

use std::cell::{Cell, UnsafeCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use pvm::error::Error;
use pvm::event::Event;
use pvm::message::Header;
use pvm::tid::Tid;
use pvm::wire::{Answer, Request};
use rustix::thread::futex;

use super::errors;
use super::kept::{Classes, Hosts, Tasks};
use super::lock::Lock;
use super::settings::Options;
use super::state::{Code, Descriptors, Roles, Routes, State, Tracing, clock};
use super::tracing::{self, Called, Depth, traced};
use crate::task::handlers::{Handler, Handlers};
use crate::task::{Task, Waited};

/// The library in this process.
pub struct Library {
    lock: Lock,
    state: UnsafeCell<Option<State>>,
    /// The state is in use: by this thread, if a signal handler reads true here.
    busy: Cell<bool>,
    /// This process was forked from one that had enrolled.
    forked: Cell<bool>,
    /// Counts processed messages, for threads that wait while another one receives.
    arrivals: AtomicU32,
    waiters: AtomicU32,
}

// SAFETY: all fields but the atomics are accessed only by the holder of the lock.
unsafe impl Sync for Library {}

static LIBRARY: Library = Library {
    lock: Lock::new(),
    state: UnsafeCell::new(None),
    busy: Cell::new(false),
    forked: Cell::new(false),
    arrivals: AtomicU32::new(0),
    waiters: AtomicU32::new(0),
};

/// Unsuccessful polls for a message after which the daemon is checked.
const EMPTY_POLLS: u32 = 1024;
/// Time that a thread waits for another receiving thread before it polls itself.
const RECEIVER_TIMEOUT: Duration = Duration::from_millis(500);

/// Releases the lock when dropped.
struct Held;

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        LIBRARY.lock.give();
    }
}

/// Runs a function of the library. Reports an error, and returns it.
#[inline]
pub fn call(called: impl Called, run: impl FnOnce(&Library) -> Result<c_int, Code>) -> c_int {
    let (result, _held) = enter(&called, run);
    result.unwrap_or_else(|code| tell(called.name(), code.0))
}

/// Does the same as [`call`], but neither reports nor stores the expected errors.
pub fn call_quietly(
    called: impl Called,
    expected: &[Error],
    run: impl FnOnce(&Library) -> Result<c_int, Code>,
) -> c_int {
    let (result, _held) = enter(&called, run);
    result.unwrap_or_else(|code| match expected.iter().any(|e| e.code() == code.0) {
        true => code.0,
        false => tell(called.name(), code.0),
    })
}

/// Does the same as [`call`], but stores the expected errors in `pvm_errno` without reporting them.
pub fn call_remembering(
    called: impl Called,
    expected: &[Error],
    run: impl FnOnce(&Library) -> Result<c_int, Code>,
) -> c_int {
    let (result, _held) = enter(&called, run);
    result.unwrap_or_else(|code| match expected.iter().any(|e| e.code() == code.0) {
        true => errors::remember(code.0),
        false => tell(called.name(), code.0),
    })
}

/// Reports an error of a function, and ends the program if PvmAutoErr asks for that. Returns the
/// error's code.
#[cold]
pub fn tell(name: &str, code: c_int) -> c_int {
    if errors::report(name, code) {
        exit_task();
        // SAFETY: `report` returns true only if the program has set PvmAutoErr to 2, which asks
        // for this exit.
        unsafe { libc::exit(code) };
    }
    code
}

/// Executes pvm_exit.
pub fn exit_task() -> c_int {
    call(traced("pvm_exit", Event::EXIT), Library::exit)
}

/// Runs a function of the library; the caller reports errors.
pub fn quietly<T>(run: impl FnOnce(&Library) -> Result<T, Code>) -> Result<T, Code> {
    let this = LIBRARY.lock.take();
    let _held = Held;
    if !LIBRARY.is_ready(this) {
        LIBRARY.prepare(this);
    }
    run(&LIBRARY)
}

/// Runs a function of the library, and sends trace events if there is a tracer.
#[inline]
fn enter(
    called: &impl Called,
    run: impl FnOnce(&Library) -> Result<c_int, Code>,
) -> (Result<c_int, Code>, Held) {
    let this = LIBRARY.lock.take();
    let held = Held;
    let mut depth = Depth::Unknown;
    if !LIBRARY.is_ready(this) | tracing::is_on() {
        depth = LIBRARY.prepare_call(this, called);
    }
    let result = run(&LIBRARY);
    // This call may have started or stopped tracing.
    if (depth != Depth::Unknown) | tracing::is_on() {
        LIBRARY.end_call(this, called, depth, result.unwrap_or_else(|code| code.0));
    }
    (result, held)
}

/// Records the start of another library's call.
pub fn begin(called: &impl Called) -> Depth {
    let this = LIBRARY.lock.take();
    let _held = Held;
    LIBRARY.prepare_call(this, called)
}

/// Records the end of another library's call.
pub fn end(called: &impl Called, depth: Depth, result: c_int) {
    let this = LIBRARY.lock.take();
    let _held = Held;
    LIBRARY.prepare(this);
    LIBRARY.end_call(this, called, depth, result);
}

extern "C" fn before_fork() {
    LIBRARY.lock.take();
}

extern "C" fn in_parent() {
    LIBRARY.lock.give();
}

extern "C" fn in_child() {
    LIBRARY.lock.after_fork();
    LIBRARY.forked.set(true);
    errors::set_tid(None);
    LIBRARY.lock.give();
}

/// Flushes messages sent over the fabric, since a program may end without pvm_exit.
extern "C" fn at_exit() {
    if LIBRARY.busy.get() || LIBRARY.forked.get() {
        return;
    }
    let _ = quietly(|library| {
        library.with(|state| {
            state.task.finish();
            Ok(())
        })
    });
}

impl Library {
    /// Returns true if this thread also made the last call, so that nothing has to be prepared.
    #[inline]
    fn is_ready(&self, this: usize) -> bool {
        // SAFETY: this thread holds the lock, and the reference ends with this expression.
        let state = unsafe { &*self.state.get() };
        state.as_ref().is_some_and(|state| state.thread == this) & !self.forked.get()
    }

    /// Does the same as [`Library::prepare`], and sends the trace event of the call.
    #[cold]
    fn prepare_call(&self, this: usize, called: &impl Called) -> Depth {
        // SAFETY: this thread holds the lock, and the reference ends with this expression.
        let is_first = unsafe { &*self.state.get() }.is_none();
        self.prepare(this);
        let needs_no_daemon = [None, Some(Event::GETOPT), Some(Event::SETOPT)];
        if is_first && !needs_no_daemon.contains(&called.event()) {
            // Enroll now, so that the first call is traced, too. A call that needs the daemon
            // reports the error.
            let _ = self.enroll_now(|_| {});
        }
        let begun = self.with(|state| match tracing::is_on() {
            true => Ok(state.call_begins(this, called)),
            false => Ok(Depth::Unknown),
        });
        begun.unwrap_or(Depth::Inner)
    }

    #[cold]
    fn end_call(&self, this: usize, called: &impl Called, depth: Depth, result: c_int) {
        if depth == Depth::Outer || depth == Depth::Unknown && self.lock.is_shallow() {
            let _ = self.with(|state| {
                state.call_ends(this, called, result);
                Ok(())
            });
        }
    }

    /// Prepares the first call of a process or thread, or one after another thread's call.
    #[cold]
    fn prepare(&self, this: usize) {
        if self.busy.get() {
            return;
        }
        // SAFETY: this thread holds the lock, and `busy` shows that no step is running.
        let state = unsafe { &mut *self.state.get() };
        let state = state.get_or_insert_with(|| {
            static ONCE: Once = Once::new();
            // SAFETY: the registered functions belong to this library, which stays loaded.
            ONCE.call_once(|| unsafe {
                libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
                libc::atexit(at_exit);
            });
            State {
                task: Task::new(clock),
                matcher: None,
                early_handlers: Handlers::default(),
                options: Options::default(),
                tracing: Tracing::default(),
                siblings: None,
                roles: Roles::default(),
                routes: Routes::default(),
                catchout: None,
                descriptors: Descriptors::default(),
                hosts: Hosts::default(),
                manager_host: Hosts::default(),
                tasks: Tasks::default(),
                no_resets: Vec::new(),
                classes: Classes::default(),
                receiver: 0,
                thread: this,
                active: HashMap::new(),
                empty_looks: 0,
            }
        });
        if self.forked.replace(false) {
            state.leave();
            state.receiver = 0;
            self.waiters.store(0, Relaxed);
        }
        if state.thread != this {
            let next = state.active.remove(&this).unwrap_or_default();
            let old = state.task.buffers.swap_active(next);
            state.active.insert(state.thread, old);
            state.thread = this;
        }
    }

    /// Runs a step on the state. No function of the program runs during a step.
    ///
    /// Errors: NotImpl in a signal handler that has interrupted a step.
    #[inline]
    pub fn with<T>(&self, step: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Code> {
        if self.busy.replace(true) {
            return Err(Error::NotImpl.into());
        }
        // SAFETY: this thread holds the lock, as does every user of a `Library` reference. `busy`
        // shows that no other step uses the state.
        let state = unsafe { (*self.state.get()).as_mut() };
        let result = state.ok_or(Error::SysErr).and_then(step);
        self.busy.set(false);
        result.map_err(Code::from)
    }

    /// Makes the process a task. All calls do so, except those on buffers and options.
    #[inline]
    pub fn enroll(&self) -> Result<(), Code> {
        // SAFETY: this thread holds the lock, and the reference ends with this expression.
        match unsafe { &*self.state.get() } {
            Some(state) if state.task.is_enrolled() => Ok(()),
            _ => self.enroll_now(errors::log),
        }
    }

    /// Enrolls; `log` gets the lines of a failure.
    #[cold]
    fn enroll_now(&self, log: impl Fn(&str)) -> Result<(), Code> {
        let refused = self.with(|state| {
            let mut handlers = std::mem::take(&mut state.early_handlers);
            State::add_control_handlers(&mut handlers);
            match state.task.enroll(handlers) {
                Ok(welcome) => {
                    let welcome = welcome.clone();
                    errors::set_tid(Some(welcome.tid));
                    state.greeted(&welcome);
                    self.lock.set_bell(state.task.bell());
                    Ok(None)
                }
                Err(refusal) => Ok(Some(refusal)),
            }
        })?;
        let Some(refusal) = refused else { return Ok(()) };
        for line in refusal.lines {
            log(&line);
        }
        Err(refusal.error.into())
    }

    /// Returns this task's tid.
    #[inline]
    pub fn tid(&self) -> Result<Tid, Code> {
        self.enroll()?;
        self.with(|state| state.task.tid().ok_or(Error::SysErr))
    }

    /// Sends the daemon a request, and waits for the answer. Handlers may run meanwhile.
    pub fn ask(&self, request: Request) -> Result<Answer, Code> {
        self.enroll()?;
        let id = self.with(|state| state.task.post(request))?;
        loop {
            if let Some(answer) = self.with(|state| Ok(state.task.answer(id)))? {
                return answer.map_err(Code::from);
            }
            self.wait(None)?;
        }
    }

    /// Does the same as [`Library::ask`], for an answer that is a number; 0 if it has none.
    pub fn ask_number(&self, request: Request) -> Result<c_int, Code> {
        match self.ask(request)? {
            Answer::Number(number) if number < 0 => Err(Code(number)),
            Answer::Number(number) => Ok(number),
            Answer::Done => Ok(0),
            _ => Err(Error::DSysErr.into()),
        }
    }

    /// Processes arrived messages, and runs their handlers. Returns true if there were some.
    pub fn take_in(&self) -> Result<bool, Code> {
        let came = self.with(|state| {
            state.descriptors.clear();
            let came = state.task.take_in()?;
            state.empty_looks = if came { 0 } else { state.empty_looks + 1 };
            if state.empty_looks == EMPTY_POLLS {
                state.empty_looks = 0;
                state.task.check_daemon()?;
            }
            Ok(came)
        })?;
        self.run_handlers()?;
        Ok(came)
    }

    /// Waits for messages at most until the given time; may return earlier. Other threads may use
    /// the library meanwhile.
    #[inline]
    pub fn wait(&self, until: Option<Instant>) -> Result<(), Code> {
        if !self.receive(|task| task.wait(until))? {
            self.wait_for_receiver(until)?;
        }
        self.run_handlers()
    }

    /// Does the same as [`Library::wait`], but also ends once the word differs from `is`.
    pub fn wait_while(&self, word: &AtomicU32, is: u32) -> Result<(), Code> {
        if !self.receive(|task| task.wait_while(word, is))? {
            // Another thread receives.
            let this = self.with(|state| Ok(state.thread))?;
            self.lock.give();
            sync::futex::sleep(word, is, Some(Instant::now() + RECEIVER_TIMEOUT));
            self.lock.take();
            self.prepare(this);
        }
        self.run_handlers()
    }

    /// Makes this thread the receiver. Returns false if another thread is.
    #[inline]
    fn receive(&self, wait: impl FnOnce(&mut Task) -> Result<Waited, Error>) -> Result<bool, Code> {
        let waited = self.with(|state| {
            // In a handler the lock cannot be released, so no other thread can receive.
            if state.receiver != 0 && self.lock.is_shallow() {
                return Ok(None);
            }
            state.descriptors.clear();
            let waited = wait(&mut state.task)?;
            state.receiver = if waited == Waited::Came { 0 } else { state.thread };
            Ok(Some(waited))
        })?;
        match waited {
            None => return Ok(false),
            Some(Waited::Nothing) => self.let_others()?,
            Some(Waited::Came) => {}
        }
        if self.waiters.load(Relaxed) != 0 {
            self.arrivals.fetch_add(1, SeqCst);
            let _ = futex::wake(&self.arrivals, futex::Flags::PRIVATE, i32::MAX as u32);
        }
        Ok(true)
    }

    /// Does the same as [`Library::wait`] for threads that wait by descriptor, and leaves the
    /// handlers to them.
    pub fn wait_for_others(&self) -> Result<(), Code> {
        let waited = self.with(|state| {
            if state.receiver != 0 {
                return Ok(None);
            }
            let waited = state.task.wait(None)?;
            state.receiver = if waited == Waited::Came { 0 } else { state.thread };
            Ok(Some(waited))
        })?;
        match waited {
            None => self.wait_for_receiver(None),
            Some(Waited::Nothing) => self.let_others(),
            Some(Waited::Came) => Ok(()),
        }
    }

    /// Lets other threads in, since no message has arrived for this receiving thread. Threads that
    /// wait for a message, too, find that this one receives.
    #[cold]
    fn let_others(&self) -> Result<(), Code> {
        let this = self.with(|state| Ok(state.thread))?;
        if self.lock.is_wanted() && self.lock.is_shallow() {
            self.lock.let_others();
            self.prepare(this);
        }
        self.with(|state| {
            state.receiver = 0;
            Ok(())
        })
    }

    /// Waits until the receiving thread has processed a message.
    #[cold]
    fn wait_for_receiver(&self, until: Option<Instant>) -> Result<(), Code> {
        let this = self.with(|state| Ok(state.thread))?;
        self.waiters.fetch_add(1, SeqCst);
        let seen = self.arrivals.load(SeqCst);
        let left = until.map_or(RECEIVER_TIMEOUT, |until| {
            until.saturating_duration_since(Instant::now()).min(RECEIVER_TIMEOUT)
        });
        let left =
            futex::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        self.lock.give();
        let _ = futex::wait(&self.arrivals, futex::Flags::PRIVATE, seen, Some(&left));
        self.lock.take();
        self.waiters.fetch_sub(1, SeqCst);
        self.prepare(this);
        Ok(())
    }

    /// Runs the handlers of arrived messages.
    #[inline]
    pub fn run_handlers(&self) -> Result<(), Code> {
        loop {
            let next = self.with(|state| match state.task.intake() {
                Ok(intake) => Ok(intake.to_handle.pop_front()),
                Err(_) => Ok(None),
            })?;
            let Some((handler, id)) = next else { return Ok(()) };
            let Handler { pattern, function, .. } = handler;
            if self.with(|state| state.task.drop_lost(id))? {
                continue;
            }
            let saved = self.with(|state| {
                let buffers = &mut state.task.buffers;
                let Header { context, .. } = buffers.info(id)?.header;
                let sending = buffers.setsbuf(0)?;
                let receiving = buffers.setrbuf(id)?;
                let outer = state.handler_begins(pattern, id);
                Ok((sending, receiving, state.set_context(context), outer))
            });
            let Ok((sending, receiving, context, outer)) = saved else { continue };
            // SAFETY: the program registered `function` as a handler, which takes a buffer's
            // number.
            unsafe { function(id) };
            self.with(|state| {
                state.handler_ends(outer);
                state.set_context(context);
                let buffers = &mut state.task.buffers;
                let used = buffers.setsbuf(sending).unwrap_or_default();
                let _ = buffers.freebuf(used);
                let used = buffers.setrbuf(receiving).unwrap_or_default();
                let _ = buffers.freebuf(used);
                Ok(())
            })?;
        }
    }
}

impl State {
    /// Ends the task in this process.
    pub fn leave(&mut self) {
        self.task.leave();
        errors::set_tid(None);
        self.siblings = None;
        self.routes = Routes::default();
        self.roles = Roles::default();
        self.catchout = None;
        self.descriptors = Descriptors::default();
        self.look_at_tracing();
        LIBRARY.lock.set_bell(None);
    }
}
