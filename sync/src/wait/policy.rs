//! The wait policy: whether a waiter spins, yields its processor, or sleeps.
//!
//! A sleep costs the time of a wake-up, which is 2 µs on a busy processor and up to 200 µs on an
//! idle one of a virtual machine. A spin costs the time until the event. A waiter that spins for as
//! long as a wake-up takes, and then sleeps, costs at most twice as much as the better of both: the
//! classic result on renting skis (Karlin, Manasse, Rudolph, Sleator: *Competitive snoopy caching*,
//! 1988). This policy keeps that bound over many waits, and uses the past to stay well below it:
//!
//! - It spins for up to `SPIN_FACTOR` wake-ups. Two peers that both sleep see each other's
//!   wake-ups as a part of the answer's time. With less, they would sleep for ever.
//! - It sleeps at once where the last events came later than that.
//! - Two credits limit both: how much cheaper its waits were than twice a pure spin's, and than
//!   twice a pure sleep's. A loan of `LOAN` wake-ups lets it learn, and `SAVINGS_MAX` wake-ups
//!   bound how long an old phase decides.
//! - A yield shows whether other threads want the processor: it then takes as long as they run.
//!   Then the waiter yields instead of spinning, a few times: each yield takes two switches of the
//!   processor from the others, and a sleep not many more.
//! - If it loses the processor for long, in a yield or in the middle of a spin, another thread
//!   computes there, or the processor time of this process is limited. Then it does without yields,
//!   or without spins, for a number of waits: the more, the less these had saved before.
//!
//! The policy is pure: its inputs are instants, and its outputs are [`Step`]s.

use std::time::{Duration, Instant};

/// The next step of a waiter whose event has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Look again a few times.
    Spin,
    /// Yield the processor, report that by [`Policy::yielded`], and look again.
    Yield,
    /// Sleep until the event, and look again.
    Sleep,
}

/// Longest time before a waiter checks that a late peer is alive.
pub const DOUBT: Duration = Duration::from_millis(20);

/// Longest spin, in wake-ups.
const SPIN_FACTOR: u32 = 3;
/// Wake-ups that a policy may cost more than the bound, while it learns.
const LOAN: i64 = 4;
/// Wake-ups that it may save for later.
const SAVINGS_MAX: i64 = 24;
/// Number of late events in a row after which a waiter sleeps at once.
const LATE_MIN: u8 = 2;
/// Least and most such sleeps from one trial of a spin to the next. The number doubles with each
/// trial in vain.
const TRIAL_INTERVALS: [u16; 2] = [16, 256];
/// Length of the longest trial, in usual spins. It doubles with each trial in vain: where many
/// peers sleep, an answer takes many wake-ups.
const TRIAL_FACTOR_MAX: u32 = 8;
/// Shortest and longest time before the first yield of a wait, while nobody else wants the
/// processor. A yield takes some 0.5 µs then, in which an event is not seen.
const YIELD_AFTER: [Duration; 2] = [Duration::from_micros(1), Duration::from_micros(20)];
/// After so many quick yields, the first one comes four times as late.
const CALM_YIELDS: u8 = 16;
/// A yield that takes longer let another thread run.
const YIELD_MAX: Duration = Duration::from_micros(2);
/// Time without the processor that counts as a loss. A scheduler's turns take 1 to 4 ms; a peer
/// that works for a moment is no loss.
const LOSS_MIN: Duration = Duration::from_micros(500);
/// Longest time that counts: a user may also have stopped the process.
const LOSS_MAX: Duration = Duration::from_millis(10);
/// Limits of the number of sleeps after such a loss, in wake-ups of its length.
const LOSS_FACTORS: [u32; 2] = [1, 256];
/// Most yields of a wait while others want the processor.
const CROWD_YIELDS_MAX: u8 = 4;
/// Number of quick yields until a processor counts as free again.
const CROWD_YIELDS: u8 = 4;

/// How waiters wait. The user may set it: see [`super::settings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Decides by measured times.
    #[default]
    Auto,
    /// Spins for [`DOUBT`], then sleeps: for ranks that have a processor each.
    Spin,
    /// Sleeps at once: for processors that others need.
    Sleep,
}

/// The state of one kind of wait of one waiter.
#[derive(Debug, Clone)]
pub struct Policy {
    mode: Mode,
    /// Time from a wake-up call to the moment when the sleeper runs.
    wake: Duration,
    /// Shortest spin, unless the processor was lost.
    spin_min: Duration,
    /// The current wait.
    wait: Option<Wait>,
    /// Twice the time that a pure spin would have cost, less our cost, in ns.
    spin_credit: i64,
    /// Twice the time that a pure sleep would have cost, less our cost, in ns.
    sleep_credit: i64,
    /// Number of late events in a row.
    late: u8,
    /// Number of sleeps since the last trial.
    untried: u16,
    /// See [`TRIAL_INTERVALS`] and [`TRIAL_FACTOR_MAX`].
    trial_interval: u16,
    trial_factor: u32,
    /// Above 0, other threads want the processor.
    crowd: u8,
    /// Number of quick yields in a row.
    calm: u8,
    /// Losses in the middle of a spin, and in a yield.
    spin_losses: Losses,
    yield_losses: Losses,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    begin: Instant,
    /// Longest time before it sleeps.
    spin_max: Duration,
    /// The time of the next yield, if there may be one.
    next_yield: Option<Duration>,
    /// The time of the last step.
    looked: Duration,
    /// Number of yields while others wanted the processor.
    crowd_yields: u8,
    /// The time after which it has gone to sleep.
    slept_after: Option<Duration>,
}

impl Policy {
    /// Returns a policy for wake-ups that take this long.
    pub fn new(mode: Mode, wake: Duration) -> Self {
        // A quarter of the loan: the first waits may be long.
        let credit = nanoseconds(wake);
        Self {
            mode,
            wake,
            spin_min: Duration::ZERO,
            wait: None,
            spin_credit: credit,
            sleep_credit: credit,
            late: 0,
            untried: 0,
            trial_interval: TRIAL_INTERVALS[0],
            trial_factor: 1,
            crowd: 0,
            calm: 0,
            spin_losses: Losses::default(),
            yield_losses: Losses::default(),
        }
    }

    /// Lets each wait spin for at least this time in mode `Auto`, unless others want the processor.
    pub fn spin_at_least(self, spin_min: Duration) -> Self {
        Self { spin_min, ..self }
    }

    /// Sets the mode from the next wait on.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Returns the next step of the current wait, which begins with the first call.
    pub fn step(&mut self, now: Instant) -> Step {
        let mut wait = match self.wait {
            Some(wait) => wait,
            None => self.begin(now),
        };
        let step = self.next_step(&mut wait, now);
        self.wait = Some(wait);
        step
    }

    fn begin(&mut self, now: Instant) -> Wait {
        Wait {
            begin: now,
            spin_max: self.spin_max(),
            next_yield: match self.yield_losses.is_over() {
                false => None,
                true if self.crowd > 0 => Some(Duration::ZERO),
                true => Some(self.yield_after()),
            },
            looked: Duration::ZERO,
            crowd_yields: 0,
            slept_after: None,
        }
    }

    fn next_step(&mut self, wait: &mut Wait, now: Instant) -> Step {
        if wait.slept_after.is_some() {
            return Step::Sleep;
        }
        let waited = now.saturating_duration_since(wait.begin);
        let is_lost = self.mode == Mode::Auto
            && self.spin_losses.lose(waited.saturating_sub(wait.looked), self.wake);
        wait.looked = waited;
        if is_lost || waited >= wait.spin_max || wait.crowd_yields == CROWD_YIELDS_MAX {
            wait.slept_after = Some(waited);
            return Step::Sleep;
        }
        if self.mode == Mode::Auto && wait.next_yield.is_some_and(|next| waited >= next) {
            let is_crowded = self.crowd > 0;
            wait.crowd_yields += u8::from(is_crowded);
            wait.next_yield = Some(if is_crowded { waited } else { 2 * waited });
            return Step::Yield;
        }
        Step::Spin
    }

    /// Returns true if other threads want the processor, and the waiter yields to them.
    pub fn is_crowded(&self) -> bool {
        self.crowd > 0 && self.yield_losses.waits == 0
    }

    /// Records how long a yield took that has just ended.
    pub fn yielded(&mut self, took: Duration) {
        let is_quick = took <= YIELD_MAX;
        self.crowd = if is_quick { self.crowd.saturating_sub(1) } else { CROWD_YIELDS };
        self.calm = if is_quick { self.calm.saturating_add(1) } else { 0 };
        let is_lost = self.yield_losses.lose(took, self.wake);
        if let Some(wait) = &mut self.wait {
            wait.looked += took;
            if !is_quick {
                // The others run, and may cause the event soon.
                wait.next_yield = (!is_lost).then_some(Duration::ZERO);
            }
        }
    }

    /// Returns true if the current wait has begun: then [`found`](Self::found) needs the time.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Records that the event came before the first step.
    #[inline]
    pub fn found_at_once(&mut self) {
        self.late = 0;
        self.spin_losses.save(nanoseconds(self.wake));
    }

    /// Records that the event of the current wait is there.
    pub fn found(&mut self, now: Instant) {
        let Some(wait) = self.wait.take() else { return };
        let total = now.saturating_duration_since(wait.begin);
        let wake = nanoseconds(self.wake);
        if wait.slept_after.is_none() {
            let saved = wake - nanoseconds(total);
            // The event may have come during the loss.
            if !self.spin_losses.lose(total.saturating_sub(wait.looked), self.wake) {
                self.spin_losses.save(saved);
            }
            if wait.crowd_yields > 0 {
                self.yield_losses.save(saved);
            }
        }
        let is_in_vain = wait.slept_after.is_some() && wait.spin_max > Duration::ZERO;
        if is_in_vain && self.late >= LATE_MIN {
            self.trial_interval = (2 * self.trial_interval).min(TRIAL_INTERVALS[1]);
            self.trial_factor = (2 * self.trial_factor).min(TRIAL_FACTOR_MAX);
        } else if wait.slept_after.is_none() {
            (self.trial_interval, self.trial_factor) = (TRIAL_INTERVALS[0], 1);
        }
        if self.crowd > 0 {
            // The times are those of others. A sleep at once does not show whether less suffices.
            match wait.slept_after {
                None => self.late = 0,
                Some(_) if is_in_vain => self.late = self.late.saturating_add(1),
                Some(_) => {}
            }
            return;
        }
        // A sleeper does not see when the event came, only when it runs again.
        let (came, cost) = match wait.slept_after {
            Some(spun) => (total.saturating_sub(self.wake).max(spun), spun + self.wake),
            None => (total, total),
        };
        let save = |credit: &mut i64, other: i64| {
            let saved = credit.saturating_add(2 * other - nanoseconds(cost));
            *credit = saved.clamp(-LOAN * wake, SAVINGS_MAX * wake);
        };
        save(&mut self.spin_credit, nanoseconds(came));
        save(&mut self.sleep_credit, wake);
        self.late = if came >= SPIN_FACTOR * self.wake { self.late.saturating_add(1) } else { 0 };
    }

    /// Ends the current wait, whose event has not come in time.
    pub fn give_up(&mut self) {
        self.wait = None;
    }

    /// Decides how long the next wait spins.
    fn spin_max(&mut self) -> Duration {
        match self.mode {
            Mode::Spin => return DOUBT,
            Mode::Sleep => return Duration::ZERO,
            Mode::Auto => {}
        }
        if !self.spin_losses.is_over() {
            return Duration::ZERO;
        }
        let wake = nanoseconds(self.wake);
        let may_sleep = self.spin_credit - wake >= -LOAN * wake;
        let is_late = self.late >= LATE_MIN;
        self.untried = if is_late { self.untried.saturating_add(1) } else { 0 };
        let is_trial = self.untried >= self.trial_interval;
        let factor = SPIN_FACTOR * if is_trial { self.trial_factor } else { 1 };
        let may_spin = self.sleep_credit - (i64::from(factor) - 1) * wake >= -LOAN * wake;
        if may_spin && (!is_late || is_trial) {
            self.untried = 0;
            return (factor * self.wake).max(self.spin_min);
        }
        if may_sleep { self.spin_min } else { self.spin_min.max(self.wake) }
    }

    fn yield_after(&self) -> Duration {
        let [least, most] = YIELD_AFTER;
        let after = if self.calm < CALM_YIELDS { self.wake / 8 } else { self.wake / 2 };
        after.clamp(least, most)
    }
}

/// Losses of the processor, and what to do without.
#[derive(Debug, Clone)]
struct Losses {
    /// Number of coming waits that do without.
    waits: u64,
    /// See [`LOSS_FACTORS`].
    factor: u32,
    /// Time that was saved since the last loss, in ns.
    saved: i64,
}

impl Default for Losses {
    fn default() -> Self {
        Self { waits: 0, factor: 2, saved: 0 }
    }
}

impl Losses {
    /// Records that a thread had its processor again after this time. Returns true if that is a
    /// loss.
    fn lose(&mut self, time: Duration, wake: Duration) -> bool {
        if time <= LOSS_MIN {
            return false;
        }
        let [least, most] = LOSS_FACTORS;
        self.factor = match std::mem::take(&mut self.saved) >= nanoseconds(time) {
            true => (self.factor / 2).max(least),
            false => (self.factor * 2).min(most),
        };
        let wakes = nanoseconds(time.min(LOSS_MAX)) / nanoseconds(wake).max(1);
        self.waits = u64::from(self.factor) * wakes.unsigned_abs();
        true
    }

    fn save(&mut self, time: i64) {
        self.saved = self.saved.saturating_add(time);
    }

    /// Returns false if the next wait does without.
    fn is_over(&mut self) -> bool {
        let left = self.waits.checked_sub(1);
        self.waits = left.unwrap_or(0);
        left.is_none()
    }
}

fn nanoseconds(time: Duration) -> i64 {
    time.as_nanos().try_into().unwrap_or(i64::MAX / 4)
}
