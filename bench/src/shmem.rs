//! Single operations of OpenSHMEM: Nagaya's library beside others, and beside the limits of the
//! machine, which are plain loads, stores and copies between the same two cores.

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
/// Lines that the program prints, and those for the limits.
const LINES: [usize; 2] = [11, 4];
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

/// A side whose program has been compiled.
struct Ready {
    side: Side,
    launcher: PathBuf,
    program: PathBuf,
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

/// Compiles the program for a side. None if the library was not asked for.
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
    let (launcher, program) = match (side, &options.sandia) {
        (Side::OpenMpi, _) => {
            let compiler = found("oshcc.openmpi", "libopenmpi-dev");
            let compiler = compiler.or_else(|_| found("oshcc", "libopenmpi-dev"))?;
            let program = programs::compile_by("shmem", "shmem-openmpi", &compiler, out)?;
            (found("mpirun.openmpi", "openmpi-bin")?, program)
        }
        (Side::Sandia, None) => return Ok(None),
        (Side::Sandia, Some(directory)) => {
            let compiler = directory.join("bin/oshcc");
            let program = programs::compile_by("shmem", "shmem-sandia", &compiler, out)?;
            (directory.join("bin/oshrun"), program)
        }
        _ => (nagaya.command.clone(), programs::compile_with_shmem("shmem", nagaya, out)?),
    };
    Ok(Some(Ready { side, launcher, program }))
}

/// Runs a side once; Nagaya's also for the limits.
fn measure(
    ready: &Ready,
    pes: u32,
    options: &Options,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let has_limits = ready.side == Side::Nagaya && pes == 2;
    for side in [Some(ready.side), has_limits.then_some(Side::Limit)].into_iter().flatten() {
        let mut command = match ready.side {
            Side::OpenMpi => {
                let mut shell = Command::new("sh");
                shell.args(["-c", IGNORING_ITS_END]).arg(&ready.launcher);
                shell
            }
            _ => Command::new(&ready.launcher),
        };
        match ready.side {
            Side::Nagaya | Side::Limit => {
                command.args(["run", "-n", &pes.to_string()]);
            }
            Side::OpenMpi => {
                allow_root(&mut command).args(["--oversubscribe", "--bind-to", "none"]);
                command.args(["-n", &pes.to_string()]);
                if !oversubscribed(pes as usize).is_empty() {
                    command.args(["--mca", "mpi_yield_when_idle", "1"]);
                }
            }
            Side::Sandia => {
                command.args(["-n", &pes.to_string()]);
            }
        }
        command.arg(&ready.program).arg(options.samples.to_string());
        if side == Side::Limit {
            command.arg("limits");
        }
        let output = output_of(&mut command, TIME_LIMIT)?;
        if output.lines().count() != LINES[usize::from(side == Side::Limit)] {
            return Err(Failure::new(format!("shmem: unexpected output: {output}")));
        }
        for (at, line) in output.lines().enumerate() {
            let (operation, bytes, ns) = parse(line)
                .ok_or_else(|| Failure::new(format!("shmem: unexpected output: {line}")))?;
            // The limits are a prefix of the operations.
            measured.entry((pes, (at, operation, bytes), side)).or_default().push(ns);
        }
    }
    Ok(())
}

/// Parses a line of the program.
fn parse(line: &str) -> Option<(String, usize, f64)> {
    let [operation, bytes, ns] = line.split_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    Some((operation.to_owned(), bytes.parse().ok()?, ns.parse().ok()?))
}

/// The targets: operation, bytes, the side to compare with, and the bound of the ratio of times.
/// With peers it is theirs divided by Nagaya's, with the limit the reverse.
const TARGETS: [(&str, usize, bool, Bound); 9] = [
    ("put", 8, true, Bound::AtMost(1.2)),
    ("get", 8, true, Bound::AtMost(1.2)),
    ("fetch-add", 8, true, Bound::AtMost(1.2)),
    ("put", 1 << 20, true, Bound::AtMost(1.1)),
    ("put-rate", 8, false, Bound::AtLeast(2.0)),
    ("barrier", 0, false, Bound::AtLeast(1.5)),
    ("reduce", 8, false, Bound::AtLeast(1.5)),
    ("reduce", 8192, false, Bound::AtLeast(1.5)),
    ("broadcast", 8192, false, Bound::AtLeast(1.0)),
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
