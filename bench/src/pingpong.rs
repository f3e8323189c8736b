//! Messages between two MPI ranks of one machine, by every way that each MPI has: Figures 9
//! and 10 of the PVAS paper; and streams of messages.
//!
//! The same binary under the same MPI is run in each [`Mode`], in turns for several rounds,
//! and beside it the machine's limit is measured. Tables compare the medians; a ratio is the
//! median of the rounds' ratios, so that what disturbs a round as a whole does not enter it.
//! What was measured while the cores were at another distance than mostly is left aside (see
//! [`crate::cores`]).

mod figures;
mod report;
mod rounds;
mod targets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::progress::progress;
use crate::{copy, netpipe, programs, sizes};

/// What is run, how often.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations
    #[arg(long, value_delimiter = ',', default_value = Mpi::ALL)]
    mpi: Vec<Mpi>,
    /// Ways of a message
    #[arg(long, value_delimiter = ',', default_value = "eager,rendezvous,cma,space,limit")]
    mode: Vec<Mode>,
    /// Our program with unchanged or freshly written buffers, or a stream one way; and NetPIPE's
    /// (CMA and space)
    #[arg(long, value_delimiter = ',', default_value = "unchanged,fresh,stream,netpipe")]
    workload: Vec<Workload>,
    /// Message sizes: 0, bytes, or with K or M [default: 8 to 4M]
    #[arg(long, value_delimiter = ',', value_parser = sizes::parse_or_none)]
    sizes: Vec<usize>,
    /// Link our program to fixed addresses (not PIE): each task then has page tables of its own
    #[arg(long)]
    fixed: bool,
    /// How often each mode is run, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repetitions a run in our program, whose median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// How long a repetition lasts for each size, in our program
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
    /// Where results go, in the directory for all
    #[arg(skip)]
    folder: Option<&'static str>,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["pingpong"])
    }

    /// The main job alone, under a minute: Debian's MPIs as they are, and under Nagaya.
    pub fn demo() -> Self {
        let words = "pingpong --mpi openmpi,mpich --mode cma,space,limit \
                     --workload unchanged,fresh";
        Self::parse_from(words.split_whitespace())
    }

    /// MPIs over our provider for libfabric, beside their own shared memory.
    pub fn over_the_provider() -> Self {
        let words = "pingpong --mpi openmpi,openmpi5,mpich5,impi --mode cma,space,provider,limit \
                     --workload unchanged,fresh,stream --rounds 3 \
                     --sizes 0,8,64,1K,4K,16K,64K,128K,256K,1M,4M,16M";
        let options = Self::parse_from(words.split_whitespace());
        Self { folder: Some("libfabric"), ..options }
    }

    /// As little as shows that everything runs.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds) = (2, 1, 1);
        self.workload.retain(|workload| *workload != Workload::NetPipe);
        if self.sizes.is_empty() {
            self.sizes = vec![8, 64 << 10, 1 << 20];
        }
        self
    }

    fn sizes(&self) -> Vec<usize> {
        if self.sizes.is_empty() { sizes::all() } else { self.sizes.clone() }
    }
}

/// A program and what it does with its buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Workload {
    /// Our program; buffers are written once.
    Unchanged,
    /// Our program; buffers are written anew before every send.
    Fresh,
    /// Our program; windows of messages in one direction.
    Stream,
    /// NetPIPE, with its defaults: buffers unchanged.
    #[value(name = "netpipe")]
    NetPipe,
}

impl Workload {
    fn title(self) -> &'static str {
        match self {
            Workload::Unchanged => "own ping-pong, unchanged buffers",
            Workload::Fresh => "own ping-pong, freshly written buffers",
            Workload::Stream => "own stream",
            Workload::NetPipe => "NetPIPE",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Workload::Unchanged => "unchanged",
            Workload::Fresh => "fresh",
            Workload::Stream => "stream",
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

/// One run in one mode.
struct Run {
    mpi: Mpi,
    mode: Mode,
    round: u32,
    samples: Vec<Sample>,
}

const PATIENCE: Duration = Duration::from_secs(180);

/// Measures, prints tables, writes CSV files and figures. An MPI that fails is reported at
/// the end; the others are measured all the same.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    two_cores()?;
    let out = &out.join(options.folder.unwrap_or_default());
    std::fs::create_dir_all(out)
        .map_err(|error| Failure::new(format!("{}: cannot be made: {error}", out.display())))?;
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
            Ok(all) => {
                runs.extend(all);
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
    Failure::of_all(failures)
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

/// Runs all modes under one MPI.
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
            mpi.netpipe().transpose()?;
        }
        let program = match options.fixed {
            true => programs::compile_with_mpi_fixed("pingpong", mpi, out)?,
            false => programs::compile_with_mpi("pingpong", mpi, out)?,
        };
        Ok(Runner { mpi, options, nagaya, out, program })
    }

    /// Each program in each mode, one right after the other.
    fn round(&self, round: u32) -> Result<Vec<Run>, Failure> {
        type Program<'a> = fn(&Runner<'a>, Mode) -> Result<Vec<Sample>, Failure>;
        let programs: [(&str, Program); 2] = [("own", Self::own), ("NetPIPE", Self::netpipe)];
        let mut runs = Vec::new();
        for (name, run) in programs {
            for &mode in &self.options.mode {
                let (mpi, of) = (self.mpi, self.options.rounds);
                progress(&format!(
                    "round {round} of {of}: {}, {name}, {}",
                    mpi.name(),
                    mode.words()
                ));
                runs.push(Run { mpi, mode, round, samples: run(self, mode)? });
            }
        }
        Ok(runs)
    }

    /// What buffers our program was asked to use.
    fn buffers(&self) -> Vec<Workload> {
        let all = self.options.workload.iter().copied();
        all.filter(|workload| *workload != Workload::NetPipe).collect()
    }

    /// Our program; no samples where the library has no such mode.
    fn own(&self, mode: Mode) -> Result<Vec<Sample>, Failure> {
        let buffers: Vec<&str> = self.buffers().into_iter().map(Workload::key).collect();
        if buffers.is_empty() {
            return Ok(Vec::new());
        }
        if mode == Mode::Limit {
            return self.limit();
        }
        let Some(mut command) = self.mpi.ranks(2, mode, self.nagaya, &self.program)? else {
            return Ok(Vec::new());
        };
        command.arg(buffers.join(","));
        command.args([self.options.repetitions, self.options.milliseconds].map(|n| n.to_string()));
        command.args(self.options.sizes().iter().map(usize::to_string));
        let output = output_of(&mut command, PATIENCE)?;
        let samples: Option<Vec<Sample>> = output.lines().map(sample).collect();
        samples
            .filter(|samples| !samples.is_empty())
            .ok_or_else(|| Failure::new(format!("pingpong: unexpected output: {output}")))
    }

    /// What the machine can do: a copy by the best loop, with the same buffers. A stream has
    /// none: both sides may copy at once.
    fn limit(&self) -> Result<Vec<Sample>, Failure> {
        let mut samples = Vec::new();
        let sizes: Vec<_> = self.options.sizes().into_iter().filter(|&bytes| bytes > 0).collect();
        for workload in self.buffers().into_iter().filter(|&it| it != Workload::Stream) {
            let times = copy::limit(workload.key(), &sizes, self.out)?;
            samples.extend(times.into_iter().map(|time| Sample {
                workload,
                bytes: time.bytes,
                us: time.ns / 1000.0,
                distance_ns: time.distance_ns,
            }));
        }
        Ok(samples)
    }

    /// NetPIPE, if asked for, at our sizes.
    fn netpipe(&self, mode: Mode) -> Result<Vec<Sample>, Failure> {
        let wanted = self.options.workload.contains(&Workload::NetPipe);
        if !wanted || !matches!(mode, Mode::Cma | Mode::Space) {
            return Ok(Vec::new());
        }
        let sizes = self.options.sizes();
        let all = netpipe::run(self.mpi, mode, self.nagaya, self.out)?;
        let kept = all.into_iter().filter(|time| sizes.contains(&time.bytes));
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
