//! The memory of an MPI job: private memory of its ranks, shared buffers, and page tables.
//!
//! All processes of the job count: launcher, proxies, ranks, and under Nagaya the stubs and the one
//! address space of all tasks, *once*. A process counts with its proportional set size (Pss in
//! `/proc/PID/smaps_rollup`), so shared memory counts once in all, and with its page tables
//! (VmPTE). Every task of a space shows the numbers of the whole space, so they must not be added
//! up.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use figure::{Axis, COLOURS, Figure, Kind, Line, Panel, Row, Style, log2};
use proc::process::Stat;
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::progress::progress;
use crate::table::{Table, write_lines};
use crate::{machine, programs};

/// The selection of ranks and modes.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations to use
    #[arg(long, value_delimiter = ',', default_value = "openmpi,mpich")]
    mpi: Vec<Mpi>,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32,64",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Modes of message transfer
    #[arg(long, value_delimiter = ',', default_value = "rendezvous,cma,space")]
    mode: Vec<Mode>,
    /// Size of the large messages, in KiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    kilobytes: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["footprint"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        self.ranks.truncate(1);
        self
    }
}

/// Memory in KiB.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Memory {
    /// Anonymous memory: heaps, stacks, private data.
    private: u64,
    /// Shared memory: the buffers between ranks.
    shared: u64,
    /// File mappings: programs and libraries.
    files: u64,
    page_tables: u64,
}

impl Memory {
    /// Reads the memory of one address space.
    fn of(pid: u32) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
        Self::parse(&read("smaps_rollup")?, &read("status")?)
    }

    fn parse(rollup: &str, status: &str) -> Option<Self> {
        let field = |text: &str, name: &str| -> Option<u64> {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Some(Memory {
            private: field(rollup, "Pss_Anon:")?,
            shared: field(rollup, "Pss_Shmem:")?,
            files: field(rollup, "Pss_File:")?,
            page_tables: field(status, "VmPTE:")?,
        })
    }

    fn add(self, other: Self) -> Self {
        Memory {
            private: self.private + other.private,
            shared: self.shared + other.shared,
            files: self.files + other.files,
            page_tables: self.page_tables + other.page_tables,
        }
    }

    fn total(self) -> u64 {
        self.private + self.shared + self.files + self.page_tables
    }
}

/// Time limit; 64 ranks on two cores start slowly.
const TIME_LIMIT: Duration = Duration::from_secs(120);

type Measured = BTreeMap<(Mpi, Mode, u32), Memory>;

/// Measures, prints tables, writes `footprint.csv` and `footprint.svg`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut measured = Measured::new();
    for &mpi in &options.mpi {
        let program = match programs::compile_with_mpi("footprint", mpi, out) {
            Ok(program) => program,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        for &ranks in &options.ranks {
            for &mode in &options.mode {
                progress(&format!("footprint: {}, {ranks} ranks, {}", mpi.name(), mode.words()));
                let command = match mpi.ranks(ranks as usize, mode, nagaya, &program) {
                    Ok(Some(command)) => command,
                    Ok(None) => continue,
                    Err(failure) => {
                        failures.push(failure);
                        continue;
                    }
                };
                match memory_of_job(command, ranks, mode, options, out) {
                    Ok(memory) => drop(measured.insert((mpi, mode, ranks), memory)),
                    Err(failure) => failures.push(Failure::new(format!(
                        "footprint: {}, {ranks} ranks, {}: {failure}",
                        mpi.name(),
                        mode.words()
                    ))),
                }
            }
        }
    }
    progress("");
    if !measured.is_empty() {
        report(&measured, options, out)?;
    }
    Failure::of_all(failures)
}

/// Starts the job, measures it while it waits, and lets it end.
fn memory_of_job(
    mut command: Command,
    ranks: u32,
    mode: Mode,
    options: &Options,
    out: &Path,
) -> Result<Memory, Failure> {
    let hold = out.join("footprint.hold");
    fs::write(&hold, "").map_err(|error| Failure::new(format!("{}: {error}", hold.display())))?;
    command.arg(&hold).arg((u64::from(options.kilobytes) << 10).to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let deadline = Instant::now() + TIME_LIMIT;
    let mut launcher =
        command.spawn().map_err(|error| Failure::new(format!("cannot be started: {error}")))?;
    let pids = pids_of_ranks(&mut launcher, ranks, deadline);
    let memory = pids.and_then(|pids| {
        let gone = || Failure::new("a process of the job ended early");
        let mut counted = descendants(launcher.id());
        match mode {
            // All tasks and their parent, the node server, are one address space.
            Mode::Space | Mode::Provider | Mode::Exec => {
                counted.retain(|pid| !pids.contains(pid) && Some(*pid) != parent(pids[0]));
                counted.insert(pids[0]);
            }
            _ => counted.extend(pids),
        }
        let all: Option<Vec<Memory>> = counted.into_iter().map(Memory::of).collect();
        Ok(all.ok_or_else(gone)?.into_iter().fold(Memory::default(), Memory::add))
    });
    let _ = fs::remove_file(&hold);
    end(&mut launcher, deadline.max(Instant::now() + TIME_LIMIT / 10));
    memory
}

/// Returns the PIDs of the ranks, which print them after their messages.
fn pids_of_ranks(launcher: &mut Child, ranks: u32, deadline: Instant) -> Result<Vec<u32>, Failure> {
    let output = BufReader::new(launcher.stdout.take().expect("is piped"));
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut pids = Vec::new();
    while pids.len() < ranks as usize {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = receiver.recv_timeout(left).map_err(|_| {
            Failure::new(format!("{} of {ranks} ranks came to exchange messages", pids.len()))
        })?;
        pids.extend(line.trim().parse::<u32>().ok());
    }
    Ok(pids)
}

fn parent(pid: u32) -> Option<u32> {
    Stat::read(&format!("/proc/{pid}")).ok()?.field(4)
}

/// Returns the process and all its descendants.
fn descendants(ancestor: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut left) = (BTreeSet::new(), vec![ancestor]);
    while let Some(pid) = left.pop() {
        if found.insert(pid) {
            left.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

/// Waits for the launcher to end, and ends it after the deadline.
fn end(launcher: &mut Child, deadline: Instant) {
    while Instant::now() < deadline {
        if launcher.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = kill_process(Pid::from_child(launcher), Signal::TERM);
    thread::sleep(Duration::from_secs(1));
    let _ = launcher.kill();
    let _ = launcher.wait();
}

fn report(measured: &Measured, options: &Options, out: &Path) -> Result<(), Failure> {
    let mut lines =
        vec!["mpi,ranks,mode,private_kib,shared_kib,files_kib,page_tables_kib,total_kib".into()];
    for &mpi in &options.mpi {
        let headings =
            ["ranks", "", "private", "shared buffers", "page tables", "files", "all", ""];
        let mut table = Table::new(headings);
        for &ranks in &options.ranks {
            for &mode in &options.mode {
                let Some(memory) = measured.get(&(mpi, mode, ranks)) else { continue };
                let Memory { private, shared, files, page_tables } = *memory;
                let a_rank = |kib: u64| format!("{:.2}", kib as f64 / 1024.0 / f64::from(ranks));
                let numbers = [private, shared, page_tables, files, memory.total()].map(a_rank);
                let words = [ranks.to_string(), mode.name().to_string()];
                table.row(words.into_iter().chain(numbers).chain([String::new()]));
                lines.push(format!(
                    "{},{ranks},{},{private},{shared},{files},{page_tables},{}",
                    mpi.key(),
                    mode.key(),
                    memory.total()
                ));
            }
        }
        table.print(&format!(
            "{}: memory in MiB per rank, launcher and stubs included; messages of up to {} KiB",
            mpi.name(),
            options.kilobytes
        ));
    }
    figure(measured, options).write(&out.join("footprint.svg"))?;
    println!("\nwritten: footprint.csv, footprint.svg in {}", out.display());
    write_lines(&out.join("footprint.csv"), &lines)
}

/// Returns the figure: a row for each MPI, with all memory, shared buffers, and page tables per
/// rank.
fn figure(measured: &Measured, options: &Options) -> Figure {
    let style = |mode: Mode| match mode {
        Mode::Space => Style { colour: COLOURS[0], kind: Kind::Solid },
        other => {
            Style { colour: COLOURS[(other as usize + 1) % COLOURS.len()], kind: Kind::Dashed }
        }
    };
    let panel = |mpi: Mpi, caption: &str, of: fn(&Memory) -> u64| {
        let line = |mode: &Mode| {
            let mebibytes = |ranks: &u32| {
                let kib = of(measured.get(&(mpi, *mode, *ranks))?);
                Some((log2(*ranks as usize), kib as f64 / 1024.0 / f64::from(*ranks)))
            };
            Line {
                points: options.ranks.iter().filter_map(mebibytes).collect(),
                style: style(*mode),
            }
        };
        let lines: Vec<Line> = options.mode.iter().map(line).collect();
        let x = Axis::counts(options.ranks.iter().map(|&ranks| ranks as usize));
        let caption = format!("{caption}, MiB per rank");
        Panel { caption, x_caption: "ranks", x, y: Axis::from_zero(&lines), lines }
    };
    let row = |mpi: &Mpi| Row {
        title: format!("{}: memory of the whole job", mpi.name()),
        panels: vec![
            panel(*mpi, "all", |memory| memory.total()),
            panel(*mpi, "shared buffers", |memory| memory.shared),
            panel(*mpi, "page tables", |memory| memory.page_tables),
        ],
    };
    let seen = |mpi: &&Mpi| measured.keys().any(|key| key.0 == **mpi);
    Figure {
        caption: machine::caption(),
        legend: options.mode.iter().map(|m| (m.words().to_string(), style(*m))).collect(),
        rows: options.mpi.iter().filter(seen).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_what_the_kernel_tells() {
        let rollup = "1000-2000 ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nPss: 8 kB\n\
                      Pss_Anon:  5 kB\nPss_File:  2 kB\nPss_Shmem:  1 kB\n";
        let memory = Memory::parse(rollup, "Name:\tx\nVmPTE:\t   44 kB\n").unwrap();
        assert_eq!(memory, Memory { private: 5, shared: 1, files: 2, page_tables: 44 });
        assert_eq!(memory.total(), 52);
        assert!(Memory::parse("", "VmPTE: 44 kB").is_none());
    }

    #[test]
    fn our_own_children_are_found() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let found = descendants(std::process::id());
        assert!(found.contains(&child.id()) && found.contains(&std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
