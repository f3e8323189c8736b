//! One core copies what another one holds: which loop is the fastest, by size, by what the
//! caches hold, and by the distance of the cores. From this the gate's copy is chosen, and
//! this is the limit that a message between two cores can reach.
//!
//! `programs/copy.c` has the loops and says how it measures.

mod report;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::output_of;
use crate::progress::progress;
use crate::spread::Spread;
use crate::{cores, programs, sizes};

/// What is copied, how often.
#[derive(Parser)]
pub struct Options {
    /// Loops: all, best (those worth a try), or names as in the table
    #[arg(long, default_value = "all")]
    loops: String,
    /// Where the source is: in the other core's cache since just now, in both, in none
    #[arg(long, value_delimiter = ',', default_value = "fresh,unchanged,cold",
          value_parser = ["fresh", "unchanged", "cold"])]
    source: Vec<String>,
    /// Whether this core's cache holds the destination
    #[arg(long, value_delimiter = ',', default_value = "warm,cold",
          value_parser = ["warm", "cold"])]
    destination: Vec<String>,
    /// Sizes: bytes, or with K or M [default: 1K to 64M]
    #[arg(long, value_delimiter = ',', value_parser = sizes::parse)]
    sizes: Vec<usize>,
    /// How far behind a page's start both buffers begin, in bytes
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..4096))]
    offset: u32,
    /// How often each loop is run, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// How long a repetition lasts
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    microseconds: u32,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["copy"])
    }

    /// As little as shows that everything runs.
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

/// One repetition of one loop.
#[derive(Clone, PartialEq, Debug)]
struct Sample {
    source: String,
    destination: String,
    bytes: usize,
    copier: String,
    copy_ns: f64,
    copy_and_read_ns: f64,
    distance_ns: [f64; 2],
}

/// Two processors, and how they lie to each other.
struct Pair {
    words: &'static str,
    cpus: (usize, usize),
}

const PATIENCE: Duration = Duration::from_secs(600);

/// Measures, prints tables, writes `copy.csv` and `copy.svg`.
pub fn run(options: &Options, out: &Path) -> Result<(), Failure> {
    let program = programs::compile("copy", out)?;
    let mut measured = Vec::new();
    for Pair { words, cpus } in pairs()? {
        let mut samples = Vec::new();
        // One source at a time, so that progress can be told.
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

/// The nearest and the farthest pair of cores; one pair, where there are only two cores.
fn pairs() -> Result<Vec<Pair>, Failure> {
    let [nearest, farthest] = cores::nearest_and_farthest()
        .ok_or_else(|| Failure::new("copy: needs two cores, this machine lends us one"))?;
    let mut pairs = vec![Pair { words: "nearest", cpus: nearest }];
    if farthest != nearest {
        pairs.push(Pair { words: "farthest", cpus: farthest });
    } else {
        pairs[0].words = "the only pair";
    }
    Ok(pairs)
}

/// Runs the program.
fn copies(
    program: &Path,
    cpus: (usize, usize),
    loops: &str,
    [repetitions, microseconds]: [u32; 2],
    [sources, destinations]: [&str; 2],
    offset: u32,
    sizes: &[usize],
) -> Result<Vec<Sample>, Failure> {
    let mut command = Command::new(program);
    command.args([cpus.0, cpus.1].map(|cpu| cpu.to_string())).arg(loops);
    command.args([repetitions, microseconds].map(|n| n.to_string()));
    command.args([sources, destinations]).arg(offset.to_string());
    command.args(sizes.iter().map(usize::to_string));
    let output = output_of(&mut command, PATIENCE)?;
    let samples: Option<Vec<Sample>> = output.lines().map(sample).collect();
    samples
        .filter(|samples| !samples.is_empty())
        .ok_or_else(|| Failure::new(format!("copy: no loop of that name, or not here: {loops}")))
}

/// Reads a line of the program.
fn sample(line: &str) -> Option<Sample> {
    let [source, destination, bytes, copier, copy, copy_and_read, before, after] =
        line.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok();
    let (before, after) = (number(before)?, number(after)?);
    Some(Sample {
        source: source.to_string(),
        destination: destination.to_string(),
        bytes: bytes.parse().ok()?,
        copier: copier.to_string(),
        copy_ns: number(copy)?,
        copy_and_read_ns: number(copy_and_read)?,
        distance_ns: [before.min(after), before.max(after)],
    })
}

/// What one copy takes at best.
pub struct LimitTime {
    /// Its size.
    pub bytes: usize,
    /// By the fastest loop.
    pub ns: f64,
    /// Shortest and longest distance of the two cores seen around it.
    pub distance_ns: [f64; 2],
}

/// Sizes below this take a few ns, and the clock much of it.
const LIMIT_FROM: usize = 1024;
const LIMIT_REPETITIONS: u32 = 3;
const LIMIT_MICROSECONDS: u32 = 700;

/// One copy by the best loop into a warm destination, between the two cores to which an MPI
/// binds two ranks: what a message takes at least. No times for sizes below 1 KB.
pub fn limit(source: &str, sizes: &[usize], out: &Path) -> Result<Vec<LimitTime>, Failure> {
    let program: PathBuf = programs::compile("copy", out)?;
    let cpus = cores::first_pair()
        .ok_or_else(|| Failure::new("limit: needs two cores, this machine lends us one"))?;
    let sizes: Vec<usize> = sizes.iter().copied().filter(|size| *size >= LIMIT_FROM).collect();
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    let times = [LIMIT_REPETITIONS, LIMIT_MICROSECONDS];
    let samples = copies(&program, cpus, "best", times, [source, "warm"], 0, &sizes)?;
    Ok(sizes.iter().filter_map(|&bytes| best_of(&samples, bytes)).collect())
}

/// Of the loops' medians at this size the smallest.
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
    use super::*;

    #[test]
    fn a_line_is_read_and_others_are_refused() {
        let read = sample("fresh warm 4096 movsb 59.0 80.5 26.0 25.0").unwrap();
        assert_eq!((read.bytes, read.copy_ns, read.copy_and_read_ns), (4096, 59.0, 80.5));
        assert_eq!(read.distance_ns, [25.0, 26.0]);
        assert!(sample("fresh warm 4096 movsb 59.0 80.5 26.0").is_none());
    }

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
