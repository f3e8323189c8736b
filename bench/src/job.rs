//! Any MPI program, such as IMB, the OSU benchmarks or NAS: its time and its figures without and
//! with `nagaya exec`, by turns, under each MPI with its defaults.
//!
//! The program must exist for each MPI: `{mpi}` in a word of its command line stands for the name
//! of the MPI in `--mpi`. A run counts only if its exit status is 0 and it has printed all texts of
//! `--expect`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::gains::{self, Gain};
use crate::launch::{Nagaya, on_path};
use crate::mpi::Mpi;
use crate::progress::progress;
use crate::ranks::oversubscribed;
use crate::turns::{Job, by_turns};

/// The program, its figures and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations to use
    #[arg(long, value_delimiter = ',', default_value = "openmpi")]
    mpi: Vec<Mpi>,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: Vec<u32>,
    /// Number of rounds; in each round both sides run once. Two if ranks share cores
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Read this column of the table that the program prints: rows of numbers only, named by their
    /// first column. From 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    column: Option<u32>,
    /// Read the first number after this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    figure: Vec<String>,
    /// More is better in these figures
    #[arg(long)]
    rate: bool,
    /// Fail unless each run prints this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    expect: Vec<String>,
    /// Time limit of a run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    limit: u64,
    /// The program and its arguments; {mpi} stands for the name of the MPI
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

impl Options {
    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        self.rounds = 1;
        self
    }

    /// Returns the job for an MPI.
    fn job(&self, mpi: Mpi, ranks: usize) -> Result<Job, Failure> {
        let words: Vec<String> =
            self.program.iter().map(|word| word.replace("{mpi}", mpi.key())).collect();
        let program = PathBuf::from(&words[0]);
        let found = match program.components().count() {
            1 => on_path(&words[0]),
            _ => Some(program).filter(|path| path.is_file()),
        };
        Ok(Job {
            mpi,
            ranks,
            program: found.ok_or_else(|| Failure::new(format!("{}: no such file", words[0])))?,
            arguments: words[1..].to_vec(),
            environment: Vec::new(),
            time_limit: Duration::from_secs(self.limit),
        })
    }

    /// Reads the figures of an output, with their names.
    fn figures(&self, output: &str) -> Result<Vec<(String, f64)>, Failure> {
        if let Some(text) = self.expect.iter().find(|text| !output.contains(text.as_str())) {
            return Err(Failure::new(format!("the program has not printed `{text}`: {output}")));
        }
        let mut figures = Vec::new();
        for text in &self.figure {
            let number = number_after(output, text);
            let number = number
                .ok_or_else(|| Failure::new(format!("no number after `{text}` in: {output}")))?;
            figures.push((text.clone(), number));
        }
        if let Some(column) = self.column {
            let rows = rows(output, column as usize);
            if rows.is_empty() {
                let text = format!("no rows of numbers with {column} columns in: {output}");
                return Err(Failure::new(text));
            }
            figures.extend(rows);
        }
        Ok(figures)
    }
}

/// Returns the first number after a text.
fn number_after(output: &str, text: &str) -> Option<f64> {
    let rest = &output[output.find(text)? + text.len()..];
    rest.split_whitespace().find_map(|word| word.parse().ok())
}

/// Returns the first column and column `at` of each row that consists of numbers.
pub fn rows(output: &str, at: usize) -> Vec<(String, f64)> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Option<Vec<f64>> = words.iter().map(|word| word.parse().ok()).collect();
        Some((words.first()?.to_string(), *numbers?.get(at - 1)?))
    };
    output.lines().filter_map(row).collect()
}

/// Measures, prints a table, writes `job.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut gains = Vec::new();
    let mut failures = Vec::new();
    for &mpi in &options.mpi {
        for ranks in options.ranks.iter().map(|&ranks| ranks as usize) {
            match measure(mpi, ranks, options, nagaya) {
                Ok(all) => gains.extend(all),
                Err(failure) => {
                    let text = format!("{}, {ranks} ranks: {failure}", mpi.name());
                    failures.push(Failure::new(text));
                }
            }
        }
    }
    progress("");
    if !gains.is_empty() {
        gains::print(&options.program.join(" "), &gains);
        gains::write(&gains, &out.join("job.csv"))?;
    }
    Failure::of_all(failures)
}

fn measure(
    mpi: Mpi,
    ranks: usize,
    options: &Options,
    nagaya: &Nagaya,
) -> Result<Vec<Gain>, Failure> {
    let job = options.job(mpi, ranks)?;
    let rounds =
        if oversubscribed(ranks).is_empty() { options.rounds } else { options.rounds.min(2) };
    progress(&format!("job: {}, {ranks} ranks", mpi.name()));
    let rounds = by_turns(rounds, |side| {
        let run = job.run(side, nagaya)?;
        let mut figures = options.figures(&run.output)?;
        figures.push(("whole mpirun, s".to_string(), run.seconds));
        Ok(figures)
    })?;
    let names = |figures: &[(String, f64)]| -> Vec<String> {
        figures.iter().map(|(name, _)| name.clone()).collect()
    };
    let first = names(&rounds[0][0]);
    if rounds.iter().flatten().any(|figures| names(figures) != first) {
        return Err(Failure::new("the runs have printed different figures"));
    }
    let gain = |(at, what): (usize, String)| Gain {
        mpi,
        ranks,
        // The time of the job is the last figure.
        is_rate: options.rate && at + 1 < first.len(),
        what,
        rounds: rounds.iter().map(|[plain, tasks]| [plain[at].1, tasks[at].1]).collect(),
        remark: String::new(),
    };
    Ok(first.iter().cloned().enumerate().map(gain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_by_their_first_column() {
        let output = "# Size  Avg\n4  0.25\n8       0.50  9\nno 1 2\n\n";
        assert_eq!(rows(output, 2), [("4".to_string(), 0.25), ("8".to_string(), 0.5)]);
        assert_eq!(rows(output, 3), [("8".to_string(), 9.0)]);
    }

    #[test]
    fn a_run_that_does_not_print_the_expected_text_has_no_figures() {
        let words = ["job", "--expect", "SUCCESSFUL", "--figure", "Mop/s total", "true"];
        let options = Options::parse_from(words);
        let good = " Mop/s total     =   12.5\n Verification = SUCCESSFUL\n";
        assert_eq!(options.figures(good).unwrap(), [("Mop/s total".to_string(), 12.5)]);
        assert!(options.figures(" Mop/s total = 12.5\n").is_err());
        assert!(options.figures("SUCCESSFUL").is_err());
    }
}
