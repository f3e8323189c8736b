//! Keeps a program's signals its own while a library is loaded that means well: UCX's
//! constructors install handlers for fatal signals and for SIGHUP, and its threads would be
//! interrupted by the signals that the program waits for.

use std::mem::zeroed;
use std::ptr::{null, null_mut};

use libc::{SIG_SETMASK, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGSEGV, sigaction, sigset_t, stack_t};

/// The signals that UCX handles to report errors, and SIGHUP, at which it would start a debugger.
/// SIGHUP must end a program whose terminal is closed.
const TAKEN: [i32; 5] = [SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP];

/// Variables that request UCX's handlers.
const WANTED: [&str; 3] = ["UCX_HANDLE_ERRORS", "UCX_ERROR_SIGNALS", "UCX_DEBUG_SIGNO"];

/// Runs `work` so that threads which it starts take no signal, and handlers which it
/// installs do not stay, unless the user asks for them.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let wanted = WANTED.iter().any(|name| std::env::var_os(name).is_some());
    // SAFETY: `sigaction` structures are plain C data, for which zeros are valid. The calls get
    // valid pointers to them, and restore the actions that they returned before.
    unsafe {
        let mut all: sigset_t = zeroed();
        let mut mask: sigset_t = zeroed();
        let mut stack: stack_t = zeroed();
        let mut actions: [sigaction; TAKEN.len()] = zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(SIG_SETMASK, &all, &mut mask);
        libc::sigaltstack(null(), &mut stack);
        for (signal, action) in TAKEN.into_iter().zip(&mut actions) {
            libc::sigaction(signal, null(), action);
        }
        let result = work();
        if !wanted {
            for (signal, action) in TAKEN.into_iter().zip(&actions) {
                libc::sigaction(signal, action, null_mut());
            }
            libc::sigaltstack(&stack, null_mut());
        }
        libc::pthread_sigmask(SIG_SETMASK, &mask, null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_and_mask_are_as_before() {
        let handler = |signal| {
            // SAFETY: only asks.
            unsafe {
                let mut action: sigaction = zeroed();
                libc::sigaction(signal, null(), &mut action);
                action.sa_sigaction
            }
        };
        let before = TAKEN.map(handler);
        let inside = undisturbed(|| {
            for signal in TAKEN {
                // SAFETY: changes only the action of a signal that this test alone sends.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            // SAFETY: only asks.
            unsafe {
                let mut mask: sigset_t = zeroed();
                libc::pthread_sigmask(SIG_SETMASK, null(), &mut mask);
                libc::sigismember(&mask, libc::SIGTERM)
            }
        });
        assert_eq!(inside, 1, "a thread started there would take signals");
        assert_eq!(TAKEN.map(handler), before);
    }
}
