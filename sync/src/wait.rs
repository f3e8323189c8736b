//! The wait policy: how long a waiter spins before it sleeps.
//!
//! A sleep costs no processor time, but the wake-up takes some microseconds, and tens of
//! microseconds on idle processors. A spin occupies a processor that other threads may need. So
//! the policy adapts. It spins longer if spins succeed, as between two processes with a core each.
//! It hardly spins if they fail, as with more processes than cores.
//!
//! [`WaitPolicy`] has two budgets. Waits for a word in memory or for a network interface count
//! polls, which take nanoseconds. Waits for a descriptor measure time. Two fixed policies exist
//! besides: yields ([`poll_and_yield`]) and naps of growing length ([`Naps`]).

use std::time::{Duration, Instant};

/// Longest sleep before a waiter checks that a late peer is alive.
pub const DOUBT: Duration = Duration::from_millis(20);

/// Longest time that a wait for a descriptor spins. It exceeds the time of a wake-up, which takes
/// 50 to 75 µs on idle processors of a virtual machine. With less, two peers that have both slept
/// once would never again spin long enough.
pub const SPIN_MAX: Duration = Duration::from_micros(100);
/// Number of waits that sleep without a spin after a spin has failed.
const SLEEPS: u32 = 16;

/// Limits of a budget of polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    /// Fewest polls before a sleep, most polls, and polls of the first wait.
    min: u32,
    max: u32,
    first: u32,
}

/// Limits for a word in memory. A poll takes 10 to 50 ns (`pause`).
const WORD: Limits = Limits { min: 16, max: 4096, first: 16 * 8 };
/// Limits for a network interface. A poll takes some 50 ns.
const NETWORK: Limits = Limits { min: 64, max: 2048, first: 64 };

/// Number of waits from one trial to the next. A trial polls longer than the learned budget, in
/// case the peers have a core again.
const TRIAL_INTERVAL: u32 = 32;
/// Number of polls of a trial.
const TRIAL_POLLS: u32 = 512;

/// The adaptive wait policy of one waiter: it learns how long to spin.
#[derive(Debug, Clone)]
pub struct WaitPolicy {
    limits: Limits,
    /// Budget of polls of the next wait.
    polls: u32,
    waits: u32,
    /// Number of coming waits that sleep without a spin.
    sleeps: u32,
}

impl Default for WaitPolicy {
    /// Returns the policy for words in memory and for descriptors.
    fn default() -> Self {
        Self { limits: WORD, polls: WORD.first, waits: 0, sleeps: 0 }
    }
}

impl WaitPolicy {
    /// Returns the policy for polls of a network interface by [`budget`](Self::budget).
    pub fn for_network() -> Self {
        Self { limits: NETWORK, polls: NETWORK.first, waits: 0, sleeps: 0 }
    }

    /// Polls until `found` returns a value, or the budget of polls is spent. A first poll that
    /// succeeds does not change the budget, since the waiter may just have been woken.
    #[inline]
    pub fn poll<T>(&mut self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(thing) = found() {
            return Some(thing);
        }
        self.waits = self.waits.wrapping_add(1);
        let polls = match self.waits % TRIAL_INTERVAL {
            0 => self.polls.max(TRIAL_POLLS),
            _ => self.polls,
        };
        for poll in 1..=polls {
            std::hint::spin_loop();
            if let Some(thing) = found() {
                self.polls = (self.polls.max(poll) * 2).min(self.limits.max);
                return Some(thing);
            }
        }
        self.polls = (self.polls / 2).max(self.limits.min);
        None
    }

    /// Returns the number of polls before a sleep, for a caller with its own loop. The caller must
    /// report the outcome by [`record`](Self::record).
    #[inline]
    pub fn budget(&self) -> u32 {
        self.polls
    }

    /// Records the outcome of a wait: `enough` is false if the wait had to sleep.
    #[inline]
    pub fn record(&mut self, enough: bool) {
        let polls = if enough { self.polls * 2 } else { self.polls / 2 };
        self.polls = polls.clamp(self.limits.min, self.limits.max);
    }

    /// Returns true if a wait that has lasted `waited` must poll once more.
    pub fn spins(&self, waited: Duration) -> bool {
        self.sleeps == 0 && waited < SPIN_MAX
    }

    /// Records the end of a wait for a descriptor that has lasted `waited`.
    pub fn learn(&mut self, succeeded: bool, waited: Duration) {
        self.sleeps = match self.sleeps.checked_sub(1) {
            Some(left) => left,
            None if succeeded && waited < SPIN_MAX => 0,
            None => SLEEPS,
        };
    }
}

/// Polls until `found` returns a value, or `time` has passed.
pub fn poll_for<T>(time: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        if let Some(thing) = poll_times(WORD.min, &mut found) {
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

/// Yields the processor and polls, at most `times` times. With more waiters than processors, the
/// peer often needs this processor. A sleep with its wake-up would cost more than a yield.
pub fn poll_and_yield<T>(times: u32, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..times {
        rustix::thread::sched_yield();
        if let Some(thing) = found() {
            return Some(thing);
        }
    }
    None
}

/// Returns the earlier of `until` and `at_most` from now.
pub fn earlier(until: Option<Instant>, at_most: Duration) -> Instant {
    let end = Instant::now() + at_most;
    until.map_or(end, |until| until.min(end))
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

    /// Counts the polls of a wait whose event does not come.
    fn in_vain(policy: &mut WaitPolicy) -> u32 {
        let mut polls = 0;
        let found = policy.poll(|| {
            polls += 1;
            None::<()>
        });
        assert_eq!(found, None);
        polls - 1
    }

    /// Waits for an event that comes at the given poll.
    fn until(policy: &mut WaitPolicy, poll: u32) -> bool {
        let mut polls = 0;
        let found = policy.poll(|| {
            polls += 1;
            (polls > poll).then_some(())
        });
        found.is_some()
    }

    /// A process that shares its core polls without success, sleeps, is woken, and succeeds at
    /// once.
    #[test]
    fn success_at_the_first_poll_teaches_nothing() {
        let mut policy = WaitPolicy { polls: WORD.max, ..WaitPolicy::default() };
        let polls: u32 = (0..1000)
            .map(|_| {
                let polls = in_vain(&mut policy);
                assert!(until(&mut policy, 0));
                polls
            })
            .sum();
        assert!(polls < 2 * WORD.max + 1000 * (WORD.min + TRIAL_POLLS / TRIAL_INTERVAL), "{polls}");
    }

    #[test]
    fn success_while_polling_makes_the_budget_grow() {
        let mut policy = WaitPolicy::default();
        for _ in 0..10 {
            assert!(until(&mut policy, 3));
        }
        assert!(until(&mut policy, WORD.max - 1));
        assert!(!until(&mut policy, WORD.max + 1));
    }

    /// The peers have a core again, and the event takes longer than the fewest polls.
    #[test]
    fn a_trial_finds_that_polling_pays_again() {
        let mut policy = WaitPolicy::default();
        for _ in 0..100 {
            in_vain(&mut policy);
        }
        let missed = (0..100).filter(|_| !until(&mut policy, 10 * WORD.min)).count();
        assert!(missed < TRIAL_INTERVAL as usize, "{missed}");
    }

    #[test]
    fn the_budget_of_a_callers_own_loop_stays_within_its_limits() {
        let mut policy = WaitPolicy::for_network();
        (0..20).for_each(|_| policy.record(true));
        assert_eq!(policy.budget(), NETWORK.max);
        (0..20).for_each(|_| policy.record(false));
        assert_eq!(policy.budget(), NETWORK.min);
    }

    #[test]
    fn a_spin_in_vain_makes_the_next_waits_sleep_at_once() {
        let mut policy = WaitPolicy::default();
        let soon = SPIN_MAX / 2;
        policy.learn(true, soon);
        assert!(policy.spins(soon) && !policy.spins(SPIN_MAX));
        policy.learn(false, SPIN_MAX * 2);
        for _ in 0..SLEEPS {
            assert!(!policy.spins(Duration::ZERO));
            policy.learn(true, soon);
        }
        assert!(policy.spins(Duration::ZERO));
    }

    #[test]
    fn naps_grow_to_the_longest() {
        let micros = Duration::from_micros;
        let mut naps = Naps::new(micros(100), micros(300));
        assert_eq!([0; 4].map(|_| naps.next_nap().as_micros()), [100, 200, 300, 300]);
    }
}
