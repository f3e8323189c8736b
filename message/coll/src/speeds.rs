//! Alone or together: the faster way to copy a large message on this machine, by size.
//!
//! It depends on the distance between the two processors. If they are far apart, one processor
//! reads fresh data of the other slowly, and two copiers gain most. If they share a cache, one is
//! as fast, up to some size. The distance changes when the kernel moves a rank. So each rank
//! measures its own copies, and tries the slower way again now and then, at most once in 128
//! copies.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Smallest and largest class: sizes from 2^16 bytes on, and from 2^27 on.
const CLASSES: std::ops::RangeInclusive<u32> = 16..=27;
const COUNT: usize = 12;

/// Copies from one trial of the slower way to the next, at first and at last.
const INTERVAL_MIN: u32 = 2;
const INTERVAL_MAX: u32 = 128;

/// The two ways of one class of sizes.
#[derive(Debug, Default)]
struct Class {
    /// Ticks for 4 KiB, alone and together; 0 while unknown.
    ticks: [AtomicU32; 2],
    /// Copies until the next trial, and the length of the interval.
    left: AtomicU32,
    interval: AtomicU32,
}

/// The speeds that this rank has measured. Threads may use it at once: then some measurements are
/// lost.
#[derive(Debug, Default)]
pub struct Speeds([Class; COUNT]);

impl Speeds {
    fn class(&self, bytes: u64) -> &Class {
        let bits = bytes.max(1).ilog2().clamp(*CLASSES.start(), *CLASSES.end());
        &self.0[(bits - CLASSES.start()) as usize]
    }

    /// Returns true if a message of this size is to be copied together.
    pub fn together(&self, bytes: u64) -> bool {
        let class = self.class(bytes);
        let [alone, together] = class.times();
        if alone == 0 || together == 0 {
            return alone != 0;
        }
        let is_better = together < alone;
        match class.left.load(Relaxed) {
            0 => {
                let interval = class.interval.load(Relaxed).max(INTERVAL_MIN);
                class.left.store(interval, Relaxed);
                class.interval.store((2 * interval).min(INTERVAL_MAX), Relaxed);
                !is_better
            }
            left => {
                class.left.store(left - 1, Relaxed);
                is_better
            }
        }
    }

    /// Records a copy of this size, which has taken so many ticks.
    pub fn record(&self, bytes: u64, together: bool, ticks: u64) {
        let class = self.class(bytes);
        let better = |[alone, together]: [u32; 2]| together < alone;
        let before = class.times();
        let time = &class.ticks[usize::from(together)];
        let new = u32::try_from(ticks.saturating_mul(4096) / bytes.max(1)).unwrap_or(u32::MAX);
        time.store(next(time.load(Relaxed), new.max(1)), Relaxed);
        if better(before) != better(class.times()) {
            class.interval.store(INTERVAL_MIN, Relaxed);
            class.left.store(INTERVAL_MIN, Relaxed);
        }
    }
}

impl Class {
    fn times(&self) -> [u32; 2] {
        self.ticks.each_ref().map(|ticks| ticks.load(Relaxed))
    }
}

/// The estimate after another measurement. Interruptions make copies longer, never shorter.
fn next(estimate: u32, new: u32) -> u32 {
    match estimate {
        0 => new,
        _ if new < estimate => estimate - (estimate - new).div_ceil(2),
        _ => estimate + (new - estimate) / 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies that take so many ticks alone and together. Returns the part copied together.
    fn copies(speeds: &Speeds, bytes: u64, ticks: [u64; 2], count: usize) -> f64 {
        let chosen = (0..count).filter(|_| {
            let together = speeds.together(bytes);
            speeds.record(bytes, together, ticks[usize::from(together)]);
            together
        });
        chosen.count() as f64 / count as f64
    }

    #[test]
    fn the_faster_way_of_each_size_is_found() {
        let speeds = Speeds::default();
        assert!(copies(&speeds, 1 << 16, [2000, 4000], 5000) < 0.02);
        assert!(copies(&speeds, 1 << 20, [60_000, 40_000], 5000) > 0.98);
        assert!(copies(&speeds, 1 << 16, [2000, 4000], 5000) < 0.02, "sizes are apart");
    }

    #[test]
    fn a_change_of_the_speeds_is_noticed() {
        let speeds = Speeds::default();
        copies(&speeds, 1 << 18, [8000, 12_000], 10_000);
        // The processors are farther apart from now on.
        assert!(copies(&speeds, 1 << 18, [16_000, 12_000], 2000) > 0.7);
        assert!(copies(&speeds, 1 << 18, [16_000, 12_000], 2000) > 0.98);
    }

    #[test]
    fn an_interruption_does_not_change_the_choice() {
        let speeds = Speeds::default();
        copies(&speeds, 1 << 20, [60_000, 40_000], 1000);
        speeds.record(1 << 20, true, 50_000);
        assert!(copies(&speeds, 1 << 20, [60_000, 40_000], 100) > 0.9);
    }
}
