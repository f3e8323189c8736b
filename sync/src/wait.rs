//! Waiting for an event that another thread or process causes.
//!
//! [`policy`] decides whether a waiter spins, yields or sleeps; it is pure. [`WaitPolicy`] drives
//! it by the clock: [`poll`](WaitPolicy::poll) looks for a word in memory. Callers with a loop of
//! their own, which wait for a descriptor, call [`must_sleep`](WaitPolicy::must_sleep) between two
//! looks. [`wake`] measures the time of a wake-up on this machine, [`quota`] is the limit of a
//! control group, and [`settings`] are the user's.
//!
//! For events that no wake-up announces, [`Backoff`] naps instead of sleeping. Besides, there are
//! naps of growing length ([`Naps`]) for a waiter that has other work.

pub mod policy;
pub mod quota;
pub mod settings;
pub mod wake;

use std::time::{Duration, Instant};

pub use policy::DOUBT;
use policy::{Policy, Step};

/// Number of polls between two looks at the clock, which takes as long as some polls. A poll takes
/// 10 to 50 ns (`pause`).
const POLLS: u32 = 16;

/// The wait policy of one waiter, for one kind of wait: it learns how long to spin.
#[derive(Debug, Clone, Default)]
pub struct WaitPolicy {
    /// None until a first wait has taken a while.
    policy: Option<Box<Policy>>,
    /// At the last step, other threads wanted the processor.
    is_crowded: bool,
    /// See [`for_nodes`](Self::for_nodes).
    is_for_nodes: bool,
    /// See [`for_drivers`](Self::for_drivers).
    spin_min: Duration,
}

impl WaitPolicy {
    /// Returns the policy of an agent, whose answers come from other nodes' agents. Each of their
    /// sleeps delays two nodes: see [`wake::wake_time_of_node`].
    pub fn for_nodes() -> Self {
        Self { is_for_nodes: true, ..Self::default() }
    }

    /// Returns the policy of a waiter that does an agent's work for other nodes meanwhile. Before
    /// it sleeps, it spins for at least this time, unless others want the processor.
    pub fn for_drivers(spin_min: Duration) -> Self {
        Self { is_for_nodes: true, spin_min, ..Self::default() }
    }

    /// Polls until `found` returns a value, or the waiter must sleep. After the sleep, it calls
    /// this again.
    #[inline]
    pub fn poll<T>(&mut self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            // Further polls would take time from the threads that may cause the event.
            let polls = if self.is_crowded { 1 } else { POLLS };
            if let Some(thing) = poll_times(polls, &mut found) {
                self.found();
                return Some(thing);
            }
            if self.must_sleep() {
                return None;
            }
        }
    }

    /// Takes a step of a wait whose event has not come: returns true if the waiter must sleep, or
    /// false after a yield or at once.
    #[cold]
    pub fn must_sleep(&mut self) -> bool {
        let now = Instant::now();
        let mode = wake::mode(now);
        let wake = if self.is_for_nodes { wake::wake_time_of_node } else { wake::wake_time };
        let new = || Box::new(Policy::new(mode, wake()).spin_at_least(self.spin_min));
        let policy = self.policy.get_or_insert_with(new);
        policy.set_mode(mode);
        let step = policy.step(now);
        if step == Step::Yield {
            policy.yielded(wake::timed_yield());
        }
        self.is_crowded = policy.is_crowded();
        step == Step::Sleep
    }

    /// Returns true if the waiter looks again at once, if it may, and false if it must sleep.
    pub fn looks_again(&mut self, may: bool) -> bool {
        if !may {
            // The time of the sleep would count as that of a spin.
            self.give_up();
        }
        let looks = may && !self.must_sleep();
        if looks {
            std::hint::spin_loop();
        }
        looks
    }

    /// Ends a wait whose event has come.
    #[inline]
    pub fn found(&mut self) {
        if let Some(policy) = &mut self.policy {
            if policy.is_waiting() {
                policy.found(Instant::now());
            } else {
                policy.found_at_once();
            }
        }
    }

    /// Ends a wait whose event is no longer waited for.
    pub fn give_up(&mut self) {
        if let Some(policy) = &mut self.policy {
            policy.give_up();
        }
    }
}

/// Polls until `found` returns a value, or `time` has passed. This is for pauses whose length does
/// not depend on the waiter. A wait for an event asks a [`WaitPolicy`].
pub fn poll_for<T>(time: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        if let Some(thing) = poll_times(POLLS, &mut found) {
            return Some(thing);
        }
        if begin.elapsed() >= time {
            return None;
        }
    }
}

/// Polls until `found` returns a value, at most `times` times.
#[inline]
pub fn poll_times<T>(times: u32, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..times {
        if let Some(thing) = found() {
            return Some(thing);
        }
        std::hint::spin_loop();
    }
    None
}

/// Returns the earlier of `until` and `at_most` from now.
pub fn earlier(until: Option<Instant>, at_most: Duration) -> Instant {
    let end = Instant::now() + at_most;
    until.map_or(end, |until| until.min(end))
}

/// The pauses of a wait whose event no wake-up announces: for a lock that is held for some
/// instructions, or for progress that the waiter's own polls make. It spins, yields, and naps
/// instead of sleeping.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    policy: WaitPolicy,
    polls: u32,
    naps: Option<Naps>,
}

/// Longest nap of a [`Backoff`]. The event may come at the begin of a nap.
const NAP_MAX: Duration = Duration::from_millis(1);

impl Backoff {
    /// Pauses between two polls. The first nap takes as long as a wake-up, each further one twice
    /// as long, so a wait lasts at most twice as long as without naps.
    pub fn pause(&mut self) {
        self.polls = self.polls.wrapping_add(1);
        if self.naps.is_none() && !self.polls.is_multiple_of(POLLS) {
            return std::hint::spin_loop();
        }
        if self.policy.must_sleep() {
            let naps = self.naps.get_or_insert_with(|| Naps::new(wake::wake_time(), NAP_MAX));
            std::thread::sleep(naps.next_nap());
        }
    }
}

/// Naps of growing length, for a waiter that has other work in between.
#[derive(Debug, Clone)]
pub struct Naps {
    next: Duration,
    longest: Duration,
}

impl Naps {
    /// Returns naps from `first` to `longest`, each twice as long as the one before.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first.min(longest), longest }
    }

    /// Returns the length of the next nap.
    pub fn next_nap(&mut self) -> Duration {
        let nap = self.next;
        self.next = (nap * 2).min(self.longest);
        nap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_without_a_wake_up_leaves_the_processor_to_others() {
        let spent = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let (begin, before) = (Instant::now(), spent());
        let mut backoff = Backoff::default();
        while begin.elapsed() < Duration::from_millis(100) {
            backoff.pause();
        }
        assert!(spent() - before < begin.elapsed() / 2, "{:?}", spent() - before);
    }

    #[test]
    fn naps_grow_to_the_longest() {
        let micros = Duration::from_micros;
        let mut naps = Naps::new(micros(100), micros(300));
        assert_eq!([0; 4].map(|_| naps.next_nap().as_micros()), [100, 200, 300, 300]);
    }
}
