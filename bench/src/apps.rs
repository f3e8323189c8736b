//! Applications of other projects as Debian ships them: the time of the same job without and with
//! Nagaya, and a comparison of the results.
//!
//! The time is that of the whole `mpirun`, with start and end, as a user sees it. A second table
//! has the figures that an application prints about its own messages. The inputs are those of
//! `tests/inputs` and shipped ones, enlarged unless `--quick` is given. Each field is a file:
//! [`linpack`], [`molecules`], [`electrons`], [`python`].

mod application;
mod electrons;
mod linpack;
mod molecules;
mod python;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, Side, output_of};
use crate::mpi::Mpi;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::turns::by_turns;

use application::{Application, Figure, Outcome};

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round both sides run once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run small inputs and two rounds
    #[arg(skip)]
    quick: bool,
    /// Run only applications whose names begin with one of these, such as `lammps`
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["apps"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    fn rounds(&self) -> u32 {
        if self.quick { 2 } else { self.rounds }
    }

    fn wants(&self, application: &Application) -> bool {
        let begins = |only: &String| application.name.to_lowercase().starts_with(only.as_str());
        self.only.is_empty() || self.only.iter().any(begins)
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(600);

/// One run.
struct Run {
    seconds: f64,
    outcome: Outcome,
}

/// All runs of an application; a round has a plain run and one with Nagaya.
struct Measured {
    application: Application,
    version: String,
    rounds: Vec<[Run; 2]>,
}

/// Measures, prints two tables, writes `apps.csv`. Fails if results differ or a run fails.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let applications = [linpack::all(), molecules::all(), electrons::all(), python::all()];
    let mut measured = Vec::new();
    let mut failed = Vec::new();
    for application in applications.into_iter().flatten().filter(|each| options.wants(each)) {
        let name = application.name;
        match measure(application, options, nagaya, out) {
            Ok(application) => {
                if !application.agrees() {
                    failed.push(format!("{name} computed something else"));
                }
                measured.push(application);
            }
            Err(failure) => {
                eprintln!("nagaya-bench: {name}: {failure}");
                failed.push(format!("{name} was not measured"));
            }
        }
    }
    print_times(&measured);
    print_figures(&measured);
    write_lines(&out.join("apps.csv"), &samples(&measured))?;
    match failed.as_slice() {
        [] => Ok(()),
        failed => Err(Failure::new(failed.join(", "))),
    }
}

fn measure(
    application: Application,
    options: &Options,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<Measured, Failure> {
    let program = (application.program)(out)?;
    let version = application.version();
    let place = out.join("apps");
    let rounds = by_turns(options.rounds(), |side: Side| {
        let _ = std::fs::remove_dir_all(&place); // from an earlier run
        std::fs::create_dir_all(&place)
            .map_err(|error| Failure::new(format!("{}: {error}", place.display())))?;
        (application.prepare)(&place, options.quick)?;
        let mut command = Mpi::Ompi4.by_default(2, side, nagaya, &program)?;
        command.args(&application.arguments).current_dir(&place).env("OMP_NUM_THREADS", "1");
        let begin = Instant::now();
        let output = output_of(&mut command, TIME_LIMIT)?;
        let seconds = begin.elapsed().as_secs_f64();
        let outcome = (application.read)(&place, &output);
        let outcome = outcome.ok_or_else(|| Failure::new("its output could not be parsed"))?;
        Ok(Run { seconds, outcome })
    })?;
    let _ = std::fs::remove_dir_all(&place);
    Ok(Measured { application, version, rounds })
}

impl Measured {
    /// Returns true if all runs of both sides computed the same.
    fn agrees(&self) -> bool {
        let first = &self.rounds[0][0].outcome.results;
        self.rounds.iter().flatten().all(|run| run.outcome.results == *first)
    }

    /// Returns `value` of each round, on one side.
    fn each(&self, side: Side, value: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.rounds.iter().map(|round| value(&round[side as usize])).collect()
    }
}

/// Formats median and extremes.
fn spread(values: &[f64]) -> String {
    let Spread { median, min, max } = Spread::of(values);
    format!("{} ({}..{})", three_digits(median), three_digits(min), three_digits(max))
}

fn print_times(measured: &[Measured]) {
    let mut table = Table::new([
        "application",
        "version",
        "plain, s",
        "nagaya, s",
        "ratio",
        "in messages",
        "same result",
    ]);
    for application in measured {
        let [plain, tasks] = Side::BOTH.map(|side| application.each(side, |run| run.seconds));
        let share = |side: Side| {
            let shares = application.rounds.iter().map(|round| {
                let outcome = &round[side as usize].outcome;
                outcome.in_messages.map(|share| 100.0 * share)
            });
            let shares: Option<Vec<f64>> = shares.collect();
            shares.map(|shares| Spread::of(&shares).median)
        };
        let in_messages = match (share(Side::Plain), share(Side::Nagaya)) {
            (Some(plain), Some(tasks)) => format!("{plain:.1} % → {tasks:.1} %"),
            _ => "not reported".to_string(),
        };
        table.row([
            application.application.name.to_string(),
            application.version.clone(),
            spread(&plain),
            spread(&tasks),
            spread(&Spread::quotients(&plain, &tasks)),
            in_messages,
            if application.agrees() { "yes" } else { "NO" }.to_string(),
        ]);
    }
    table.print("Applications, two ranks, Open MPI: the whole mpirun, median (min..max)");
}

fn print_figures(measured: &[Measured]) {
    let mut table = Table::new(["application", "figure", "plain", "nagaya", "ratio"]);
    for application in measured {
        for (at, figure) in application.rounds[0][0].outcome.figures.iter().enumerate() {
            let value = |run: &Run| run.outcome.figures[at].value;
            let [plain, tasks] = Side::BOTH.map(|side| application.each(side, value));
            // Above 1 if Nagaya is better.
            let gains = match figure.is_rate {
                true => Spread::quotients(&tasks, &plain),
                false => Spread::quotients(&plain, &tasks),
            };
            table.row([
                application.application.name.to_string(),
                figure.name.to_string(),
                spread(&plain),
                spread(&tasks),
                spread(&gains),
            ]);
        }
    }
    table.print("What they say about it themselves, median (min..max)");
}

fn samples(measured: &[Measured]) -> Vec<String> {
    let mut lines = vec!["application,round,side,figure,value".to_string()];
    for application in measured {
        for (at, round) in application.rounds.iter().enumerate() {
            for side in Side::BOTH {
                let run = &round[side as usize];
                let start = format!("{},{at},{}", application.application.name, side.name());
                lines.push(format!("{start},whole s,{:.4}", run.seconds));
                for Figure { name, value, .. } in &run.outcome.figures {
                    lines.push(format!("{start},{name},{value}"));
                }
            }
        }
    }
    lines
}
