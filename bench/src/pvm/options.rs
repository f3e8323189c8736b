//! The options of the PVM benchmark.

use clap::Parser;

use super::part::Part;

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// Parts of the run
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "messages,netpipe,stream,groups,spawn,hosts"
    )]
    pub only: Vec<Part>,
    /// Number of rounds; in each round every transport runs once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Repetitions per run; their median is used
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Duration of a repetition for each size or operation, in milliseconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub milliseconds: u32,
    /// Numbers of tasks for groups, rings and pairs
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    pub tasks: Vec<u32>,
    /// Number of tasks that a run spawns and kills
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub spawns: u32,
    /// Message sizes in bytes
    #[arg(skip = vec![4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20])]
    pub sizes: Vec<usize>,
    /// If set, two hosts are also measured in network namespaces.
    #[arg(skip = true)]
    pub namespaces: bool,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["pvm"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds, self.spawns) = (1, 1, 1, 2);
        self.tasks.truncate(2);
        self.sizes = vec![4, 4 << 10, 1 << 20];
        self.only.retain(|part| *part != Part::NetPipe);
        self.namespaces = false;
        self
    }
}
