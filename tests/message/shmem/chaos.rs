//! A PE that is killed at a random instant ends the job, with one line, and nothing remains.

use std::time::Duration;

use nagaya_tests::mpi::{MPICH_5, OPEN_MPI_5};
use nagaya_tests::remains::{MARK, Remains};
use nagaya_tests::{Cmd, Output, TIME_LIMIT, chaos_rounds, kill, seed};
use rustix::process::Signal;

use crate::{compiled, oshrun};

/// Starts the job, kills a PE, and returns the job's output.
fn kill_one(job: Cmd, random: &mut fastrand::Rng) -> Output {
    let remains = Remains::new();
    let mut job = job.env(MARK, remains.mark()).time_limit(TIME_LIMIT).spawn();
    let pids = job.wait_for_pids(3);
    std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
    kill(pids[random.usize(..3)], Signal::KILL);
    let output = job.wait();
    assert_ne!(output.code(), 0, "{output}");
    remains.none("a PE");
    output
}

#[test]
fn a_pe_is_killed_under_oshrun() {
    let mut random = fastrand::Rng::with_seed(seed());
    let program = compiled("endless.c", &[]);
    for _ in 0..chaos_rounds(20) {
        let output = kill_one(oshrun(3, &program), &mut random);
        assert_eq!(output.code(), 128 + libc::SIGKILL, "{output}");
        let lines: Vec<&str> = output.stderr.lines().collect();
        let is_told = lines.len() == 1 && lines[0].contains("was killed by signal 9");
        assert!(is_told, "{output}");
    }
}

#[test]
fn a_pe_is_killed_under_mpirun() {
    let mut random = fastrand::Rng::with_seed(seed());
    let program = compiled("endless.c", &[]);
    for mpi in [OPEN_MPI_5, MPICH_5] {
        for _ in 0..chaos_rounds(8).div_ceil(2) {
            kill_one(mpi.launch(3).arg(&program), &mut random);
        }
    }
}
