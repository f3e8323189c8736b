//! The options of the benchmark of the Ainori paper.

use clap::{Parser, ValueEnum};

/// The policy that the others are held against.
pub const NORMAL: &str = "normal";

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
    pub processes: Vec<usize>,
    /// Numbers of nodes of real runs
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "2,4,8")]
    pub nodes: Vec<usize>,
    /// Policies of rides; normal has to be among them
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
    /// Run programs with small inputs
    #[arg(skip)]
    pub small: bool,
}

/// What can be done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The figures.
    Simulated,
    /// Real runs.
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
