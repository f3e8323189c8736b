//! The cost of starting a program as a task: `pvas_spawn` against `posix_spawn` of the same
//! program, each with the `waitpid` that follows; alone, and among other living tasks or processes.
//! Then whole jobs ([`starts`]), and programs that fork ([`forks`]).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::forks;
use crate::launch::{Nagaya, output_of};
use crate::programs;
use crate::starts;
use crate::table::{Table, write_lines};

/// The number of spawns.
#[derive(Parser)]
pub struct Options {
    /// Number of spawns by each call, alternately; their median is used
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    spawns: u32,
    /// Number of sleeping tasks, and of sleeping processes, at the same time
    #[arg(long, value_delimiter = ',', default_value = "0,200")]
    living: Vec<u32>,
    /// Number of tasks of whole jobs that are started by `nagaya run`, with and without protection
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    tasks: u32,
    /// Number of such jobs of each kind, alternately
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Number of rounds with programs that fork
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    fork_rounds: u32,
    /// Number of times that such a program forks in a round
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    forks: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["spawn"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        self.spawns = 5;
        self.living = vec![0];
        self.jobs = 1;
        (self.fork_rounds, self.forks) = (1, 5);
        self
    }
}

/// The target: maximum cost of a task, in posix_spawns of the same program.
const TARGET: f64 = 1.5;
/// Maximum growth of the cost with other living tasks: more than the noise of two medians, far less
/// than a cost for each of 200 tasks.
const GROWTH: f64 = 1.1;

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Medians for one program by both calls.
struct Measured {
    program: String,
    living: u32,
    posix: Times,
    pvas: Times,
}

/// Medians in µs: of the call alone, and until waitpid returns.
#[derive(Clone, Copy)]
struct Times {
    call_us: f64,
    total_us: f64,
}

/// Measures, prints a table, writes `spawn.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let noop = programs::compile("noop", out)?;
    let spawn = programs::compile_with_pvas("spawn", nagaya, out)?;
    let mut measured = Vec::new();
    for &living in &options.living {
        let mut command = Command::new(&spawn);
        command.args([options.spawns, living].map(|n| n.to_string()));
        command.arg(&noop).arg(&noop).arg("/bin/true");
        let output = output_of(&mut command, TIME_LIMIT)?;
        let parsed = parse(&output, living)
            .ok_or_else(|| Failure::new(format!("spawn: unexpected output: {output}")))?;
        measured.extend(parsed);
    }
    report(&measured, options, out)?;
    starts::run(options.tasks, options.jobs, &noop, nagaya, out)?;
    forks::run(options.fork_rounds, options.forks, nagaya, out)
}

/// Parses lines of program, call, call time (ns) and total time (ns), two for each program.
fn parse(output: &str, living: u32) -> Option<Vec<Measured>> {
    let lines: Vec<Vec<&str>> = output.lines().map(|line| line.split(' ').collect()).collect();
    let times = |line: &[&str], way: &str| {
        let [_, this, call, total] = *line else { return None };
        let us = |ns: &str| ns.parse::<f64>().ok().map(|ns| ns / 1000.0);
        (this == way).then_some(Times { call_us: us(call)?, total_us: us(total)? })
    };
    let pair = |pair: &[Vec<&str>]| {
        let [posix, pvas] = pair else { return None };
        let program = Path::new(posix[0]).file_name()?.to_string_lossy().into_owned();
        let (posix, pvas) = (times(posix, "posix_spawn")?, times(pvas, "pvas_spawn")?);
        Some(Measured { program, living, posix, pvas })
    };
    lines.chunks(2).map(pair).collect()
}

fn report(measured: &[Measured], options: &Options, out: &Path) -> Result<(), Failure> {
    let mut table = Table::new([
        "program",
        "living",
        "posix_spawn µs",
        "+ waitpid",
        "pvas_spawn µs",
        "+ waitpid",
        "ratio",
        "target",
        "",
    ]);
    let mut lines = vec![
        "program,living,posix_spawn_us,posix_total_us,pvas_spawn_us,pvas_total_us,ratio"
            .to_string(),
    ];
    for at in measured {
        let ratio = at.pvas.total_us / at.posix.total_us;
        let [a, b, c, d] = [at.posix.call_us, at.posix.total_us, at.pvas.call_us, at.pvas.total_us]
            .map(|us| format!("{us:.1}"));
        lines.push(format!("{},{},{a},{b},{c},{d},{ratio:.3}", at.program, at.living));
        let verdict = if ratio <= TARGET { "met" } else { "MISSED" };
        table.row([
            at.program.clone(),
            at.living.to_string(),
            a,
            b,
            c,
            d,
            format!("{ratio:.2}"),
            format!("≤ {TARGET}"),
            verdict.to_string(),
        ]);
    }
    table.print(&format!(
        "spawn and waitpid: median of {} calls of each kind, alternately",
        options.spawns
    ));
    for (program, growth) in growths(measured) {
        let verdict = if growth <= GROWTH { "met" } else { "MISSED" };
        println!(
            "  {program}: with most others living, pvas_spawn and waitpid take {growth:.2} times \
             what they take with fewest (target: no growth, ≤ {GROWTH}): {verdict}"
        );
    }
    write_lines(&out.join("spawn.csv"), &lines)
}

/// Returns the growth for each program: the time of a task among the most others, relative to that
/// among the fewest.
fn growths(measured: &[Measured]) -> Vec<(&str, f64)> {
    let mut programs: Vec<&str> = measured.iter().map(|at| at.program.as_str()).collect();
    programs.sort();
    programs.dedup();
    let growth = |program: &&str| {
        let of_program = || measured.iter().filter(|at| at.program == *program);
        let fewest = of_program().min_by_key(|at| at.living)?;
        let most = of_program().max_by_key(|at| at.living)?;
        let grown = most.living > fewest.living;
        grown.then_some(most.pvas.total_us / fewest.pvas.total_us)
    };
    programs.iter().filter_map(|program| Some((*program, growth(program)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_two_ways_become_a_pair_and_growth_is_seen() {
        let alone = "/x/noop posix_spawn 100 200\n/x/noop pvas_spawn 150 240\n";
        let crowd = "/x/noop posix_spawn 100 200\n/x/noop pvas_spawn 150 480\n";
        let mut measured = parse(alone, 0).unwrap();
        assert_eq!((measured[0].posix.call_us, measured[0].pvas.total_us), (0.1, 0.24));
        assert!(growths(&measured).is_empty());
        measured.extend(parse(crowd, 200).unwrap());
        assert_eq!(growths(&measured), [("noop", 2.0)]);
    }

    #[test]
    fn half_a_pair_is_refused() {
        assert!(parse("/x/noop posix_spawn 100 200\n", 0).is_none());
        assert!(parse("/x/noop pvas_spawn 1 2\n/x/noop posix_spawn 1 2\n", 0).is_none());
    }
}
