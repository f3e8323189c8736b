//! Programs that do little else than fork and start threads, several at once: as processes, as
//! tasks of one space, and as tasks with page tables of their own. A fork holds the lock of its
//! address space, so forks of one space are one after the other.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::programs;
use crate::progress::progress;
use crate::spread::Spread;
use crate::starts::Kind;
use crate::table::{Table, write_lines};

/// Forks and threads of a round of the program.
const SHAPES: [(u32, u32); 2] = [(1, 0), (2, 4)];
/// Programs at once.
const COUNTS: [u32; 3] = [1, 4, 8];
/// The kinds of jobs beside processes.
const KINDS: [Kind; 2] = [Kind::Common, Kind::Protected];
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// One row of the table.
struct Case {
    count: u32,
    forks: u32,
    threads: u32,
}

impl Case {
    fn arguments(&self, program_rounds: u32) -> [String; 3] {
        [program_rounds, self.forks, self.threads].map(|n| n.to_string())
    }
}

/// Measures, prints a table, writes `forks.csv`. Each program does `program_rounds` rounds.
pub fn run(rounds: u32, program_rounds: u32, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let program = programs::compile("forks", out)?;
    let mut table = Table::new([
        "programs",
        "forks + threads",
        "processes µs",
        "one space µs",
        "ratio",
        "--protect µs",
        "ratio",
    ]);
    let heading =
        "programs,forks,threads,processes_us,space_us,space_ratio,protect_us,protect_ratio";
    let mut lines = vec![heading.to_string()];
    for (count, (forks, threads)) in
        COUNTS.into_iter().flat_map(|count| SHAPES.map(|shape| (count, shape)))
    {
        let case = Case { count, forks, threads };
        let mut times = vec![Vec::new(); 1 + KINDS.len()];
        for round in 1..=rounds {
            progress(&format!("{count} programs that fork, round {round} of {rounds}"));
            times[0].push(processes_us(&case, program_rounds, &program)?);
            for (kind, times) in KINDS.into_iter().zip(&mut times[1..]) {
                times.push(tasks_us(&case, kind, program_rounds, &program, nagaya)?);
            }
        }
        progress("");
        let medians: Vec<f64> = times.iter().map(|its| Spread::of(its).median).collect();
        let ratio = |at: usize| Spread::of_quotients(&times[at], &times[0]).median;
        lines.push(format!(
            "{count},{forks},{threads},{:.1},{:.1},{:.3},{:.1},{:.3}",
            medians[0],
            medians[1],
            ratio(1),
            medians[2],
            ratio(2)
        ));
        table.row([
            count.to_string(),
            format!("{forks} + {threads}"),
            format!("{:.0}", medians[0]),
            format!("{:.0}", medians[1]),
            format!("{:.1}", ratio(1)),
            format!("{:.0}", medians[2]),
            format!("{:.1}", ratio(2)),
        ]);
    }
    table.print(&format!("programs that fork at once: time of a round, {rounds} rounds in turns"));
    write_lines(&out.join("forks.csv"), &lines)
}

/// Returns the time of the slowest of the programs, each of which prints its own.
fn slowest(output: &str, count: u32) -> Result<f64, Failure> {
    let times: Vec<f64> = output.lines().filter_map(|line| line.parse().ok()).collect();
    match times.len() == count as usize {
        true => Ok(times.into_iter().fold(0.0, f64::max)),
        false => Err(Failure::new(format!("forks: unexpected output: {output}"))),
    }
}

fn processes_us(case: &Case, program_rounds: u32, program: &Path) -> Result<f64, Failure> {
    let failed = |error| Failure::new(format!("forks: {error}"));
    let start = || {
        let mut command = Command::new(program);
        command.args(case.arguments(program_rounds)).stdout(Stdio::piped()).spawn()
    };
    let running: Vec<_> =
        (0..case.count).map(|_| start()).collect::<Result<_, _>>().map_err(failed)?;
    let mut output = String::new();
    for child in running {
        let its = child.wait_with_output().map_err(failed)?.stdout;
        output.push_str(&String::from_utf8_lossy(&its));
    }
    slowest(&output, case.count)
}

fn tasks_us(
    case: &Case,
    kind: Kind,
    program_rounds: u32,
    program: &Path,
    nagaya: &Nagaya,
) -> Result<f64, Failure> {
    let mut command = kind.command(nagaya, case.count);
    command.arg(program).args(case.arguments(program_rounds));
    slowest(&output_of(&mut command, TIME_LIMIT)?, case.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_program_counts_and_each_must_print() {
        assert_eq!(slowest("3.5\n9.0\n1.0\n", 3).ok(), Some(9.0));
        assert!(slowest("3.5\n", 2).is_err());
    }
}
