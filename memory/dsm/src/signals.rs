//! Threads that take no signals for a while. A signal handler may touch a shared page, and the
//! thread that would provide the page must not be stopped there.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;

use libc::{SIG_BLOCK, SIG_SETMASK, pthread_sigmask, sigset_t};

/// Signals that a thread causes itself. If they were blocked, they would end the process.
const OWN: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// The signals of its thread are blocked until it is dropped.
pub struct BlockedSignals {
    before: sigset_t,
    /// A mask belongs to its thread.
    _here: std::marker::PhantomData<*mut ()>,
}

impl BlockedSignals {
    /// Blocks the signals of a thread that later continues to run the program: all but those that
    /// it causes itself.
    pub fn of_program() -> Self {
        Self::all_but(&OWN)
    }

    /// Blocks all signals of a thread that does not run the program, and of threads that it starts.
    pub fn all() -> Self {
        Self::all_but(&[])
    }

    fn all_but(taken: &[i32]) -> Self {
        // SAFETY: both masks are local. sigfillset and pthread_sigmask initialize them before they
        // are read.
        let before = unsafe {
            let mut mask = zeroed();
            libc::sigfillset(&mut mask);
            for &signal in taken {
                libc::sigdelset(&mut mask, signal);
            }
            let mut before = MaybeUninit::uninit();
            pthread_sigmask(SIG_BLOCK, &mask, before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, _here: std::marker::PhantomData }
    }

    /// Returns the previous mask, for calls that wait and take signals meanwhile.
    pub fn before(&self) -> &sigset_t {
        &self.before
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that pthread_sigmask has stored.
        unsafe { pthread_sigmask(SIG_SETMASK, &self.before, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: pthread_sigmask with a null set stores the present mask in a local variable.
        unsafe {
            let mut mask = zeroed();
            pthread_sigmask(SIG_BLOCK, std::ptr::null(), &mut mask);
            libc::sigismember(&mask, signal) == 1
        }
    }

    #[test]
    fn signals_are_blocked_until_the_value_is_dropped() {
        {
            let _blocked = BlockedSignals::of_program();
            assert!(is_blocked(libc::SIGUSR1) && !is_blocked(libc::SIGSEGV));
            let all = BlockedSignals::all();
            assert!(is_blocked(libc::SIGSEGV));
            drop(all);
            assert!(is_blocked(libc::SIGUSR1) && !is_blocked(libc::SIGSEGV));
        }
        assert!(!is_blocked(libc::SIGUSR1));
    }
}
