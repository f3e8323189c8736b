//! The distance of two cores: the time until one core sees a write of the other.
//!
//! A ping-pong cannot be faster. In a virtual machine the distance may change within a second, by a
//! factor of five, when the host moves the virtual processors (two threads of a core, two cores of
//! a cluster, two clusters). The time of a copy changes with it. So each sample records the
//! distance measured beside it, and only samples at one distance are compared.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Hand-overs per batch, and the number of batches. The fastest batch is used; batches are short,
/// so that some run undisturbed.
const HAND_OVERS: u64 = 1000;
const BATCHES: usize = 20;

/// Two distances that differ by more than this factor count as different.
const SAME_DISTANCE_FACTOR: f64 = 1.5;

/// A word on its own cache line, with room for lines that the processor prefetches.
#[repr(align(256))]
struct Line(AtomicU64);

/// Returns the processors that this process may use.
fn allowed() -> Option<Vec<usize>> {
    let allowed = sched_getaffinity(None).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// Returns the first two usable processors. MPIs bind two ranks to them.
pub fn first_pair() -> Option<(usize, usize)> {
    let allowed = allowed()?;
    Some((*allowed.first()?, *allowed.get(1)?))
}

/// Returns a command that runs a program on one processor, if one is given.
pub fn on(cpu: Option<usize>, program: impl AsRef<OsStr>) -> Command {
    let Some(cpu) = cpu else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string()]).arg(program);
    command
}

/// Returns the first processor with its nearest one, and with its farthest one; `None` if only one
/// processor is usable.
pub fn nearest_and_farthest() -> Option<[(usize, usize); 2]> {
    let allowed = allowed()?;
    let (first, others) = allowed.split_first()?;
    let distance = |other: &usize| (distance_between_ns(*first, *other), *other);
    let mut others: Vec<(Option<f64>, usize)> = others.iter().map(distance).collect();
    others.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
    Some([(*first, others.first()?.1), (*first, others.last()?.1)])
}

/// Returns the distance of the [`first_pair`] in nanoseconds; `None` if only one processor is
/// usable.
pub fn distance_ns() -> Option<f64> {
    let (here, there) = first_pair()?;
    distance_between_ns(here, there)
}

/// Returns the distance of two processors in nanoseconds; `None` if one is not usable.
pub fn distance_between_ns(here: usize, there: usize) -> Option<f64> {
    let batches = (0..BATCHES).filter_map(|_| batch_ns(here, there));
    batches.min_by(f64::total_cmp)
}

/// Returns true if both distances equal the usual one within the tolerance.
pub fn is_one_distance(usual_ns: f64, seen_ns: [f64; 2]) -> bool {
    seen_ns
        .iter()
        .all(|ns| (usual_ns / SAME_DISTANCE_FACTOR..=usual_ns * SAME_DISTANCE_FACTOR).contains(ns))
}

/// Two threads increment a word alternately: one thread even values, the other odd ones.
fn batch_ns(here: usize, there: usize) -> Option<f64> {
    let line = &Line(AtomicU64::new(0));
    let count = |cpu: usize, first: u64| {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).ok()?;
        let mut begin = None;
        for value in (first..HAND_OVERS).step_by(2) {
            while line.0.load(Ordering::Acquire) != value {
                std::hint::spin_loop();
            }
            // The first hand-overs include the start of the other thread.
            if value == HAND_OVERS / 10 {
                begin = Some(Instant::now());
            }
            line.0.store(value + 1, Ordering::Release);
        }
        Some(begin?.elapsed())
    };
    let elapsed = thread::scope(|scope| {
        scope.spawn(move || count(there, 1));
        scope.spawn(move || count(here, 0)).join()
    });
    let counted = HAND_OVERS - HAND_OVERS / 10;
    Some(elapsed.ok()??.as_nanos() as f64 / counted as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_one_distance_and_another_placement_is_not() {
        assert!(is_one_distance(45.0, [40.0, 58.0]));
        assert!(!is_one_distance(45.0, [40.0, 205.0]));
        assert!(!is_one_distance(205.0, [40.0, 205.0]));
    }

    #[test]
    fn a_distance_is_found_where_there_are_two_processors() {
        if let Some(ns) = distance_ns() {
            assert!((1.0..1e6).contains(&ns), "{ns}");
        }
    }
}
