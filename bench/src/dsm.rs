//! Shared memory between nodes: single steps beside what they cannot do without, UCX's own
//! round trip of the same bytes and a bare fault; what programs send, at 2 to 16 nodes; and
//! what the simulator says of their time, on 2 nodes beside the real one, and on many.

mod report;
mod simulated;
mod speedup;
pub mod traffic;

use std::path::Path;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::Mpi;
use crate::programs;
use crate::progress::progress;
use crate::steps::peers::Peers;
use crate::steps::{FaultKind, Reply, Step, Steps, Way, times_of};
use traffic::{Traffic, Wanted};

/// How often it is measured.
#[derive(Parser)]
pub struct Options {
    /// How often everything is run, in turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Samples a run, whose median and 99th percentile count
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    samples: u32,
    /// Nodes that meet at a barrier
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    barriers: Vec<usize>,
    /// Nodes that the programs run on
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16")]
    nodes: Vec<usize>,
    /// Measure these only
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PART,...",
        default_value = "steps,traffic,simulated,speedup"
    )]
    only: Vec<Part>,
    /// Programs of small size
    #[arg(skip)]
    small: bool,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Single steps.
    Steps,
    /// What programs send.
    Traffic,
    /// Simulated time against real time.
    Simulated,
    /// Speed-ups in the simulator.
    Speedup,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["dsm"])
    }

    /// As little as shows that everything runs.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.samples, self.small) = (1, 100, true);
        (self.barriers, self.nodes) = (vec![2, 3], vec![2, 3]);
        self
    }
}

const BARRIER: &str = "barrier";

const STEPS: [Step; 7] = [
    Step {
        name: "read-miss",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: Some(1.5),
    },
    Step {
        name: "write-miss",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: None,
    },
    Step { name: "upgrade", round_trip: None, fault: Some(FaultKind::Write), asked: None },
    Step { name: "lock", round_trip: Some(Reply::Short), fault: None, asked: Some(1.3) },
    Step { name: "lock-again", round_trip: Some(Reply::Short), fault: None, asked: None },
    Step { name: "hand-over", round_trip: Some(Reply::Short), fault: None, asked: None },
    Step { name: BARRIER, round_trip: Some(Reply::Short), fault: None, asked: Some(1.5) },
];

/// Bytes of a page, the library's default.
const PAGE: usize = 8192;

const PATIENCE: Duration = Duration::from_secs(120);

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
            // What rides along, and when, depends on the moment: `ainori` looks at that.
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

/// Peers, and then the library, beside them.
fn one_round(
    steps: &mut Steps,
    round: u32,
    options: &Options,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<(), Failure> {
    let peers = Peers::measure(PAGE, options.samples, out)?;
    let program = programs::compile_with_jia("dsm_latency", nagaya, out)?;
    let mut dsm = |nodes: usize, names: &[&'static str]| {
        let mut command = Mpi::Ompi4.nodes(nodes, &program)?;
        command.arg(options.samples.to_string()).args(names);
        // A miss is a page, and brings no others.
        command.env("NAGAYA_DSM_RIDES", "normal");
        let output = output_of(&mut command, PATIENCE)?;
        for name in names {
            let times = times_of(&output, &[name]).ok_or_else(|| {
                Failure::new(format!("dsm_latency: says nothing of {name}: {output}"))
            })?;
            steps.add(name, nodes, Way::Nagaya, round, times);
        }
        Ok::<(), Failure>(())
    };
    dsm(2, &STEPS.map(|step| step.name))?;
    for &nodes in options.barriers.iter().filter(|&&nodes| nodes > 2) {
        dsm(nodes, &[BARRIER])?;
    }
    for way in Way::PEERS {
        for step in &STEPS {
            steps.add(step.name, 2, way, round, peers.least(step, way));
        }
    }
    Ok(())
}
