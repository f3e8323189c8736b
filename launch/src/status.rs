//! Describes how a program ended: by a wait status, an exit status or a signal.

/// Returns the exit status that a shell shows for a wait status: 128 + number for a signal.
pub fn shell_status(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// Returns the predicate of a sentence about a process with this wait status.
pub fn describe(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("was killed by signal {}", libc::WTERMSIG(status))
    } else {
        format!("exited with status {}", libc::WEXITSTATUS(status))
    }
}

/// Ends this process in the way that the wait status describes. Returns the exit status, or sends
/// this process the same signal, without a second core file beside the program's.
pub fn end_as(status: i32) -> i32 {
    if !libc::WIFSIGNALED(status) {
        return libc::WEXITSTATUS(status);
    }
    let signal = libc::WTERMSIG(status);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls change only this process's signal state and limits, and `set` lies on this
    // stack.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::kill(libc::getpid(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
    128 + signal
}
