//! Messages between two MPI ranks of one machine in every mode of each MPI, as in Figures 9 and 10
//! of the PVAS paper, and streams of messages.
//!
//! The same binary runs under the same MPI in each [`Mode`], alternately over several rounds, and
//! the limit of the machine is measured beside it. Tables compare medians. A ratio is the median of
//! the ratios of the rounds, so that a disturbance of a whole round cancels out. Samples taken
//! while the cores were not at their usual distance are discarded (see [`crate::cores`]).

mod figures;
mod options;
mod report;
mod rounds;
mod sample;
mod targets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::progress::progress;
use crate::{copy, netpipe, programs};

pub use options::Options;
use sample::{Run, Sample, Workload, sample};

const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Measures, prints tables, writes CSV files and figures. A failing MPI is reported at the end; the
/// others are measured nevertheless.
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

/// Fails on a single core, where two spinning ranks would measure the scheduler.
fn two_cores() -> Result<(), Failure> {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() < 2 => {
            Err(Failure::new("ping-pong: needs two cores, but may use only one"))
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
    /// Compiles the own program; fails early if something is not installed.
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

    /// Runs each program in each mode, one right after the other.
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

    /// Returns the workloads of the own program.
    fn buffers(&self) -> Vec<Workload> {
        let all = self.options.workload.iter().copied();
        all.filter(|workload| *workload != Workload::NetPipe).collect()
    }

    /// Runs the own program. Returns no samples if the library does not have the mode.
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
        let output = output_of(&mut command, TIME_LIMIT)?;
        let samples: Option<Vec<Sample>> = output.lines().map(sample).collect();
        samples
            .filter(|samples| !samples.is_empty())
            .ok_or_else(|| Failure::new(format!("pingpong: unexpected output: {output}")))
    }

    /// Measures the limit of the machine: a copy by the best loop with the same buffers. A stream
    /// has no limit, since both sides may copy at once.
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

    /// Runs NetPIPE, if selected, and keeps the selected sizes.
    fn netpipe(&self, mode: Mode) -> Result<Vec<Sample>, Failure> {
        let wanted = self.options.workload.contains(&Workload::NetPipe);
        if !wanted || !matches!(mode, Mode::Cma | Mode::Space | Mode::Exec) {
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
