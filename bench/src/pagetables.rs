//! Page tables of many tasks that read each other's memory (§5.2 of the PVAS paper).
//!
//! Processes that map each other's memory have page-table entries for all pages of all processes: n
//! processes map n² blocks. Tasks share one set of page tables, which maps n blocks. The kernel
//! reports both sizes as VmPTE.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::machine::memory_available_mib;
use crate::programs;
use crate::table::{Table, write_lines};

/// The number of tasks and their memory.
#[derive(Parser)]
pub struct Options {
    /// Numbers of tasks and of processes
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=1024))]
    tasks: u32,
    /// Memory that each of them shares with the others, in MiB
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    megabytes: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["pagetables"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.tasks, self.megabytes) = (2, 1);
        self
    }
}

/// The paper's estimate for 32 processes of 100 MB each that map each other by XPMEM.
const PAPER: &str = "the paper's estimate for 32 processes × 100 MB under XPMEM: 200 MB";

/// Memory left to other processes, in MiB.
const RESERVE_MIB: u64 = 512;

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The output of one task or process.
struct One {
    page_tables_kib: u64,
    ms: f64,
}

/// Measures, prints a table, writes `pagetables.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    enough_memory(options)?;
    let sizes = [options.tasks, options.megabytes].map(|n| n.to_string());

    let mut processes = Command::new(programs::compile("pagetables_processes", out)?);
    let processes = measure(processes.args(&sizes), options)?;

    let mut tasks = Command::new(&nagaya.command);
    tasks.args(["run", "-n", &sizes[0]]);
    tasks.arg(programs::compile_with_pvas("pagetables_tasks", nagaya, out)?);
    let tasks = measure(tasks.args(&sizes), options)?;

    report(&processes, &tasks, options, out)
}

/// Fails if the blocks and page tables would exhaust the memory of the machine.
fn enough_memory(options: &Options) -> Result<(), Failure> {
    let (tasks, megabytes) = (u64::from(options.tasks), u64::from(options.megabytes));
    let page_tables_mib = tasks * tasks * megabytes * 8 / 4096;
    let needed = tasks * megabytes + page_tables_mib + RESERVE_MIB;
    match memory_available_mib() {
        Some(available) if available < needed => Err(Failure::new(format!(
            "page tables: {} × {} MiB need {needed} MiB of memory, {available} MiB are available; \
             give a smaller --tasks or --megabytes",
            options.tasks, options.megabytes
        ))),
        _ => Ok(()),
    }
}

fn measure(command: &mut Command, options: &Options) -> Result<Vec<One>, Failure> {
    let output = output_of(command, TIME_LIMIT)?;
    parse(&output)
        .filter(|all| all.len() == options.tasks as usize)
        .ok_or_else(|| Failure::new(format!("page tables: unexpected output: {output}")))
}

/// Parses lines of VmPTE (KiB) and time (ms).
fn parse(output: &str) -> Option<Vec<One>> {
    let one = |line: &str| {
        let (kib, ms) = line.split_once(' ')?;
        Some(One { page_tables_kib: kib.parse().ok()?, ms: ms.parse().ok()? })
    };
    output.lines().map(one).collect()
}

fn report(processes: &[One], tasks: &[One], options: &Options, out: &Path) -> Result<(), Failure> {
    let mib = |kib: u64| kib as f64 / 1024.0;
    let slowest_ms = |all: &[One]| all.iter().map(|one| one.ms).fold(0.0, f64::max);
    let of_processes: u64 = processes.iter().map(|one| one.page_tables_kib).sum();
    let of_space = tasks.iter().map(|one| one.page_tables_kib).max().unwrap_or(0);
    let rows = [
        ("processes, sum of all", of_processes, slowest_ms(processes)),
        ("tasks, the space once", of_space, slowest_ms(tasks)),
    ];
    let mut table = Table::new(["", "VmPTE MiB", "until all had read all, ms"]);
    let mut lines = vec!["what,tasks,megabytes,vmpte_kib,read_ms".to_string()];
    for (what, kib, ms) in rows {
        table.row([what.to_string(), format!("{:.1}", mib(kib)), format!("{ms:.0}")]);
        let kind = what.split(',').next().unwrap_or(what);
        lines.push(format!("{kind},{},{},{kib},{ms:.1}", options.tasks, options.megabytes));
    }
    table.print(&format!(
        "page tables: {} × {} MiB, all read by all, 4 KB pages",
        options.tasks, options.megabytes
    ));
    println!("  ratio {:.1}; {PAPER}", of_processes as f64 / of_space.max(1) as f64);
    write_lines(&out.join("pagetables.csv"), &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_refused() {
        let all = parse("6460 12.5\n6461 13.0\n").unwrap();
        assert_eq!(all.iter().map(|one| one.page_tables_kib).sum::<u64>(), 12921);
        assert!(parse("6460\n").is_none());
    }

    #[test]
    fn too_much_memory_is_refused_in_words() {
        let options = Options { tasks: 1024, megabytes: 1 << 20 };
        let failure = enough_memory(&options).unwrap_err().to_string();
        assert!(failure.contains("--megabytes"), "{failure}");
    }
}
