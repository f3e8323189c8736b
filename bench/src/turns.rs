//! A job of an MPI with the library's default settings, without and with `nagaya exec`, by turns.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::launch::{Nagaya, Side, output_of};
use crate::mpi::Mpi;

/// A program under an MPI.
pub struct Job {
    /// The MPI.
    pub mpi: Mpi,
    /// Number of ranks.
    pub ranks: usize,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment variables, for both sides.
    pub environment: Vec<(&'static str, OsString)>,
    /// Time limit of a run.
    pub time_limit: Duration,
}

/// A run of a job.
pub struct Run {
    /// Time of the whole `mpirun`.
    pub seconds: f64,
    /// The program's standard output.
    pub output: String,
}

impl Job {
    /// Runs the job on one side. Fails if its exit status is not 0.
    pub fn run(&self, side: Side, nagaya: &Nagaya) -> Result<Run, Failure> {
        let mut command = self.mpi.by_default(self.ranks, side, nagaya, &self.program)?;
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let begin = Instant::now();
        let output = output_of(&mut command, self.time_limit)?;
        Ok(Run { seconds: begin.elapsed().as_secs_f64(), output })
    }
}

/// Runs both sides once in each round. Each side goes first in every other round.
pub fn by_turns<T>(
    rounds: u32,
    mut run: impl FnMut(Side) -> Result<T, Failure>,
) -> Result<Vec<[T; 2]>, Failure> {
    let [plain, tasks] = Side::BOTH;
    let round = |round: u32| {
        Ok(if round.is_multiple_of(2) {
            let plain = run(plain)?;
            [plain, run(tasks)?]
        } else {
            let tasks = run(tasks)?;
            [run(plain)?, tasks]
        })
    };
    (0..rounds).map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_goes_first_in_every_other_round() {
        let mut order = Vec::new();
        let rounds = by_turns(2, |side| {
            order.push(side);
            Ok(side)
        });
        assert_eq!(rounds.unwrap(), [Side::BOTH, Side::BOTH]);
        assert_eq!(order, [Side::Plain, Side::Nagaya, Side::Nagaya, Side::Plain]);
    }
}
