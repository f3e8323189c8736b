//! The options of the benchmark of the Ainori paper.

use clap::{Parser, ValueEnum};

/// The policy that the others are compared with.
pub const NORMAL: &str = "normal";

/// The selection of runs.
#[derive(Parser)]
pub struct Options {
    /// Numbers of processes in the simulator, two per machine; speed-ups are relative to the first
    /// one
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N,...",
        default_value = "1,2,4,8,12,16,20,24,28,32"
    )]
    pub processes: Vec<usize>,
    /// Numbers of nodes of real runs
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "2,4,8")]
    pub nodes: Vec<usize>,
    /// Policies of rides; must include normal
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "POLICY,...",
        default_value = "normal,ainori1,ainori2,ainori3,auto"
    )]
    pub rides: Vec<String>,
    /// Run only these parts
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PART,...",
        default_value = "simulated,real"
    )]
    pub only: Vec<Part>,
    /// Instead, compare all choices that the paper leaves open with its numbers, best first
    #[arg(long)]
    pub fit: bool,
    /// Run programs with small inputs
    #[arg(skip)]
    pub small: bool,
}

/// The parts of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Figures in the simulator
    Simulated,
    /// Real runs
    Real,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["ainori"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.processes, self.nodes, self.small) = (vec![1, 2, 4], vec![2], true);
        self
    }
}
