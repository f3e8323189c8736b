//! The options of the FCP benchmark.

use clap::Parser;

/// The number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round every transport runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Repetitions per run; their median is used
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Duration of a repetition for each size, in milliseconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub milliseconds: u32,
    /// Message sizes in bytes
    #[arg(skip = vec![4, 8, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20])]
    pub sizes: Vec<usize>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["fcp"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds) = (1, 1, 1);
        self.sizes = vec![4, 8, 4 << 10, 1 << 20];
        self
    }
}
