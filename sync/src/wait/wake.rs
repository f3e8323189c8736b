//! Facts of this machine and process that decide how long a waiter spins: above all, the time of a
//! wake-up.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use rustix::thread::{current_timer_slack, sched_yield, set_current_timer_slack};

use super::policy::Mode;
use super::quota;
use super::settings;

/// Number of measured sleeps. The shortest counts: others may use the processor meanwhile.
const SLEEPS: usize = 5;
/// Length of such a sleep: long enough for the processor to become idle.
const SLEEP: Duration = Duration::from_micros(20);
/// Shortest and longest time between two looks at the limit of processor time, which take some
/// 50 µs.
const LOOK_INTERVAL_MS: [u64; 2] = [50, 5_000];
/// Limits of the result. A machine that is busy at the moment must not decide for a long time.
const LIMITS: [Duration; 2] = [Duration::from_micros(2), Duration::from_micros(200)];

/// Returns the time from a wake-up to the moment when the sleeper runs: the setting
/// [`WAKE_VARIABLE`](settings::WAKE_VARIABLE), or the result of a measurement. The first call in a
/// process measures, which takes some 0.2 ms.
pub fn wake_time() -> Duration {
    /// In ns, or 0. Two threads may measure at once. A lock would be held in the child of a program
    /// that forks meanwhile.
    static TIME: AtomicU64 = AtomicU64::new(0);
    match TIME.load(Relaxed) {
        0 => {
            let measured = || measure().clamp(LIMITS[0], LIMITS[1]);
            let time = settings::settings().wake.unwrap_or_else(measured);
            TIME.store(time.as_nanos().max(1) as u64, Relaxed);
            time
        }
        time => Duration::from_nanos(time),
    }
}

/// Time of a wake-up by a message of another node, in timers' wake-ups: the sender interrupts this
/// processor, which has slept for longer than in the measurement. Measured in a virtual machine
/// whose timers are 16 µs late: 23 to 53 µs, and 6 to 13 more of the sender's time.
const NODE_FACTOR: u32 = 3;

/// Returns the time by which a sleep delays an answer to another node: the setting
/// [`WAKE_VARIABLE`](settings::WAKE_VARIABLE), or a multiple of the measured time.
pub fn wake_time_of_node() -> Duration {
    let measured = || (NODE_FACTOR * wake_time()).min(LIMITS[1]);
    settings::settings().wake.unwrap_or_else(measured)
}

/// Returns the mode of all waits of this process: the setting, or `Sleep` where its processor time
/// is limited to less than a processor.
pub fn mode(now: Instant) -> Mode {
    match settings::settings().mode {
        Mode::Auto if is_limited(now) => Mode::Sleep,
        mode => mode,
    }
}

/// Returns whether the processor time of this process is limited to less than a processor. A
/// process may be put into another control group at any time, so this looks again from time to
/// time, ever more rarely.
fn is_limited(now: Instant) -> bool {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    static IS_LIMITED: AtomicBool = AtomicBool::new(false);
    /// When to look, in ms since the begin.
    static DUE: AtomicU64 = AtomicU64::new(0);
    let begin = *BEGIN.get_or_init(|| now);
    let since = now.saturating_duration_since(begin).as_millis() as u64;
    let due = DUE.load(Relaxed);
    if since >= due {
        let interval = since.clamp(LOOK_INTERVAL_MS[0], LOOK_INTERVAL_MS[1]);
        if DUE.compare_exchange(due, since + interval, Relaxed, Relaxed).is_ok() {
            let is_limited = quota::processors().is_some_and(|limit| limit < 1.0);
            IS_LIMITED.store(is_limited, Relaxed);
        }
    }
    IS_LIMITED.load(Relaxed)
}

/// Measures how late timers wake this thread. That takes as long as a wake-up by another thread:
/// the processor leaves its idle state by an interrupt, and schedules.
fn measure() -> Duration {
    let slack = current_timer_slack();
    let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
    let late = || {
        let begin = Instant::now();
        std::thread::sleep(SLEEP);
        begin.elapsed().saturating_sub(SLEEP)
    };
    let shortest = (0..SLEEPS).map(|_| late()).min();
    if let Ok(slack) = slack {
        let _ = set_current_timer_slack(std::num::NonZeroU64::new(slack));
    }
    shortest.unwrap_or_default()
}

/// Yields the processor. Returns the time that this took.
pub fn timed_yield() -> Duration {
    let begin = Instant::now();
    sched_yield();
    begin.elapsed()
}
