//! Sends to a rank that has posted the receive, but computes: their time without and with `nagaya
//! exec`, by turns, under each MPI with its defaults.

use std::path::Path;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::gains::{self, Gain};
use crate::job::rows;
use crate::launch::Nagaya;
use crate::mpi::Mpi;
use crate::programs;
use crate::progress::progress;
use crate::turns::{Job, by_turns};

/// The two columns of the program.
const CALLS: [(&str, usize); 2] = [("MPI_Send", 2), ("MPI_Isend and MPI_Wait", 3)];
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations to use
    #[arg(long, value_delimiter = ',', default_value = Mpi::ALL)]
    mpi: Vec<Mpi>,
    /// Time for which the receiver computes, in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 200)]
    compute: u32,
    /// Number of messages of each size and call in a run
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u32).range(1..=1000))]
    messages: u32,
    /// Number of rounds; in each round both sides run once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["late"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        self.rounds = 1;
        self.messages = 5;
        self
    }
}

/// Measures, prints a table, writes `late.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut gains = Vec::new();
    let mut failures = Vec::new();
    for &mpi in &options.mpi {
        match measure(mpi, options, nagaya, out) {
            Ok(all) => gains.extend(all),
            Err(failure) => failures.push(Failure::new(format!("{}: {failure}", mpi.name()))),
        }
    }
    progress("");
    let title = format!("Sends to a rank that computes {} us; µs", options.compute);
    gains::print(&title, &gains);
    gains::write(&gains, &out.join("late.csv"))?;
    Failure::of_all(failures)
}

fn measure(mpi: Mpi, options: &Options, nagaya: &Nagaya, out: &Path) -> Result<Vec<Gain>, Failure> {
    let job = Job {
        mpi,
        ranks: 2,
        program: programs::compile_with_mpi("late", mpi, out)?,
        arguments: vec![options.compute.to_string(), options.messages.to_string()],
        environment: Vec::new(),
        time_limit: TIME_LIMIT,
    };
    progress(&format!("late: {}", mpi.name()));
    let rounds = by_turns(options.rounds, |side| Ok(job.run(side, nagaya)?.output))?;
    let mut gains = Vec::new();
    for (call, column) in CALLS {
        let of = |output: &String| rows(output, column);
        let rounds: Vec<_> = rounds.iter().map(|sides| sides.each_ref().map(of)).collect();
        for (at, (size, _)) in rounds[0][0].iter().enumerate() {
            let time = |side: &Vec<(String, f64)>| side.get(at).map_or(f64::NAN, |row| row.1);
            let rounds: Vec<_> = rounds.iter().map(|sides| sides.each_ref().map(time)).collect();
            if rounds.iter().flatten().any(|time| time.is_nan()) {
                return Err(Failure::new("the runs have printed different tables"));
            }
            let what = format!("{call}, {size} B");
            gains.push(Gain { mpi, ranks: 2, what, is_rate: false, rounds, remark: String::new() });
        }
    }
    Ok(gains)
}
