//! OpenSHMEM: single operations, and kernels of PGAS programs (random updates, an integer sort),
//! with Nagaya's library beside others, and beside the limits of the machine, which are plain
//! loads, stores and copies between the same two cores.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, on_path, output_of};
use crate::mpi::allow_root;
use crate::programs;
use crate::progress::progress;
use crate::ranks::oversubscribed;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Bound, Target};

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// Numbers of PEs
    #[arg(long, value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    pes: Vec<u32>,
    /// Number of rounds; in each round all libraries run once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Number of samples of each operation in a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=2000))]
    samples: u32,
    /// The directory of an installed Sandia OpenSHMEM, with bin/oshcc and bin/oshrun
    #[arg(long, value_name = "DIR")]
    sandia: Option<PathBuf>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["shmem"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.samples) = (1, 5);
        self.pes.truncate(1);
        self
    }
}

/// Runs a command and ignores its status. Debian's Open MPI 4.1.4 ends every program with a
/// segmentation fault in shmem_finalize. All results have been printed by then.
const IGNORING_ITS_END: &str = "\"$0\" \"$@\" || true";
/// The programs: single operations, and kernels.
const PROGRAMS: [&str; 2] = ["shmem", "shmem_kernels"];
/// Lines that they print, and those of the first for the limits.
const LINES: usize = 11 + 4;
const LIMIT_LINES: usize = 4;
/// Rounds of each kernel in a run.
const KERNEL_ROUNDS: &str = "5";
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The sides of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// Plain accesses between two tasks.
    Limit,
    Nagaya,
    /// Open MPI's OSHMEM, from Debian.
    OpenMpi,
    Sandia,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Nagaya => "nagaya",
            Self::OpenMpi => "Open MPI",
            Self::Sandia => "Sandia",
        }
    }
}

/// A side whose programs have been compiled.
struct Ready {
    side: Side,
    launcher: PathBuf,
    programs: [PathBuf; 2],
}

/// Operation and bytes, in the order of the program.
type Operation = (usize, String, usize);
/// Times in ns, one per round.
type Measured = BTreeMap<(u32, Operation, Side), Vec<f64>>;

/// Measures, prints tables and targets, writes `shmem.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let (mut sides, mut failures) = (Vec::new(), Vec::new());
    for side in [Side::Nagaya, Side::OpenMpi, Side::Sandia] {
        match ready(side, options, nagaya, out) {
            Ok(Some(ready)) => sides.push(ready),
            Ok(None) => {}
            Err(failure) => failures.push(failure),
        }
    }
    let mut measured = Measured::new();
    for &pes in &options.pes {
        for round in 1..=options.rounds {
            for ready in &sides {
                let name = ready.side.name();
                let rounds = options.rounds;
                progress(&format!("shmem: {pes} PEs, round {round} of {rounds}, {name}"));
                let all = measure(ready, pes, options, &mut measured);
                failures.extend(all.err());
            }
        }
    }
    progress("");
    report(&measured, options, out)?;
    Failure::of_all(failures)
}

/// Compiles the programs for a side. None if the library was not asked for.
fn ready(
    side: Side,
    options: &Options,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<Option<Ready>, Failure> {
    let found = |name: &str, package: &str| {
        on_path(name).ok_or_else(|| {
            Failure::new(format!("{name}: not installed; apt-get install {package}"))
        })
    };
    let (launcher, compiler) = match (side, &options.sandia) {
        (Side::OpenMpi, _) => {
            let compiler = found("oshcc.openmpi", "libopenmpi-dev");
            let compiler = compiler.or_else(|_| found("oshcc", "libopenmpi-dev"))?;
            (found("mpirun.openmpi", "openmpi-bin")?, Some((compiler, "openmpi")))
        }
        (Side::Sandia, None) => return Ok(None),
        (Side::Sandia, Some(directory)) => {
            (directory.join("bin/oshrun"), Some((directory.join("bin/oshcc"), "sandia")))
        }
        _ => (nagaya.command.clone(), None),
    };
    let compiled = |name: &str| match &compiler {
        Some((compiler, of)) => programs::compile_by(name, &format!("{name}-{of}"), compiler, out),
        None => programs::compile_with_shmem(name, nagaya, out),
    };
    let programs = [compiled(PROGRAMS[0])?, compiled(PROGRAMS[1])?];
    Ok(Some(Ready { side, launcher, programs }))
}

/// Runs a side once; Nagaya's also for the limits.
fn measure(
    ready: &Ready,
    pes: u32,
    options: &Options,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let samples = options.samples.to_string();
    let [operations, kernels] = &ready.programs;
    let mut output = output_of(launch(ready, pes).arg(operations).arg(&samples), TIME_LIMIT)?;
    output += &output_of(launch(ready, pes).arg(kernels).arg(KERNEL_ROUNDS), TIME_LIMIT)?;
    note(&output, LINES, (pes, ready.side), measured)?;
    if ready.side == Side::Nagaya && pes == 2 {
        let mut command = launch(ready, pes);
        let output = output_of(command.arg(operations).args([&samples, "limits"]), TIME_LIMIT)?;
        // The limits are a prefix of the operations.
        note(&output, LIMIT_LINES, (pes, Side::Limit), measured)?;
    }
    Ok(())
}

/// Returns the command that starts so many PEs of a program.
fn launch(ready: &Ready, pes: u32) -> Command {
    let mut command = match ready.side {
        Side::OpenMpi => {
            let mut shell = Command::new("sh");
            shell.args(["-c", IGNORING_ITS_END]).arg(&ready.launcher);
            shell
        }
        _ => Command::new(&ready.launcher),
    };
    let number = pes.to_string();
    match ready.side {
        Side::Nagaya | Side::Limit => {
            command.args(["run", "-n", &number]);
        }
        Side::OpenMpi => {
            allow_root(&mut command).args(["--oversubscribe", "--bind-to", "none", "-n", &number]);
            if !oversubscribed(pes as usize).is_empty() {
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
            }
        }
        Side::Sandia => {
            command.args(["-n", &number]);
        }
    }
    command
}

/// Adds the times of an output, which has so many lines.
fn note(
    output: &str,
    lines: usize,
    (pes, side): (u32, Side),
    measured: &mut Measured,
) -> Result<(), Failure> {
    if output.lines().count() != lines {
        return Err(Failure::new(format!("shmem: unexpected output: {output}")));
    }
    for (at, line) in output.lines().enumerate() {
        let (operation, bytes, ns) =
            parse(line).ok_or_else(|| Failure::new(format!("shmem: unexpected output: {line}")))?;
        measured.entry((pes, (at, operation, bytes), side)).or_default().push(ns);
    }
    Ok(())
}

/// Parses a line of a program.
fn parse(line: &str) -> Option<(String, usize, f64)> {
    let [operation, bytes, ns] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    Some((operation.to_owned(), bytes.parse().ok()?, ns.parse().ok()?))
}

/// The targets: operation, bytes, the side to compare with, and the bound of the ratio of times.
/// With peers it is theirs divided by Nagaya's, with the limit the reverse.
const TARGETS: [(&str, usize, bool, Bound); 12] = [
    ("put", 8, true, Bound::AtMost(1.2)),
    ("get", 8, true, Bound::AtMost(1.2)),
    ("fetch-add", 8, true, Bound::AtMost(1.2)),
    ("put", 1 << 20, true, Bound::AtMost(1.1)),
    ("put-rate", 8, false, Bound::AtLeast(2.0)),
    ("barrier", 0, false, Bound::AtLeast(1.5)),
    ("reduce", 8, false, Bound::AtLeast(1.5)),
    ("reduce", 8192, false, Bound::AtLeast(1.5)),
    ("broadcast", 8192, false, Bound::AtLeast(1.0)),
    ("gups", 8, false, Bound::AtLeast(1.3)),
    ("gups-atomic", 8, false, Bound::AtLeast(1.3)),
    ("sort", 2 << 20, false, Bound::AtLeast(1.3)),
];

fn report(measured: &Measured, options: &Options, out: &Path) -> Result<(), Failure> {
    let mut lines = vec!["pes,operation,bytes,library,ns,ns_min,ns_max".to_string()];
    for ((pes, (_, operation, bytes), side), times) in measured {
        let Spread { median, min, max } = Spread::of(times);
        let name = side.name();
        lines.push(format!("{pes},{operation},{bytes},{name},{median:.2},{min:.2},{max:.2}"));
    }
    write_lines(&out.join("shmem.csv"), &lines)?;
    let mut targets = Vec::new();
    for &pes in &options.pes {
        print_table(measured, pes);
        for (operation, bytes, is_limit, bound) in TARGETS {
            if is_limit && pes != 2 {
                continue;
            }
            targets.push(target(measured, pes, (operation, bytes), is_limit, bound));
        }
    }
    target::report("OpenSHMEM", &targets, &out.join("shmem-targets.csv"))
}

fn times<'a>(
    measured: &'a Measured,
    pes: u32,
    (operation, bytes): (&str, usize),
    side: Side,
) -> Option<&'a [f64]> {
    let is_it = |key: &&(u32, Operation, Side)| {
        key.0 == pes && key.1.1 == operation && key.1.2 == bytes && key.2 == side
    };
    measured.keys().find(is_it).map(|key| measured[key].as_slice())
}

fn target(
    measured: &Measured,
    pes: u32,
    operation: (&str, usize),
    is_limit: bool,
    bound: Bound,
) -> Target {
    let of = |side| times(measured, pes, operation, side);
    let ours = of(Side::Nagaya);
    let of_rounds = |above: &[f64], below: &[f64]| {
        (above.len() == below.len()).then(|| Spread::of_quotients(above, below))
    };
    let (against, ratio) = match is_limit {
        true => {
            let limit = of(Side::Limit);
            ("the limit", ours.zip(limit).and_then(|(ours, limit)| of_rounds(ours, limit)))
        }
        false => {
            let peers = [Side::OpenMpi, Side::Sandia].into_iter().filter_map(of);
            let best = peers.min_by(|a, b| Spread::of(a).median.total_cmp(&Spread::of(b).median));
            ("the best peer", ours.zip(best).and_then(|(ours, best)| of_rounds(best, ours)))
        }
    };
    let (name, bytes) = operation;
    Target { what: format!("{name}, {bytes} B, {pes} PEs: {against}"), bound, ratio }
}

fn print_table(measured: &Measured, pes: u32) {
    let sides = [Side::Limit, Side::Nagaya, Side::OpenMpi, Side::Sandia];
    let is_present = |side: &Side| measured.keys().any(|key| key.0 == pes && key.2 == *side);
    let sides: Vec<Side> = sides.into_iter().filter(is_present).collect();
    let names = sides.iter().map(|side| side.name());
    let mut table = Table::new(["operation", "bytes"].into_iter().chain(names));
    let mut operations: Vec<&Operation> =
        measured.keys().filter(|key| key.0 == pes).map(|key| &key.1).collect();
    operations.dedup();
    for (_, operation, bytes) in operations {
        let mut row = vec![operation.clone(), bytes.to_string()];
        for side in &sides {
            let times = times(measured, pes, (operation, *bytes), *side);
            row.push(times.map_or(String::new(), |it| three_digits(Spread::of(it).median)));
        }
        table.row(row);
    }
    let crowded = oversubscribed(pes as usize);
    table.print(&format!("OpenSHMEM, {pes} PEs{crowded}; ns"));
}
