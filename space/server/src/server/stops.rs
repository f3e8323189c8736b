//! Job control between stubs and their tasks. If a task stops, its stub stops itself, so that the
//! launcher sees it. If a stub is stopped by SIGSTOP, which it cannot catch, its task is to stop,
//! too: launchers and batch systems suspend a job in this way.
//!
//! The kernel reports such a stop to the stub's parent only, which is the launcher. So the server
//! reads the state of each stub at an interval. A stub that continues sends SIGCONT to its task. If
//! another process continues the task, the server continues the stub that has stopped for it. It
//! does so, too, if the task ends: the stub reports the end. A task that another process continues
//! while SIGSTOP has stopped its stub stops again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sync::clock;

use crate::processes::Processes;

/// Interval of the checks. One takes some microseconds for each stub.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// The same while a stub is to continue.
const RESUME_INTERVAL: Duration = Duration::from_millis(20);

/// The state of a stub, as far as the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// It has a message to stop itself, since its task has stopped.
    Told,
    /// Its task has continued or ended, and it has been sent SIGCONT. It may stop itself after
    /// that: the message about the stop was on its way, and SIGSTOP discards a SIGCONT that waits.
    Resuming,
    /// It was stopped, and its task was stopped for it.
    Stopped,
}

/// A stub and its task, by their PIDs.
#[derive(Debug)]
struct Pair {
    stub: i32,
    task: u32,
    state: State,
    /// Number of SIGCONT that the stub has sent.
    continues: u64,
}

/// The stubs of living tasks, by the keys of their connections.
#[derive(Debug)]
pub(super) struct Stops {
    pairs: BTreeMap<u64, Pair>,
    next_check: Instant,
}

impl Stops {
    pub(super) fn new() -> Self {
        Self { pairs: BTreeMap::new(), next_check: clock::now() }
    }

    /// Adds a stub and its task.
    pub(super) fn add(&mut self, key: u64, stub: i32, task: u32) {
        self.pairs.insert(key, Pair { stub, task, state: State::Running, continues: 0 });
    }

    /// Removes a stub that has disconnected.
    pub(super) fn remove(&mut self, key: u64) {
        self.pairs.remove(&key);
    }

    /// Records that the task of this stub has ended. If the stub has stopped for its task, it
    /// continues, to report the end.
    pub(super) fn task_ended(&mut self, processes: &impl Processes, key: u64) {
        match self.pairs.get(&key).map(|pair| pair.state) {
            Some(State::Told | State::Resuming) => self.resume(processes, key),
            _ => self.remove(key),
        }
    }

    /// Returns the time until the next check, if there are stubs.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let left = self.next_check.saturating_duration_since(clock::now());
        (!self.pairs.is_empty()).then_some(left)
    }

    /// Returns the tasks whose stubs have been stopped, if a check is due. They are to be stopped.
    /// Continues the stubs that have stopped for tasks that run again.
    pub(super) fn check(&mut self, processes: &impl Processes) -> Vec<u32> {
        let now = clock::now();
        if now < self.next_check {
            return Vec::new();
        }
        self.next_check = now + INTERVAL;
        for pair in self.pairs.values().filter(|pair| pair.state == State::Resuming) {
            self.next_check = now + RESUME_INTERVAL;
            if processes.is_stopped(pair.stub) {
                processes.signal(pair.stub, libc::SIGCONT, None);
            }
        }
        let running = self.pairs.values_mut().filter(|pair| pair.state == State::Running);
        let stopped = running.filter(|pair| processes.is_stopped(pair.stub)).map(|pair| {
            pair.state = State::Stopped;
            pair.task
        });
        stopped.collect()
    }

    /// Records that the task of this stub has stopped. Returns the number of SIGCONT that the stub
    /// has sent, if the stub must get a message. One that is stopped already needs none.
    pub(super) fn task_stopped(&mut self, processes: &impl Processes, key: u64) -> Option<u64> {
        let pair = self.pairs.get_mut(&key)?;
        if !processes.is_stopped(pair.task.cast_signed()) {
            return None; // it has continued since
        }
        let is_stopped = processes.is_stopped(pair.stub);
        pair.state = match pair.state {
            State::Stopped | State::Running if is_stopped => State::Stopped,
            _ => State::Told,
        };
        (!is_stopped).then_some(pair.continues)
    }

    /// Records that the task of this stub has continued.
    pub(super) fn task_continued(&mut self, processes: &impl Processes, key: u64) {
        let Some(pair) = self.pairs.get_mut(&key) else { return };
        match pair.state {
            State::Told => self.resume(processes, key),
            // The stub may be stopped again, or still. The next check stops the task then.
            State::Stopped => pair.state = State::Running,
            State::Running | State::Resuming => {}
        }
    }

    fn resume(&mut self, processes: &impl Processes, key: u64) {
        let Some(pair) = self.pairs.get_mut(&key) else { return };
        pair.state = State::Resuming;
        // The stub is connected, so the PID is its own.
        processes.signal(pair.stub, libc::SIGCONT, None);
        self.next_check = self.next_check.min(clock::now() + RESUME_INTERVAL);
    }

    /// Records that the stub has sent SIGCONT, as it does when it continues.
    pub(super) fn stub_continued(&mut self, key: u64) {
        if let Some(pair) = self.pairs.get_mut(&key) {
            pair.state = State::Running;
            pair.continues += 1;
        }
    }
}
