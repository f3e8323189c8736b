//! The time of a whole job of `nagaya run`, from its start to its end, with common and with
//! separate page tables, and with protection of the tasks from each other.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Instant;

use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::progress::progress;
use crate::spread::Spread;
use crate::table::{Table, write_lines};

/// The kind of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One set of page tables.
    Common,
    /// A domain for each task.
    Separate,
    /// `--protect=writes`
    Protected,
    /// `--protect=all`
    ProtectedAll,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Common, Self::Separate, Self::Protected, Self::ProtectedAll];

    fn name(self) -> &'static str {
        match self {
            Self::Common => "one domain",
            Self::Separate => "a domain each",
            Self::Protected => "--protect=writes",
            Self::ProtectedAll => "--protect=all",
        }
    }

    /// Returns `nagaya run` of so many tasks; the program follows.
    pub fn command(self, nagaya: &Nagaya, tasks: u32) -> Command {
        let mut command = Command::new(&nagaya.command);
        command.arg("run");
        let tasks = tasks as usize;
        match self {
            Self::Common => command.args(["-n", &tasks.to_string()]),
            Self::Separate => command.args(["--domains", &vec!["all:1"; tasks].join(",")]),
            Self::Protected | Self::ProtectedAll => {
                command.arg(self.name()).args(["-n", &tasks.to_string()])
            }
        };
        command
    }
}

/// Measures jobs of `program`, prints a table, writes `spawn-jobs.csv`.
pub fn run(
    tasks: u32,
    rounds: u32,
    program: &Path,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<(), Failure> {
    let mut times = Kind::ALL.map(|_| Vec::new());
    for round in 1..=rounds {
        progress(&format!("jobs of {tasks} tasks, round {round} of {rounds}"));
        for (kind, times) in Kind::ALL.into_iter().zip(&mut times) {
            let start = Instant::now();
            let status = kind.command(nagaya, tasks).arg(program).status();
            if !status.as_ref().is_ok_and(ExitStatus::success) {
                return Err(Failure::new(format!("a job with {}: {status:?}", kind.name())));
            }
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    progress("");
    let mut table = Table::new(["job", "ms", "(min..max)", "over one domain"]);
    let mut lines = vec!["job,tasks,ms,ms_min,ms_max,over_one_domain".to_string()];
    for (kind, its) in Kind::ALL.into_iter().zip(&times) {
        let Spread { median, min, max } = Spread::of(its);
        let over = Spread::of_quotients(its, &times[0]).median;
        lines.push(format!("{},{tasks},{median:.2},{min:.2},{max:.2},{over:.3}", kind.name()));
        table.row([
            kind.name().to_string(),
            format!("{median:.1}"),
            format!("({min:.1}..{max:.1})"),
            format!("{over:.2}"),
        ]);
    }
    table.print(&format!("start and end of {tasks} tasks by nagaya run, {rounds} rounds"));
    write_lines(&out.join("spawn-jobs.csv"), &lines)
}
