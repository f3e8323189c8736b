//! Shared memory between nodes: single operations beside their lower bounds, UCX's round trip of
//! the same bytes and a bare fault; the messages of programs at 2 to 16 nodes; and their simulated
//! time, beside the real one on 2 nodes, and on many nodes.

mod options;
mod report;
mod simulated;
mod speedup;
mod step;
pub mod traffic;

use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::Mpi;
use crate::programs;
use crate::progress::progress;
use crate::steps::peers::Peers;
use crate::steps::{Series, Steps, times_of};
pub use options::Options;
use options::Part;
use step::{BARRIER, STEPS};
use traffic::{Traffic, Wanted};

/// Bytes of a page: the default of the library.
const PAGE_BYTES: usize = 8192;

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Measures, prints tables, writes CSV files and a figure.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut steps = Steps::new();
    let mut failures = Vec::new();
    let wanted = |part| options.only.contains(&part);
    for round in (1..=options.rounds).take_while(|_| wanted(Part::Steps)) {
        progress(&format!("dsm, round {round} of {}", options.rounds));
        if let Err(failure) = one_round(&mut steps, round, options, nagaya, out) {
            failures.push(failure);
            break;
        }
    }
    let mut traffic = Vec::new();
    for program in traffic::PROGRAMS.iter().take_while(|_| wanted(Part::Traffic)) {
        for &nodes in &options.nodes {
            progress(&format!("dsm, {} on {nodes} nodes", program.name));
            let arguments = if options.small { program.small } else { "" };
            // Rides depend on timing; `ainori` measures them.
            let wanted = Wanted { name: program.name, arguments, rides: "normal" };
            match Traffic::of(&wanted, nodes, nagaya, out) {
                Ok(of) => traffic.push(of),
                Err(failure) => failures.push(failure),
            }
        }
    }
    progress("");
    report::write(&steps, &traffic, options, out)?;
    if wanted(Part::Simulated) {
        failures.extend(simulated::run(options.rounds, options.small, nagaya, out).err());
    }
    if wanted(Part::Speedup) {
        failures.extend(speedup::run(options.small, nagaya, out).err());
    }
    Failure::of_all(failures)
}

/// Measures the peers, then the library.
fn one_round(
    steps: &mut Steps,
    round: u32,
    options: &Options,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<(), Failure> {
    let peers = Peers::measure(PAGE_BYTES, options.samples, out)?;
    let program = programs::compile_with_jia("dsm_latency", nagaya, out)?;
    let mut dsm = |nodes: usize, names: &[&'static str]| {
        let mut command = Mpi::Ompi4.nodes(nodes, &program)?;
        command.arg(options.samples.to_string()).args(names);
        // A miss fetches one page, without rides.
        command.env("NAGAYA_DSM_RIDES", "normal");
        let output = output_of(&mut command, TIME_LIMIT)?;
        for name in names {
            let times = times_of(&output, &[name]).ok_or_else(|| {
                Failure::new(format!("dsm_latency: does not print {name}: {output}"))
            })?;
            steps.add(name, nodes, Series::Nagaya, round, times);
        }
        Ok::<(), Failure>(())
    };
    dsm(2, &STEPS.map(|step| step.name))?;
    for &nodes in options.barriers.iter().filter(|&&nodes| nodes > 2) {
        dsm(nodes, &[BARRIER])?;
    }
    for series in Series::PEERS {
        for step in &STEPS {
            steps.add(step.name, 2, series, round, peers.least(step, series));
        }
    }
    Ok(())
}
