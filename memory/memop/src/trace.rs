//! ptrace(2): a thread that is stopped, its registers and signals, and how it goes on.

use std::cell::RefCell;
use std::io::Error;
use std::mem::{MaybeUninit, size_of};
use std::ptr::{null_mut, without_provenance_mut};

use libc::{c_int, c_uint, c_void, user_regs_struct};
use rustix::io::{Errno, Result};

/// Since Linux 6.4; not in libc.
const SET_DISPATCH: c_uint = 0x4210;
const GET_DISPATCH: c_uint = 0x4211;

/// `struct ptrace_sud_config`: system calls that the thread has caught by a signal.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Dispatch {
    mode: u64,
    selector: u64,
    offset: u64,
    length: u64,
}

/// Why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the beginning or the end of a system call.
    Call,
    /// By `PTRACE_INTERRUPT`, or since its process is stopped.
    Asked,
    /// Before a signal is delivered.
    Signal(c_int),
    /// At another event that it is traced for.
    Other,
}

/// A thread of another process that we trace, stopped.
pub struct Thread {
    tid: libc::pid_t,
    /// It was the caller's before: it stays traced and stopped.
    held: bool,
    /// Signals that came in between, to be sent again. (`SIGSTOP` cannot be blocked.)
    signals: RefCell<Vec<c_int>>,
}

impl Thread {
    /// Stops a thread. Waits until it has.
    pub fn stop(tid: libc::pid_t) -> Result<Self> {
        let options = without_provenance_mut(libc::PTRACE_O_TRACESYSGOOD as usize);
        // SAFETY: changes nothing of ours.
        unsafe { request(libc::PTRACE_SEIZE, tid, 0, options)? };
        let thread = Thread { tid, held: false, signals: RefCell::default() };
        thread.ask()?;
        loop {
            match thread.wait()? {
                Stop::Asked => return Ok(thread),
                Stop::Signal(signal) => thread.go(libc::PTRACE_CONT, signal)?,
                Stop::Call | Stop::Other => thread.go(libc::PTRACE_CONT, 0)?,
            }
        }
    }

    /// One that the calling thread traces and that is stopped.
    pub fn held(tid: libc::pid_t) -> Self {
        Thread { tid, held: true, signals: RefCell::default() }
    }

    /// Its ID.
    pub fn tid(&self) -> libc::pid_t {
        self.tid
    }

    /// Lets it go on as if nothing had been.
    pub fn release(self) -> Result<()> {
        if !self.held {
            self.go(libc::PTRACE_DETACH, 0)?;
        }
        for signal in self.signals.take() {
            // SAFETY: a signal to a thread that had it already.
            unsafe { libc::syscall(libc::SYS_tkill, self.tid, signal) };
        }
        Ok(())
    }

    /// Goes on until it stops so. Signals that come in between are kept for later.
    pub fn go_until(&self, stop: Stop) -> Result<()> {
        let request = if stop == Stop::Call { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        loop {
            self.go(request, 0)?;
            match self.wait()? {
                seen if seen == stop => return Ok(()),
                // Calls that the caller's own options do not tell from signals.
                Stop::Signal(libc::SIGTRAP) if self.held && stop == Stop::Call => return Ok(()),
                Stop::Signal(signal) => self.signals.borrow_mut().push(signal),
                Stop::Call | Stop::Asked | Stop::Other => {}
            }
        }
    }

    /// Stops it before it does anything else, in a stop like the one at first.
    pub fn stop_again(&self) -> Result<()> {
        match self.ask() {
            Ok(()) => self.go_until(Stop::Asked),
            // Attached in the old way by the caller, which knows no such stop.
            Err(Errno::IO) if self.held => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Its registers.
    pub fn registers(&self) -> Result<user_regs_struct> {
        let mut registers = MaybeUninit::<user_regs_struct>::uninit();
        // SAFETY: the kernel fills in the registers, all of them.
        unsafe {
            request(libc::PTRACE_GETREGS, self.tid, 0, registers.as_mut_ptr().cast())?;
            Ok(registers.assume_init())
        }
    }

    /// Changes its registers.
    pub fn set_registers(&self, registers: &user_regs_struct) -> Result<()> {
        let registers = (&raw const *registers).cast_mut().cast();
        // SAFETY: the registers are read only.
        unsafe { request(libc::PTRACE_SETREGS, self.tid, 0, registers) }
    }

    /// A word of its program.
    pub fn word(&self, at: u64) -> Result<u64> {
        let mut word = 0u64;
        let place = (&raw mut word).cast::<c_void>();
        // SAFETY: the kernel's own call stores the word; libc's function would return it.
        let result =
            unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKTEXT, self.tid, at, place) };
        if result < 0 { Err(last()) } else { Ok(word) }
    }

    /// The signals that it blocks.
    pub fn signals(&self) -> Result<u64> {
        let mut signals = 0u64;
        // SAFETY: the kernel fills in as many bytes as are said.
        unsafe {
            let place = (&raw mut signals).cast();
            request(libc::PTRACE_GETSIGMASK, self.tid, size_of::<u64>(), place)?;
        }
        Ok(signals)
    }

    /// Changes the signals that it blocks.
    pub fn set_signals(&self, signals: u64) -> Result<()> {
        let place = (&raw const signals).cast_mut().cast();
        // SAFETY: the set is read only.
        unsafe { request(libc::PTRACE_SETSIGMASK, self.tid, size_of::<u64>(), place) }
    }

    /// Switches syscall user dispatch off; what it was, if it was on. (Before Linux 6.4 nobody
    /// can say.)
    pub fn without_dispatch(&self) -> Result<Option<Dispatch>> {
        let mut dispatch = Dispatch::default();
        let place = (&raw mut dispatch).cast();
        // SAFETY: the kernel fills in as many bytes as are said.
        match unsafe { request(GET_DISPATCH, self.tid, size_of::<Dispatch>(), place) } {
            Ok(()) if dispatch.mode != 0 => {
                self.set_dispatch(&Dispatch::default())?;
                Ok(Some(dispatch))
            }
            Ok(()) | Err(Errno::IO | Errno::INVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Switches it on again.
    pub fn set_dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        let place = (&raw const *dispatch).cast_mut().cast();
        // SAFETY: the description is read only.
        unsafe { request(SET_DISPATCH, self.tid, size_of::<Dispatch>(), place) }
    }

    fn ask(&self) -> Result<()> {
        // SAFETY: changes nothing of ours.
        unsafe { request(libc::PTRACE_INTERRUPT, self.tid, 0, null_mut()) }
    }

    fn go(&self, how: c_uint, signal: c_int) -> Result<()> {
        // SAFETY: changes nothing of ours.
        unsafe { request(how, self.tid, 0, without_provenance_mut(signal as usize)) }
    }

    /// Waits for its next stop.
    fn wait(&self) -> Result<Stop> {
        let mut status = 0;
        // SAFETY: the status is filled in.
        while unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL) } < 0 {
            match Errno::from_io_error(&Error::last_os_error()) {
                Some(Errno::INTR) => {}
                _ => return Err(Errno::SRCH),
            }
        }
        if !libc::WIFSTOPPED(status) {
            return Err(Errno::SRCH);
        }
        Ok(match (libc::WSTOPSIG(status), status >> 16) {
            (_, libc::PTRACE_EVENT_STOP) => Stop::Asked,
            (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Call,
            (signal, 0) => Stop::Signal(signal),
            _ => Stop::Other,
        })
    }
}

/// # Safety
/// `data` is as the request wants it.
unsafe fn request(what: c_uint, tid: libc::pid_t, addr: usize, data: *mut c_void) -> Result<()> {
    // SAFETY: as the caller says.
    match unsafe { libc::ptrace(what, tid, addr, data) } {
        0.. => Ok(()),
        _ => Err(last()),
    }
}

fn last() -> Errno {
    Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::SRCH)
}
