//! The overhead of the gate for a system call that only passes through it.
//!
//! One program makes two system calls, each from a patched and from an unpatched site (see
//! `programs/syscall.c`), as an ordinary process and as a task, alternately. The overhead is
//! computed in two ways, and the larger one counts: a patched site against the unpatched one of the
//! same task, and against itself, unpatched, in the ordinary process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, Side, output_of};
use crate::programs;
use crate::spread::Spread;
use crate::table::{Table, write_lines};

/// The number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round both sides run once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repetitions per run, each of 2,000 calls from each site
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10000))]
    repetitions: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["syscall"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions) = (1, 5);
        self
    }
}

/// The target: maximum overhead of the gate in nanoseconds.
const TARGET_NS: f64 = 60.0;

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A call site of the program.
struct Site {
    /// Its name in the program.
    name: &'static str,
    /// Its description in the table.
    words: &'static str,
    /// The unpatched site of the same call; `None` for the unpatched site itself.
    plain: Option<&'static str>,
}

const SITES: [Site; 4] = [
    Site { name: "getppid-plain", words: "getppid, inline assembly", plain: None },
    Site { name: "getppid-libc", words: "getppid, libc's syscall()", plain: Some("getppid-plain") },
    Site { name: "openat-plain", words: "openat, inline assembly", plain: None },
    Site { name: "openat-libc", words: "openat, libc's openat()", plain: Some("openat-plain") },
];

/// Medians in nanoseconds, one per round, of both sides, by site.
type Measured = BTreeMap<&'static str, [Vec<f64>; 2]>;

/// Measures, prints a table, writes `syscall.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let program = programs::compile("syscall", out)?;
    let mut measured = Measured::new();
    for _ in 0..options.rounds {
        for side in Side::BOTH {
            let mut command = match side {
                Side::Plain => Command::new(&program),
                Side::Nagaya => {
                    let mut command = Command::new(&nagaya.command);
                    command.args(["run", "-n", "1"]).arg(&program);
                    command
                }
            };
            let output = output_of(command.arg(options.repetitions.to_string()), TIME_LIMIT)?;
            for Site { name: site, .. } in SITES {
                let median = median_of_site(&output, site)
                    .ok_or_else(|| Failure::new(format!("syscall: unexpected output: {output}")))?;
                measured.entry(site).or_default()[side as usize].push(median);
            }
        }
    }
    report(&measured, options, out)
}

/// Parses the line of a site: its name, then median, minimum and maximum (ns).
fn median_of_site(output: &str, site: &str) -> Option<f64> {
    let lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.into_iter().find(|words| words.first() == Some(&site))?.get(1)?.parse().ok()
}

fn report(measured: &Measured, options: &Options, out: &Path) -> Result<(), Failure> {
    let spread = |site: &str, side: Side| Spread::of(&measured[site][side as usize]);
    let mut table = Table::new([
        "site of the call",
        "process ns",
        "(min..max)",
        "task ns",
        "(min..max)",
        "over plain in task",
        "over itself in process",
        "target",
        "",
    ]);
    let mut lines = vec!["site,side,ns,ns_min,ns_max".to_string()];
    for Site { name, words, plain } in SITES {
        let [process, task] = Side::BOTH.map(|side| spread(name, side));
        for (side, of) in Side::BOTH.iter().zip([process, task]) {
            lines.push(format!(
                "{name},{},{:.2},{:.2},{:.2}",
                side.name(),
                of.median,
                of.min,
                of.max
            ));
        }
        let over_process = task.median - process.median;
        let over_plain = plain.map(|plain| task.median - spread(plain, Side::Nagaya).median);
        let only_judged = |text: &dyn Fn(f64) -> String| over_plain.map(text).unwrap_or_default();
        let range = |of: Spread| format!("({:.0}..{:.0})", of.min, of.max);
        let verdict = |over: f64| match over.max(over_process) < TARGET_NS {
            true => "met".to_string(),
            false => "MISSED".to_string(),
        };
        table.row([
            words.to_string(),
            format!("{:.1}", process.median),
            range(process),
            format!("{:.1}", task.median),
            range(task),
            only_judged(&|over| format!("{over:+.1}")),
            format!("{over_process:+.1}"),
            only_judged(&|_| format!("< {TARGET_NS:.0} ns")),
            only_judged(&verdict),
        ]);
    }
    table.print(&format!("system calls that pass through; median of {} rounds", options.rounds));
    write_lines(&out.join("syscall.csv"), &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sites_median_is_found() {
        let output = "getppid-plain 100.50 99 130\ngetppid-libc 110.25 109 150\n";
        assert_eq!(median_of_site(output, "getppid-libc"), Some(110.25));
        assert_eq!(median_of_site(output, "openat-libc"), None);
    }
}
