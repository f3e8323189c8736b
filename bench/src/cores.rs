//! How far two cores are from each other: the time in which one sees what the other wrote.
//!
//! A ping-pong can be no faster than this. In a virtual machine it may change from one
//! second to the next, by a factor of five, when the host moves our processors (two threads
//! of a core, two cores of a cluster, two clusters), and the time of a copy changes with it.
//! So each measurement carries the distance that was seen beside it, and only those at one
//! distance are compared.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Hand-overs in a batch, and batches, of which the fastest counts: short enough that some
/// run undisturbed.
const HAND_OVERS: u64 = 1000;
const BATCHES: usize = 20;

/// Distances further apart than this factor are not one distance.
const STEADY: f64 = 1.5;

/// A word with a cache line, and its neighbours that are fetched along, to itself.
#[repr(align(256))]
struct Line(AtomicU64);

/// The processors that we may use.
fn allowed() -> Option<Vec<usize>> {
    let allowed = sched_getaffinity(None).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// The first two processors that we may use: where an MPI binds two ranks.
pub fn first_pair() -> Option<(usize, usize)> {
    let allowed = allowed()?;
    Some((*allowed.first()?, *allowed.get(1)?))
}

/// A command for a program that stays on one processor, if that is given.
pub fn on(cpu: Option<usize>, program: impl AsRef<OsStr>) -> Command {
    let Some(cpu) = cpu else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string()]).arg(program);
    command
}

/// The first processor with the one that is nearest to it, and with the one that is
/// farthest; `None` where we may use one processor only.
pub fn nearest_and_farthest() -> Option<[(usize, usize); 2]> {
    let allowed = allowed()?;
    let (first, others) = allowed.split_first()?;
    let distance = |other: &usize| (distance_between_ns(*first, *other), *other);
    let mut others: Vec<(Option<f64>, usize)> = others.iter().map(distance).collect();
    others.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
    Some([(*first, others.first()?.1), (*first, others.last()?.1)])
}

/// The time from one core's write to the other's read, in ns, between the [`first_pair`];
/// `None` where we may use one processor only.
pub fn distance_ns() -> Option<f64> {
    let (here, there) = first_pair()?;
    distance_between_ns(here, there)
}

fn distance_between_ns(here: usize, there: usize) -> Option<f64> {
    let batches = (0..BATCHES).filter_map(|_| batch_ns(here, there));
    batches.min_by(f64::total_cmp)
}

/// Whether these distances are the usual one.
pub fn is_one_distance(usual_ns: f64, seen_ns: [f64; 2]) -> bool {
    seen_ns.iter().all(|ns| (usual_ns / STEADY..=usual_ns * STEADY).contains(ns))
}

/// Two threads count a word up in turns: even values are the one's to raise, odd ones the
/// other's.
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
            // The first hand-overs wait for the other thread to start.
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
