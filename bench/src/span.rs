//! One process over two nodes: single operations beside their lower bounds, UCX's round trip of the
//! same bytes and a bare fault; and computing programs, on two nodes with one processor each,
//! beside one processor.

mod options;
mod programs;
mod report;
mod step;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::programs::compile;
use crate::progress::progress;
use crate::steps::peers::Peers;
use crate::steps::{Series, Steps, times_of};
pub use options::Options;
use options::Part;
use programs::Programs;
use step::STEPS;

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Measures, prints tables, writes CSV files and a figure.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut steps = Steps::new();
    let mut failures = Vec::new();
    let wanted = |part| options.only.contains(&part);
    for round in (1..=options.rounds).take_while(|_| wanted(Part::Steps)) {
        progress(&format!("span, round {round} of {}", options.rounds));
        if let Err(failure) = one_round(&mut steps, round, options.samples, nagaya, out) {
            failures.push(failure);
            break;
        }
    }
    let mut programs = Programs::new();
    if wanted(Part::Programs) {
        failures.extend(programs.measure(options, nagaya, out));
    }
    progress("");
    report::write(&steps, &programs, options, out)?;
    Failure::of_all(failures)
}

/// Returns the command for two nodes, each with its own processor if there are enough.
fn on_two_nodes(nagaya: &Nagaya, program: &Path) -> Command {
    let mut command = Command::new(&nagaya.command);
    command.args(["span", "--nodes", "2", "--place", "spread"]).arg(program);
    command
}

/// Measures the peers, then Nagaya.
fn one_round(
    steps: &mut Steps,
    round: u32,
    samples: u32,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<(), Failure> {
    let peers = Peers::measure(PAGE_BYTES, samples, out)?;
    let program = compile("span_latency", out)?;
    let mut command = on_two_nodes(nagaya, &program);
    command.arg(samples.to_string()).args(STEPS.map(|step| step.name));
    let output = output_of(&mut command, TIME_LIMIT)?;
    for step in &STEPS {
        let times = times_of(&output, &[step.name]).ok_or_else(|| {
            Failure::new(format!("span_latency: does not print {}: {output}", step.name))
        })?;
        steps.add(step.name, 2, Series::Nagaya, round, times);
        let has_peer = step.round_trip.is_some() || step.fault.is_some();
        for series in Series::PEERS.into_iter().filter(|_| has_peer) {
            steps.add(step.name, 2, series, round, peers.least(step, series));
        }
    }
    Ok(())
}
