//! Lets signals end a stub that waits for its server.
//!
//! A stub blocks all signals, since they are for its task. Until the task runs, they stay pending.
//! But a server that is stopped starts no task, and a stub that holds the job's lock makes others
//! wait. So a thread watches for the signals by which a user or a launcher ends a process. If the
//! stub still waits some time after one of them, the stub ends by it, as its program would.

use std::os::fd::{FromRawFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::Failure;

/// Signals that end a waiting stub.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// Time that the server has to start the task, which then gets the signal.
const GRACE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Stack of the thread, in bytes.
const STACK_SIZE: usize = 64 << 10;

/// A wait for a server, which signals can end. The wait is over when this is dropped; the signals
/// stay pending.
pub struct Interruptible {
    ended: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Interruptible {
    /// Begins the wait. The caller has blocked all signals; `sigmask` is the mask with which the
    /// process was started.
    pub fn begin(job: &str, sigmask: u64) -> Result<Self, Failure> {
        let failed = |e: Errno| Failure::ours(format!("eventfd: {e}"));
        let ended = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?;
        let seen = rustix::io::fcntl_dupfd_cloexec(&ended, 0).map_err(failed)?;
        // The program would not notice blocked signals. The kernel keeps ignored signals pending
        // while they are blocked.
        let ends = |&&signal: &&i32| sigmask >> (signal - 1) & 1 == 0 && !is_ignored(signal);
        let set = ENDING.iter().filter(ends).fold(0u64, |set, signal| set | 1 << (signal - 1));
        // SAFETY: `set` is a u64, and the kernel's sigset has eight bytes.
        let signals =
            unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const set, 8, libc::SFD_CLOEXEC) };
        if signals < 0 {
            return Err(Failure::ours(format!("signalfd: {}", std::io::Error::last_os_error())));
        }
        // SAFETY: signalfd4 returned this new descriptor, so it has no other owner.
        let signals = unsafe { OwnedFd::from_raw_fd(signals as i32) };
        let job = job.to_owned();
        let thread = std::thread::Builder::new()
            .stack_size(STACK_SIZE)
            .spawn(move || watch(&job, set, &signals, &seen));
        // A process whose children get another PID namespace cannot have threads (unshare --pid).
        // Its wait ends by SIGKILL only.
        Ok(Self { ended, thread: thread.ok() })
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.ended, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Ends the process if one of the signals is pending and the wait does not end soon.
fn watch(job: &str, set: u64, signals: &OwnedFd, ended: &OwnedFd) {
    let mut fds = [PollFd::new(signals, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
    // No EINTR: all signals are blocked.
    if poll(&mut fds, None).is_err() || !fds[1].revents().is_empty() {
        return;
    }
    let mut fds = [PollFd::new(ended, PollFlags::IN)];
    if !matches!(poll(&mut fds, Some(&GRACE)), Ok(0)) {
        return;
    }
    proc::error_line!(
        "nagaya: a signal ended the wait for the node server of job {job}, which does not answer \
         (is it stopped?)"
    );
    // SAFETY: `set` is a u64, and the kernel's sigset has eight bytes. The pending signal has its
    // default action, which ends the process.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const set, 0, 8);
    }
}

/// Returns true if this process ignores the signal.
fn is_ignored(signal: i32) -> bool {
    let mut action = [0u64; 4];
    // SAFETY: the kernel's sigaction has four 64-bit words, as `action` has.
    let read = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0, action.as_mut_ptr(), 8) };
    read == 0 && action[0] == libc::SIG_IGN as u64
}
