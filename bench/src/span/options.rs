//! The options of the benchmark of one process over two nodes.

use clap::{Parser, ValueEnum};

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round everything runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Samples per run; their median and 99th percentile are used
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..))]
    pub samples: u32,
    /// Measure only these parts
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "PART,...",
        default_value = "steps,programs"
    )]
    pub only: Vec<Part>,
    /// Run only programs whose names begin with one of these, such as `pigz`
    #[arg(long, value_delimiter = ',')]
    pub programs: Vec<String>,
    /// Run programs with small inputs
    #[arg(skip)]
    pub small: bool,
}

/// The parts of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Single operations
    Steps,
    /// Computing programs
    Programs,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["span"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.samples, self.small) = (1, 100, true);
        self
    }
}
