//! Messages between two MPI ranks of one machine: as ordinary processes, and as tasks.
//!
//! The same binary under the same MPI is run without and with `nagaya exec`, in turns for
//! several rounds. A table compares the medians; the ratio is the median of the rounds'
//! ratios, so that what disturbs a round as a whole does not enter it. What was measured
//! while the cores were at another distance than mostly is left aside (see [`crate::cores`]).

mod pairs;
mod report;

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::{Mpi, Side};
use crate::{netpipe, programs, sizes};

/// What is run, how often.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations
    #[arg(long, value_delimiter = ',', default_value = "openmpi,mpich")]
    mpi: Vec<Mpi>,
    /// Our program with unchanged or freshly written buffers, and NetPIPE's
    #[arg(long, value_delimiter = ',', default_value = "unchanged,fresh,netpipe")]
    workload: Vec<Workload>,
    /// How often each side is run, in turns
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repetitions a run in our program, whose median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// How long a repetition lasts for each size, in our program
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self::parse_from(["pingpong"])
    }
}

impl Options {
    /// The main job alone, under a minute.
    pub fn demo() -> Self {
        Self::parse_from(["pingpong", "--workload", "unchanged,fresh"])
    }
}

/// A program and what it does with its buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Workload {
    /// Our program; buffers are written once.
    Unchanged,
    /// Our program; buffers are written anew before every send.
    Fresh,
    /// NetPIPE, with its defaults: buffers unchanged.
    #[value(name = "netpipe")]
    NetPipe,
}

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::Unchanged => "own ping-pong, unchanged buffers",
            Workload::Fresh => "own ping-pong, freshly written buffers",
            Workload::NetPipe => "NetPIPE",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Workload::Unchanged => "unchanged",
            Workload::Fresh => "fresh",
            Workload::NetPipe => "netpipe",
        }
    }
}

/// One measurement.
struct Sample {
    workload: Workload,
    bytes: usize,
    us: f64,
    /// Shortest and longest distance of the two cores seen around it, in ns.
    distance_ns: [f64; 2],
}

/// One run of one side.
struct Run {
    mpi: Mpi,
    side: Side,
    round: u32,
    samples: Vec<Sample>,
}

const PATIENCE: Duration = Duration::from_secs(180);

/// Measures, prints tables, writes `pingpong.csv`, `pingpong-samples.csv`, `pingpong.svg`.
/// An MPI that fails is reported at the end; the others are measured all the same.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    two_cores()?;
    let mut failures = Vec::new();
    let mut runners = Vec::new();
    for &mpi in &options.mpi {
        match Runner::new(mpi, options, nagaya, out) {
            Ok(runner) => runners.push(runner),
            Err(failure) => failures.push(failure),
        }
    }
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        runners.retain(|runner| match runner.round(round) {
            Ok(both) => {
                runs.extend(both);
                true
            }
            Err(failure) => {
                failures.push(failure);
                false
            }
        });
    }
    progress("");
    runs.retain(|run| runners.iter().any(|runner| runner.mpi == run.mpi));
    if !runs.is_empty() {
        report::write(&runs, options, out)?;
    }
    match failures.as_slice() {
        [] => Ok(()),
        all => {
            let lines: Vec<String> = all.iter().map(Failure::to_string).collect();
            Err(Failure::new(lines.join("\n")))
        }
    }
}

/// Two ranks that spin on one core would measure the scheduler.
fn two_cores() -> Result<(), Failure> {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() < 2 => {
            Err(Failure::new("ping-pong: needs two cores, this machine lends us one"))
        }
        _ => Ok(()),
    }
}

/// Runs both sides under one MPI.
struct Runner<'a> {
    mpi: Mpi,
    options: &'a Options,
    nagaya: &'a Nagaya,
    out: &'a Path,
    program: PathBuf,
}

impl<'a> Runner<'a> {
    /// Compiles our program; fails early where something is not installed.
    fn new(
        mpi: Mpi,
        options: &'a Options,
        nagaya: &'a Nagaya,
        out: &'a Path,
    ) -> Result<Self, Failure> {
        if options.workload.contains(&Workload::NetPipe) {
            mpi.netpipe()?;
        }
        let program = programs::compile_with_mpi("pingpong", mpi, out)?;
        Ok(Runner { mpi, options, nagaya, out, program })
    }

    /// Each program on each side, plain first, one right after the other.
    fn round(&self, round: u32) -> Result<Vec<Run>, Failure> {
        type Program<'a> = fn(&Runner<'a>, Side) -> Result<Vec<Sample>, Failure>;
        let programs: [(&str, Program); 2] = [("own", Self::own), ("NetPIPE", Self::netpipe)];
        let mut runs = Vec::new();
        for (name, run) in programs {
            for side in Side::BOTH {
                let (mpi, of) = (self.mpi, self.options.rounds);
                progress(&format!(
                    "round {round} of {of}: {}, {name}, {}",
                    mpi.name(),
                    side.name()
                ));
                runs.push(Run { mpi, side, round, samples: run(self, side)? });
            }
        }
        Ok(runs)
    }

    /// Our program, with what buffers were asked for.
    fn own(&self, side: Side) -> Result<Vec<Sample>, Failure> {
        let own = |workload: &&Workload| **workload != Workload::NetPipe;
        let buffers: Vec<&str> =
            self.options.workload.iter().filter(own).map(|w| w.key()).collect();
        if buffers.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = self.mpi.two_ranks(side, self.nagaya, &self.program)?;
        command.arg(buffers.join(","));
        command.args([self.options.repetitions, self.options.milliseconds].map(|n| n.to_string()));
        command.args(sizes::all().iter().map(usize::to_string));
        let output = output_of(&mut command, PATIENCE)?;
        let samples: Option<Vec<Sample>> = output.lines().map(sample).collect();
        samples
            .filter(|samples| !samples.is_empty())
            .ok_or_else(|| Failure::new(format!("pingpong: unexpected output: {output}")))
    }

    /// NetPIPE, if asked for, at our sizes.
    fn netpipe(&self, side: Side) -> Result<Vec<Sample>, Failure> {
        if !self.options.workload.contains(&Workload::NetPipe) {
            return Ok(Vec::new());
        }
        let wanted = sizes::all();
        let all = netpipe::run(self.mpi, side, self.nagaya, self.out)?;
        let kept = all.into_iter().filter(|time| wanted.contains(&time.bytes));
        Ok(kept
            .map(|netpipe::Time { bytes, us, distance_ns }| Sample {
                workload: Workload::NetPipe,
                bytes,
                us,
                distance_ns,
            })
            .collect())
    }
}

/// Reads a line of our program: buffers, size, iterations, one-way time, and the distance
/// of the cores before and after (ns).
fn sample(line: &str) -> Option<Sample> {
    let [buffers, bytes, _iterations, ns, before, after] =
        line.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok();
    let (before, after) = (number(before)?, number(after)?);
    Some(Sample {
        workload: Workload::from_str(buffers, false).ok()?,
        bytes: bytes.parse().ok()?,
        us: number(ns)? / 1000.0,
        distance_ns: [before.min(after), before.max(after)],
    })
}

/// Overwrites one line on the terminal; says nothing elsewhere.
fn progress(text: &str) {
    if stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_our_program_is_read_and_others_are_refused() {
        let read = sample("fresh 8 100 300.0 42.0 40.0").unwrap();
        assert_eq!((read.workload, read.bytes, read.us), (Workload::Fresh, 8, 0.3));
        assert_eq!(read.distance_ns, [40.0, 42.0]);
        assert!(sample("").is_none());
        assert!(sample("fresh 8 100 300.0").is_none());
        assert!(sample("stale 8 100 300.0 42.0 40.0").is_none());
    }
}
