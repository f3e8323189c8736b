//! The clock of code that can run in simulated time.
//!
//! The network and the page engine read the time here only. In a build with the feature
//! `simulation`, which only tests enable, a test can set the time of its thread. One seed then
//! drives several nodes of a job in one thread. In all other builds [`now`] is `Instant::now`.

use std::time::{Duration, Instant};

/// Returns the current time.
#[inline]
pub fn now() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(now) = SIMULATED.get() {
        return now;
    }
    Instant::now()
}

/// Returns the time since an earlier instant.
#[inline]
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

#[cfg(feature = "simulation")]
thread_local! {
    static SIMULATED: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

/// Sets the time of this thread. With `None` the thread uses the system's clock again.
#[cfg(feature = "simulation")]
pub fn simulate(now: Option<Instant>) {
    SIMULATED.set(now);
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_stands_until_it_is_set() {
        let start = Instant::now();
        simulate(Some(start));
        assert_eq!((now(), elapsed(start)), (start, Duration::ZERO));
        simulate(Some(start + Duration::from_secs(3600)));
        assert_eq!(elapsed(start), Duration::from_secs(3600));
        simulate(None);
        assert!(elapsed(start) < Duration::from_secs(3600));
    }
}
