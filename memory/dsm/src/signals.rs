//! Threads that take no signals for a while: a signal's handler may touch a page, and who would
//! have to provide that must not be who is stopped there.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;

use libc::{SIG_BLOCK, SIG_SETMASK, pthread_sigmask, sigset_t};

/// Signals that a thread has from what it does itself. Blocked or not, they would end it.
const OWN: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// As long as it lives, its thread takes no signals from others.
pub struct Deaf {
    before: sigset_t,
    /// It belongs to its thread.
    _here: std::marker::PhantomData<*mut ()>,
}

impl Deaf {
    /// For a thread that goes on to run the program.
    pub fn to_others() -> Self {
        Self::to(&OWN)
    }

    /// For a thread that never does, and those that it starts.
    pub fn to_all() -> Self {
        Self::to(&[])
    }

    fn to(all_but: &[i32]) -> Self {
        // SAFETY: plain calls on masks of ours, which are written before they are read.
        let before = unsafe {
            let mut mask = zeroed();
            libc::sigfillset(&mut mask);
            for &signal in all_but {
                libc::sigdelset(&mut mask, signal);
            }
            let mut before = MaybeUninit::uninit();
            pthread_sigmask(SIG_BLOCK, &mask, before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, _here: std::marker::PhantomData }
    }

    /// Which signals the thread took before: for calls that wait, and take them meanwhile.
    pub fn before(&self) -> &sigset_t {
        &self.before
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // SAFETY: a plain call, on a mask that was read before.
        unsafe { pthread_sigmask(SIG_SETMASK, &self.before, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: only asks.
        unsafe {
            let mut mask = zeroed();
            pthread_sigmask(SIG_BLOCK, std::ptr::null(), &mut mask);
            libc::sigismember(&mask, signal) == 1
        }
    }

    #[test]
    fn others_signals_are_not_taken_until_the_end() {
        {
            let _deaf = Deaf::to_others();
            assert!(is_blocked(libc::SIGUSR1) && !is_blocked(libc::SIGSEGV));
            let deaf = Deaf::to_all();
            assert!(is_blocked(libc::SIGSEGV));
            drop(deaf);
            assert!(is_blocked(libc::SIGUSR1) && !is_blocked(libc::SIGSEGV));
        }
        assert!(!is_blocked(libc::SIGUSR1));
    }
}
