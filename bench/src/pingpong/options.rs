//! The options of the ping-pong.

use clap::Parser;

use super::sample::Workload;
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::sizes;

/// The selection and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations to use
    #[arg(long, value_delimiter = ',', default_value = Mpi::ALL)]
    pub mpi: Vec<Mpi>,
    /// Modes of message transfer
    #[arg(long, value_delimiter = ',', default_value = "eager,rendezvous,cma,space,limit")]
    pub mode: Vec<Mode>,
    /// Workloads: the own program with unchanged or freshly written buffers or as a one-way stream;
    /// NetPIPE (CMA and space)
    #[arg(long, value_delimiter = ',', default_value = "unchanged,fresh,stream,netpipe")]
    pub workload: Vec<Workload>,
    /// Message sizes: 0, bytes, or with K or M [default: 8 to 4M]
    #[arg(long, value_delimiter = ',', value_parser = sizes::parse_or_none)]
    pub sizes: Vec<usize>,
    /// Link the own program to fixed addresses (not PIE): each task then has its own page tables
    #[arg(long)]
    pub fixed: bool,
    /// Number of rounds; in each round every mode runs once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Repetitions per run of the own program; their median is used
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Duration of a repetition for each size, in milliseconds
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    pub milliseconds: u32,
    /// Subdirectory for results.
    #[arg(skip)]
    pub folder: Option<&'static str>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["pingpong"])
    }

    /// Debian's MPIs as they are and under Nagaya, in less than a minute.
    pub fn demo() -> Self {
        let words = "pingpong --mpi openmpi,mpich --mode cma,space,exec,limit \
                     --workload unchanged,fresh";
        Self::parse_from(words.split_whitespace())
    }

    /// MPIs over Nagaya's libfabric provider, beside their own shared memory.
    pub fn over_the_provider() -> Self {
        let words = "pingpong --mpi openmpi,openmpi5,mpich5,impi --mode cma,space,provider,limit \
                     --workload unchanged,fresh,stream --rounds 3 \
                     --sizes 0,8,64,1K,4K,16K,64K,128K,256K,1M,4M,16M";
        let options = Self::parse_from(words.split_whitespace());
        Self { folder: Some("libfabric"), ..options }
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds) = (2, 1, 1);
        self.workload.retain(|workload| *workload != Workload::NetPipe);
        if self.sizes.is_empty() {
            self.sizes = vec![8, 64 << 10, 1 << 20];
        }
        self
    }

    /// Returns the message sizes.
    pub fn sizes(&self) -> Vec<usize> {
        if self.sizes.is_empty() { sizes::all() } else { self.sizes.clone() }
    }
}
