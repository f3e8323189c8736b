//! Copy loops: one core copies data of another one. The fastest loop depends on the size, on the
//! contents of the caches, and on the distance of the cores. The gate's copy was chosen by these
//! figures, which are also the limit of messages between two cores.
//!
//! `programs/copy.c` has the loops and describes the method.

mod loops;
mod report;

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::failure::Failure;
use crate::progress::progress;
use crate::spread::Spread;
use crate::{cores, programs, sizes};
use loops::{Sample, copies};

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// Loops: all, best (the promising ones), or names as in the table
    #[arg(long, default_value = "all")]
    loops: String,
    /// State of the source: freshly written by the other core, unchanged in both caches, or cold
    #[arg(long, value_delimiter = ',', default_value = "fresh,unchanged,cold",
          value_parser = ["fresh", "unchanged", "cold"])]
    source: Vec<String>,
    /// State of the destination in this core's cache
    #[arg(long, value_delimiter = ',', default_value = "warm,cold",
          value_parser = ["warm", "cold"])]
    destination: Vec<String>,
    /// Sizes: bytes, or with K or M [default: 1K to 64M]
    #[arg(long, value_delimiter = ',', value_parser = sizes::parse)]
    sizes: Vec<usize>,
    /// Offset of both buffers from the start of a page, in bytes
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..4096))]
    offset: u32,
    /// Number of repetitions; in each one every loop runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Duration of a repetition, in microseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    microseconds: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["copy"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.repetitions, self.microseconds) = (1, 50);
        if self.sizes.is_empty() {
            self.sizes = vec![4 << 10, 64 << 10];
        }
        self
    }

    fn sizes(&self) -> Vec<usize> {
        if self.sizes.is_empty() {
            (10..=26).map(|power| 1 << power).collect()
        } else {
            self.sizes.clone()
        }
    }
}

/// A pair of processors and a description of their distance.
struct Pair {
    words: &'static str,
    cpus: (usize, usize),
}

/// Measures, prints tables, writes `copy.csv` and `copy.svg`.
pub fn run(options: &Options, out: &Path) -> Result<(), Failure> {
    let program = programs::compile("copy", out)?;
    let mut measured = Vec::new();
    for Pair { words, cpus } in pairs()? {
        let mut samples = Vec::new();
        // One source per run, to report progress.
        for source in &options.source {
            progress(&format!("copy: cores {} and {} ({words}), source {source}", cpus.0, cpus.1));
            let (source, destinations) = (source.as_str(), options.destination.join(","));
            let times = [options.repetitions, options.microseconds];
            let offset = options.offset;
            let sizes = options.sizes();
            samples.extend(copies(
                &program,
                cpus,
                &options.loops,
                times,
                [source, &destinations],
                offset,
                &sizes,
            )?);
        }
        measured.push((words, cpus, samples));
    }
    progress("");
    report::write(&measured, out)
}

/// Returns the nearest and the farthest pair of cores, or the only pair.
fn pairs() -> Result<Vec<Pair>, Failure> {
    let [nearest, farthest] = cores::nearest_and_farthest()
        .ok_or_else(|| Failure::new("copy: needs two cores, but may use only one"))?;
    let mut pairs = vec![Pair { words: "nearest", cpus: nearest }];
    if farthest != nearest {
        pairs.push(Pair { words: "farthest", cpus: farthest });
    } else {
        pairs[0].words = "the only pair";
    }
    Ok(pairs)
}

/// The lower bound of one copy.
pub struct LimitTime {
    /// Size of the copy.
    pub bytes: usize,
    /// Time of the fastest loop.
    pub ns: f64,
    /// Shortest and longest distance of the two cores around it, in nanoseconds.
    pub distance_ns: [f64; 2],
}

/// Smallest size in bytes. Smaller copies take a few nanoseconds, mostly for the clock.
const LIMIT_BYTES_MIN: usize = 1024;
const LIMIT_REPETITIONS: u32 = 3;
const LIMIT_MICROSECONDS: u32 = 700;

/// Measures one copy by the best loop into a warm destination, between the two cores to which MPIs
/// bind two ranks: the lower bound of a message. Sizes below 1 KB have no times.
pub fn limit(source: &str, sizes: &[usize], out: &Path) -> Result<Vec<LimitTime>, Failure> {
    let program: PathBuf = programs::compile("copy", out)?;
    let cpus = cores::first_pair()
        .ok_or_else(|| Failure::new("limit: needs two cores, but may use only one"))?;
    let sizes: Vec<usize> = sizes.iter().copied().filter(|size| *size >= LIMIT_BYTES_MIN).collect();
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    let times = [LIMIT_REPETITIONS, LIMIT_MICROSECONDS];
    let samples = copies(&program, cpus, "best", times, [source, "warm"], 0, &sizes)?;
    Ok(sizes.iter().filter_map(|&bytes| best_of(&samples, bytes)).collect())
}

/// Returns the smallest median of all loops at this size.
fn best_of(samples: &[Sample], bytes: usize) -> Option<LimitTime> {
    let of_size: Vec<&Sample> = samples.iter().filter(|sample| sample.bytes == bytes).collect();
    let mut loops: Vec<&str> = of_size.iter().map(|sample| sample.copier.as_str()).collect();
    loops.sort_unstable();
    loops.dedup();
    let median = |copier: &str| {
        let times = of_size.iter().filter(|s| s.copier == copier).map(|s| s.copy_ns);
        Spread::of(&times.collect::<Vec<_>>()).median
    };
    let best = loops.iter().copied().min_by(|a, b| median(a).total_cmp(&median(b)))?;
    let distances = || of_size.iter().flat_map(|sample| sample.distance_ns);
    Some(LimitTime {
        bytes,
        ns: median(best),
        distance_ns: [distances().fold(f64::INFINITY, f64::min), distances().fold(0.0, f64::max)],
    })
}

#[cfg(test)]
mod tests {
    use super::loops::sample;
    use super::*;

    #[test]
    fn the_limit_is_the_fastest_loops_median() {
        let line = |copier: &str, ns: f64| {
            sample(&format!("fresh warm 4096 {copier} {ns} {ns} 26 25")).unwrap()
        };
        let samples = [line("a", 60.0), line("b", 50.0), line("a", 20.0), line("b", 54.0)];
        assert_eq!(best_of(&samples, 4096).unwrap().ns, 40.0);
        assert!(best_of(&samples, 8192).is_none());
    }
}
