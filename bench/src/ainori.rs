//! Sakaguchi et al., *Ainori communication*, Figures 5 to 12: speed-ups and page messages of
//! MM, SOR, LU and IS on 1 to 32 processes, without rides and with each policy of rides, by
//! `nagaya sim` on the paper's cluster; and page messages of real runs beside the simulator's.

mod figures;
mod paper;
mod real;
mod report;
mod simulated;

use std::path::Path;

use clap::{Parser, ValueEnum};

use crate::failure::Failure;
use crate::launch::Nagaya;

/// What is run.
#[derive(Parser)]
pub struct Options {
    /// Numbers of processes in the simulator, two a machine; the first is the one that
    /// speed-ups are against
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N,...",
        default_value = "1,2,4,8,12,16,20,24,28,32"
    )]
    processes: Vec<usize>,
    /// Numbers of nodes of real runs
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "2,4,8")]
    nodes: Vec<usize>,
    /// Policies of rides; normal has to be among them
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POLICY,...",
        default_value = "normal,ainori1,ainori2,ainori3,auto"
    )]
    rides: Vec<String>,
    /// Do these only
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PART,...",
        default_value = "simulated,real"
    )]
    only: Vec<Part>,
    /// Programs of small size in the simulator, too
    #[arg(skip)]
    small: bool,
}

/// What can be done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The figures.
    Simulated,
    /// Real runs.
    Real,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["ainori"])
    }

    /// As little as shows that everything runs.
    pub fn quick(mut self) -> Self {
        (self.processes, self.nodes, self.small) = (vec![1, 2, 4], vec![2], true);
        self
    }
}

/// The policy that the others are held against.
const NORMAL: &str = "normal";

/// Runs, prints tables, writes CSV files and a figure.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    if !options.rides.iter().any(|policy| policy == NORMAL) {
        return Err(Failure::new("--rides: the others are held against normal: give it, too"));
    }
    let mut failures = Vec::new();
    if options.only.contains(&Part::Simulated) {
        let simulated = simulated::run(options, nagaya, out)
            .and_then(|runs| report::write(&runs, options, out));
        failures.extend(simulated.err());
    }
    if options.only.contains(&Part::Real) {
        failures.extend(real::run(options, nagaya, out).err());
    }
    Failure::of_all(failures)
}
