//! One process over two nodes: single steps beside what they cannot do without, UCX's own round
//! trip of the same bytes and a bare fault; and programs that compute, on two nodes with one
//! processor each beside one processor.

mod programs;
mod report;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::programs::compile;
use crate::progress::progress;
use crate::steps::peers::Peers;
use crate::steps::{FaultKind, Reply, Step, Steps, Way, times_of};
use programs::Programs;

/// What is measured, and how often.
#[derive(Parser)]
pub struct Options {
    /// How often everything is run, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Samples a run, whose median and 99th percentile count
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    samples: u32,
    /// Measure these only
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PART,...",
        default_value = "steps,programs"
    )]
    only: Vec<Part>,
    /// Only programs whose names begin so, such as `pigz`
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,
    /// Programs of small size
    #[arg(skip)]
    small: bool,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Single steps.
    Steps,
    /// Programs that compute.
    Programs,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["span"])
    }

    /// As little as shows that everything runs.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.samples, self.small) = (1, 100, true);
        self
    }
}

const FETCH: &str = "page-fetch";
const RUN: &str = "run-of-16";
/// A run costs at most so many single pages.
const RUN_MOST: f64 = 2.5;
const MOVE: &str = "move";
/// A thread is elsewhere and back in at most so many µs.
const MOVE_MOST_US: f64 = 300.0;

const STEPS: [Step; 11] = [
    Step {
        name: FETCH,
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: Some(1.3),
    },
    Step {
        name: "fetch-busy",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: None,
    },
    Step {
        name: "page-take",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: None,
    },
    Step {
        name: "upgrade",
        round_trip: Some(Reply::Short),
        fault: Some(FaultKind::Write),
        asked: None,
    },
    Step { name: RUN, round_trip: Some(Reply::Page), fault: Some(FaultKind::Read), asked: None },
    Step { name: "call", round_trip: Some(Reply::Short), fault: None, asked: Some(1.3) },
    Step { name: "call-here", round_trip: None, fault: None, asked: None },
    Step { name: "clock", round_trip: None, fault: None, asked: None },
    Step { name: "wake", round_trip: Some(Reply::Short), fault: None, asked: None },
    // With its registers, which need less room than a page.
    Step { name: MOVE, round_trip: Some(Reply::Page), fault: None, asked: None },
    Step { name: "thread", round_trip: Some(Reply::Short), fault: None, asked: None },
];

/// Bytes of a page.
const PAGE: usize = 4096;

const PATIENCE: Duration = Duration::from_secs(300);

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

/// The program on two nodes, each with a processor of its own where there are as many.
fn on_two_nodes(nagaya: &Nagaya, program: &Path) -> Command {
    let mut command = Command::new(&nagaya.command);
    command.args(["span", "--nodes", "2", "--place", "spread"]).arg(program);
    command
}

/// Peers, and then ours, beside them.
fn one_round(
    steps: &mut Steps,
    round: u32,
    samples: u32,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<(), Failure> {
    let peers = Peers::measure(PAGE, samples, out)?;
    let program = compile("span_latency", out)?;
    let mut command = on_two_nodes(nagaya, &program);
    command.arg(samples.to_string()).args(STEPS.map(|step| step.name));
    let output = output_of(&mut command, PATIENCE)?;
    for step in &STEPS {
        let times = times_of(&output, &[step.name]).ok_or_else(|| {
            Failure::new(format!("span_latency: says nothing of {}: {output}", step.name))
        })?;
        steps.add(step.name, 2, Way::Nagaya, round, times);
        let has_peer = step.round_trip.is_some() || step.fault.is_some();
        for way in Way::PEERS.into_iter().filter(|_| has_peer) {
            steps.add(step.name, 2, way, round, peers.least(step, way));
        }
    }
    Ok(())
}
