//! The options of the benchmark of shared memory between nodes.

use clap::{Parser, ValueEnum};

/// The number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round everything runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Samples per run; their median and 99th percentile are used
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    pub samples: u32,
    /// Numbers of nodes at a barrier
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    pub barriers: Vec<usize>,
    /// Numbers of nodes of the programs
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16")]
    pub nodes: Vec<usize>,
    /// Measure only these parts
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PART,...",
        default_value = "steps,traffic,simulated,speedup"
    )]
    pub only: Vec<Part>,
    /// Run programs with small inputs
    #[arg(skip)]
    pub small: bool,
}

/// The parts of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Single operations
    Steps,
    /// Messages of programs
    Traffic,
    /// Simulated and real time
    Simulated,
    /// Speed-ups in the simulator
    Speedup,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["dsm"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.samples, self.small) = (1, 100, true);
        (self.barriers, self.nodes) = (vec![2, 3], vec![2, 3]);
        self
    }
}
