//! Threads that call more than they compute move to the origin (`--place auto`). Each of their
//! calls is made there, with memory that has to move there, so the processor of another node has
//! little use.

use std::collections::HashMap;
use std::fs;

/// Calls after which a thread is looked at.
const CALLS: u32 = 16;
/// It goes, if it has computed for less than this part of the time in which it could.
const PART: u64 = 8;

/// A thread of this node, which is not the origin, since it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Caller {
    calls: u32,
    since: u64,
    spent: Spent,
}

/// Time that a thread has spent on a processor, and waiting for one, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub running: u64,
    pub waiting: u64,
}

/// All that have called.
#[derive(Debug, Default)]
pub(super) struct Callers(HashMap<u32, Caller>);

impl Callers {
    /// Records a call of a thread with this time. Returns true if the thread should move to the
    /// origin.
    pub fn calls(&mut self, thread: u32, now: u64, spent: impl Fn() -> Option<Spent>) -> bool {
        if let Some(caller) = self.0.get_mut(&thread) {
            caller.calls += 1;
            if caller.calls <= CALLS {
                return false;
            }
        }
        let Some(spent) = spent() else { return false };
        let Some(before) = self.0.insert(thread, Caller { calls: 1, since: now, spent }) else {
            return false;
        };
        let running = spent.running.saturating_sub(before.spent.running);
        let waiting = spent.waiting.saturating_sub(before.spent.waiting);
        PART * running < (now - before.since).saturating_sub(waiting)
    }

    /// A thread has come, or gone.
    pub fn forget(&mut self, thread: u32) {
        self.0.remove(&thread);
    }
}

/// Of a thread, as proc_pid_schedstat(5) has it, if /proc shows it.
pub(super) fn spent(tid: i32) -> Option<Spent> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let (Some(Ok(running)), Some(Ok(waiting))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    Some(Spent { running, waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of moves in 1,000 calls of a microsecond each, with this time spent.
    fn goes_home(running: u64, waiting: u64) -> usize {
        let mut callers = Callers::default();
        let goes = |time: &u64| {
            let spent = Spent { running: running * time, waiting: waiting * time };
            callers.calls(1, 1000 * time, || Some(spent))
        };
        (0..1000).filter(goes).count()
    }

    #[test]
    fn threads_that_mostly_call_go_to_the_origin() {
        assert_eq!(goes_home(1000, 0), 0);
        assert_eq!(goes_home(130, 0), 0);
        assert_eq!(goes_home(120, 0), 999 / CALLS as usize);
        assert_eq!(goes_home(120, 100), 0);
        assert_eq!(goes_home(0, 1000), 0);
    }

    #[test]
    fn new_and_unreadable_processes_are_not_reported() {
        let mut callers = Callers::default();
        let mut calls =
            |spent: Option<Spent>| (0..20).filter(|&it| callers.calls(1, it, || spent)).count();
        assert_eq!(calls(None), 0);
        assert_eq!(calls(Some(Spent::default())), 1);
        callers.forget(1);
        assert!(!callers.calls(1, 1000, || Some(Spent::default())));
    }

    #[test]
    fn time_is_that_of_the_thread() {
        // SAFETY: asks.
        let tid = unsafe { libc::gettid() };
        let Some(before) = spent(tid) else { return };
        while spent(tid).expect("it was shown").running < before.running + 1_000_000 {
            std::hint::spin_loop();
        }
        assert_eq!(spent(i32::MAX), None);
    }
}
