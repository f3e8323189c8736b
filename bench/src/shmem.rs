//! OpenSHMEM: single operations, and kernels of PGAS programs (random updates, an integer sort),
//! with Nagaya's library beside others, beside one-sided operations of MPIs, and beside the limits
//! of the machine, which are plain loads, stores and copies between the same two cores.

mod layout;
mod nodes;
mod report;
mod side;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::Mpi;
use crate::progress::progress;
use layout::Layout;
use nodes::Nodes;
use report::Measured;
use side::{Provider, Ready, Side};

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// Numbers of PEs
    #[arg(long, value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    pes: Vec<u32>,
    /// Numbers of nodes; two nodes are network namespaces, and need root
    #[arg(long, value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u32).range(1..=2))]
    nodes: Vec<u32>,
    /// Number of rounds; in each round all libraries run once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Number of samples of each operation in a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=2000))]
    samples: u32,
    /// The directory of an installed Sandia OpenSHMEM, with bin/oshcc and bin/oshrun
    #[arg(long, value_name = "DIR")]
    sandia: Option<PathBuf>,
    /// Providers of libfabric for Sandia OpenSHMEM
    #[arg(long, value_delimiter = ',', default_value = "shm,sockets,nagaya")]
    provider: Vec<Provider>,
    /// MPIs whose one-sided operations are measured
    #[arg(long, value_delimiter = ',', default_value = Mpi::ALL)]
    mpi: Vec<Mpi>,
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
        self.nodes.truncate(1);
        self.mpi.truncate(1);
        self
    }
}

/// Lines of the operations, and of the kernels. The limits and MPI's operations are the first ones
/// of the operations.
const OPERATION_LINES: usize = 11;
const KERNEL_LINES: usize = 4;
const LIMIT_LINES: usize = 4;
const MPI_LINES: usize = 6;
/// Rounds of each kernel in a run.
const KERNEL_ROUNDS: &str = "5";
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Measures, prints tables and targets, writes `shmem.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut sides = Vec::new();
    let sandia = options.provider.iter().map(|&provider| Side::Sandia(provider));
    let mpis = options.mpi.iter().map(|&mpi| Side::Mpi(mpi));
    for side in [Side::Nagaya, Side::OpenMpi].into_iter().chain(sandia).chain(mpis) {
        match side::ready(side, options.sandia.as_deref(), nagaya, out) {
            Ok(Some(ready)) => sides.push(ready),
            Ok(None) => {}
            Err(failure) => failures.push(failure),
        }
    }
    let mut measured = Measured::new();
    let layouts = layouts(options);
    for &layout in &layouts {
        // Each layout has its own nodes, so that no run is disturbed by an earlier one.
        let nodes = (layout.nodes == 2).then(Nodes::make).transpose();
        let nodes = match nodes {
            Ok(nodes) => nodes,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        for round in 1..=options.rounds {
            for ready in sides.iter().filter(|ready| ready.side.has(layout)) {
                let (layout_name, name) = (layout.name(), ready.side.name());
                let rounds = options.rounds;
                progress(&format!("shmem: {layout_name}, round {round} of {rounds}, {name}"));
                let all = measure(ready, layout, nodes.as_ref(), options, nagaya, &mut measured);
                failures.extend(all.err());
            }
        }
    }
    progress("");
    report::write(&measured, &layouts, out)?;
    Failure::of_all(failures)
}

/// Returns the layouts to measure. Only root can make nodes.
fn layouts(options: &Options) -> Vec<Layout> {
    let is_root = rustix::process::geteuid().is_root();
    if options.nodes.contains(&2) && !is_root {
        eprintln!("nagaya-bench: shmem: only root can make network namespaces; left out");
    }
    let nodes = options.nodes.iter().filter(|&&nodes| nodes == 1 || is_root);
    nodes.flat_map(|&nodes| options.pes.iter().map(move |&pes| Layout { nodes, pes })).collect()
}

/// Runs a side once; Nagaya's also for the limits.
fn measure(
    ready: &Ready,
    layout: Layout,
    nodes: Option<&Nodes>,
    options: &Options,
    nagaya: &Nagaya,
    measured: &mut Measured,
) -> Result<(), Failure> {
    let samples = options.samples.to_string();
    let side = ready.side;
    let output_of_program = |program: &Path, arguments: &[&str]| {
        let mut command = side::launch(ready, layout, nodes, nagaya, program)?;
        output_of(command.args(arguments), TIME_LIMIT)
    };
    let output = output_of_program(&ready.operations, &[&samples])?;
    let Some(kernels) = &ready.kernels else {
        return note(&output, 0..MPI_LINES, (layout, side), measured);
    };
    let operations = 0..OPERATION_LINES;
    note(&output, operations.clone(), (layout, side), measured)?;
    let output = output_of_program(kernels, &[KERNEL_ROUNDS])?;
    note(&output, operations.end..operations.end + KERNEL_LINES, (layout, side), measured)?;
    if side == Side::Nagaya && layout == (Layout { nodes: 1, pes: 2 }) {
        let output = output_of_program(&ready.operations, &[&samples, "limits"])?;
        note(&output, 0..LIMIT_LINES, (layout, Side::Limit), measured)?;
    }
    Ok(())
}

/// Adds the times of an output, which has a line for each of `places` in the tables.
fn note(
    output: &str,
    places: Range<usize>,
    (layout, side): (Layout, Side),
    measured: &mut Measured,
) -> Result<(), Failure> {
    if output.lines().count() != places.len() {
        return Err(Failure::new(format!("shmem: unexpected output: {output}")));
    }
    for (at, line) in places.zip(output.lines()) {
        let (operation, bytes, ns) =
            parse(line).ok_or_else(|| Failure::new(format!("shmem: unexpected output: {line}")))?;
        measured.entry((layout, (at, operation, bytes), side)).or_default().push(ns);
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
