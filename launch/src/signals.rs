//! The signals that a launcher forwards to its programs.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use crate::Error;

/// The forwarded signals.
pub const FORWARDED: &[i32] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// The forwarded signals and SIGCHLD, blocked in this thread and its children, for synchronous
/// waiting.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals.
    ///
    /// # Errors
    /// The kernel refuses, for which there is no known reason.
    pub fn block() -> Result<Self, Error> {
        // SAFETY: the calls read and write masks on this stack only.
        unsafe {
            let mut set = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in FORWARDED.iter().chain(&[libc::SIGCHLD]) {
                libc::sigaddset(&raw mut set, *signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
                0 => Ok(Self { set, before }),
                error => {
                    let error = std::io::Error::from_raw_os_error(error);
                    Err(Error::new(format!("cannot block signals: {error}")))
                }
            }
        }
    }

    /// Gives the command's process the signal mask that this process had before.
    pub fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: pthread_sigmask is async-signal-safe, as a call between fork and exec must be.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
                Ok(())
            });
        }
    }

    /// Returns a signal that is pending and not ignored, and removes it from the pending set.
    pub fn pending(&self) -> Option<i32> {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the calls read and write structures on this stack only.
        unsafe {
            let signal =
                libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const none);
            let mut action: libc::sigaction = std::mem::zeroed();
            let known =
                signal > 0 && libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            (known && action.sa_sigaction != libc::SIG_IGN).then_some(signal)
        }
    }

    /// Waits for the next signal. Returns it, and true if the terminal sent it.
    pub fn next(&self) -> (i32, bool) {
        loop {
            if let Some(next) = self.wait(std::ptr::null()) {
                return next;
            }
        }
    }

    /// Like [`Signals::next`], but returns `None` if no signal arrives within `limit`.
    pub fn next_within(&self, limit: Duration) -> Option<(i32, bool)> {
        let (tv_sec, tv_nsec) = (limit.as_secs() as i64, i64::from(limit.subsec_nanos()));
        self.wait(&libc::timespec { tv_sec, tv_nsec })
    }

    fn wait(&self, limit: *const libc::timespec) -> Option<(i32, bool)> {
        // SAFETY: `info` lies on this stack; `limit` is null or points to a caller's timespec.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let signal = libc::sigtimedwait(&raw const self.set, &raw mut info, limit);
            (signal > 0).then_some((signal, info.si_code == libc::SI_KERNEL))
        }
    }
}
