//! ptrace(2): a stopped thread, its registers and signals, and how it resumes.

use std::cell::RefCell;
use std::io::Error;
use std::mem::{MaybeUninit, size_of};
use std::ptr::{null_mut, without_provenance_mut};

use libc::{c_int, c_uint, c_void, user_regs_struct};
use rustix::io::{Errno, Result};

/// Requests of ptrace since Linux 6.4, which libc lacks.
const SET_DISPATCH: c_uint = 0x4210;
const GET_DISPATCH: c_uint = 0x4211;

/// `struct ptrace_sud_config`: syscall user dispatch of the thread.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Dispatch {
    mode: u64,
    selector: u64,
    offset: u64,
    length: u64,
}

/// The reason why a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The entry or exit of a system call.
    Call,
    /// `PTRACE_INTERRUPT`, or a stop of the whole process.
    Interrupted,
    /// A signal that is about to be delivered.
    Signal(c_int),
    /// Another traced event.
    Other,
}

/// A traced and stopped thread of another process.
pub struct Thread {
    tid: libc::pid_t,
    /// The caller traced it before, so it remains traced and stopped.
    held: bool,
    /// Signals that arrived in between, to be sent again. (`SIGSTOP` cannot be blocked.)
    signals: RefCell<Vec<c_int>>,
}

impl Thread {
    /// Stops a thread, and waits until it has stopped.
    pub fn stop(tid: libc::pid_t) -> Result<Self> {
        let options = without_provenance_mut(libc::PTRACE_O_TRACESYSGOOD as usize);
        // SAFETY: `options` is a number, as PTRACE_SEIZE wants it.
        unsafe { request(libc::PTRACE_SEIZE, tid, 0, options)? };
        let thread = Thread { tid, held: false, signals: RefCell::default() };
        thread.interrupt()?;
        loop {
            match thread.wait()? {
                Stop::Interrupted => return Ok(thread),
                Stop::Signal(signal) => thread.go(libc::PTRACE_CONT, signal)?,
                Stop::Call | Stop::Other => thread.go(libc::PTRACE_CONT, 0)?,
            }
        }
    }

    /// Returns a thread that the calling thread already traces and has stopped.
    pub fn held(tid: libc::pid_t) -> Self {
        Thread { tid, held: true, signals: RefCell::default() }
    }

    /// Returns its ID.
    pub fn tid(&self) -> libc::pid_t {
        self.tid
    }

    /// Resumes it with its earlier state, and ends tracing.
    pub fn release(self) -> Result<()> {
        if !self.held {
            self.go(libc::PTRACE_DETACH, 0)?;
        }
        for signal in self.signals.take() {
            // SAFETY: tkill has no arguments in memory.
            unsafe { libc::syscall(libc::SYS_tkill, self.tid, signal) };
        }
        Ok(())
    }

    /// Resumes the thread until it stops for this reason. Stores signals that arrive in between.
    pub fn go_until(&self, stop: Stop) -> Result<()> {
        let request = if stop == Stop::Call { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        loop {
            self.go(request, 0)?;
            match self.wait()? {
                seen if seen == stop => return Ok(()),
                // Without PTRACE_O_TRACESYSGOOD, a system call looks like this signal.
                Stop::Signal(libc::SIGTRAP) if self.held && stop == Stop::Call => return Ok(()),
                Stop::Signal(signal) => self.signals.borrow_mut().push(signal),
                Stop::Call | Stop::Interrupted | Stop::Other => {}
            }
        }
    }

    /// Stops it again before it executes anything, by a stop like the first one.
    pub fn stop_again(&self) -> Result<()> {
        match self.interrupt() {
            Ok(()) => self.go_until(Stop::Interrupted),
            // The caller used PTRACE_ATTACH, which has no such stop.
            Err(Errno::IO) if self.held => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns its registers.
    pub fn registers(&self) -> Result<user_regs_struct> {
        let mut registers = MaybeUninit::<user_regs_struct>::uninit();
        // SAFETY: `registers` has room for a `user_regs_struct`, which the kernel fills completely.
        unsafe {
            request(libc::PTRACE_GETREGS, self.tid, 0, registers.as_mut_ptr().cast())?;
            Ok(registers.assume_init())
        }
    }

    /// Changes its registers.
    pub fn set_registers(&self, registers: &user_regs_struct) -> Result<()> {
        let registers = (&raw const *registers).cast_mut().cast();
        // SAFETY: PTRACE_SETREGS only reads the registers.
        unsafe { request(libc::PTRACE_SETREGS, self.tid, 0, registers) }
    }

    /// Reads a word of its program.
    pub fn word(&self, at: u64) -> Result<u64> {
        let mut word = 0u64;
        let data = (&raw mut word).cast::<c_void>();
        // SAFETY: the system call stores a word at `data`. (libc's function would return it.)
        let result =
            unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKTEXT, self.tid, at, data) };
        if result < 0 { Err(last()) } else { Ok(word) }
    }

    /// Returns the signals that it blocks.
    pub fn signals(&self) -> Result<u64> {
        let mut signals = 0u64;
        // SAFETY: the kernel writes at most the passed number of bytes, which is the size of the
        // target.
        unsafe {
            let data = (&raw mut signals).cast();
            request(libc::PTRACE_GETSIGMASK, self.tid, size_of::<u64>(), data)?;
        }
        Ok(signals)
    }

    /// Changes the signals that it blocks.
    pub fn set_signals(&self, signals: u64) -> Result<()> {
        let data = (&raw const signals).cast_mut().cast();
        // SAFETY: PTRACE_SETSIGMASK only reads the 8 bytes of the set.
        unsafe { request(libc::PTRACE_SETSIGMASK, self.tid, size_of::<u64>(), data) }
    }

    /// Switches syscall user dispatch off. Returns its configuration if it was on. (Before Linux
    /// 6.4, that is not known.)
    pub fn without_dispatch(&self) -> Result<Option<Dispatch>> {
        let mut dispatch = Dispatch::default();
        let data = (&raw mut dispatch).cast();
        // SAFETY: the kernel writes at most the passed number of bytes, which is the size of the
        // target.
        match unsafe { request(GET_DISPATCH, self.tid, size_of::<Dispatch>(), data) } {
            Ok(()) if dispatch.mode != 0 => {
                self.set_dispatch(&Dispatch::default())?;
                Ok(Some(dispatch))
            }
            Ok(()) | Err(Errno::IO | Errno::INVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Configures syscall user dispatch.
    pub fn set_dispatch(&self, dispatch: &Dispatch) -> Result<()> {
        let data = (&raw const *dispatch).cast_mut().cast();
        // SAFETY: the request only reads the configuration, whose size is passed.
        unsafe { request(SET_DISPATCH, self.tid, size_of::<Dispatch>(), data) }
    }

    fn interrupt(&self) -> Result<()> {
        // SAFETY: PTRACE_INTERRUPT has no arguments in memory.
        unsafe { request(libc::PTRACE_INTERRUPT, self.tid, 0, null_mut()) }
    }

    fn go(&self, how: c_uint, signal: c_int) -> Result<()> {
        // SAFETY: the signal is a number, as these requests want it.
        unsafe { request(how, self.tid, 0, without_provenance_mut(signal as usize)) }
    }

    /// Waits for its next stop.
    fn wait(&self) -> Result<Stop> {
        let mut status = 0;
        // SAFETY: waitpid writes `status` only.
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
            (_, libc::PTRACE_EVENT_STOP) => Stop::Interrupted,
            (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Call,
            (signal, 0) => Stop::Signal(signal),
            _ => Stop::Other,
        })
    }
}

/// Makes a ptrace request.
///
/// # Safety
/// `data` points to what the request reads or writes.
unsafe fn request(what: c_uint, tid: libc::pid_t, addr: usize, data: *mut c_void) -> Result<()> {
    // SAFETY: the caller guarantees valid `data` for this request.
    match unsafe { libc::ptrace(what, tid, addr, data) } {
        0.. => Ok(()),
        _ => Err(last()),
    }
}

fn last() -> Errno {
    Errno::from_io_error(&Error::last_os_error()).unwrap_or(Errno::SRCH)
}
