//! Delegated MPI, with each MPI: each rank is a task of a separate space, and makes the calls of
//! the other tasks. The cases are in `programs/delegate_mpi.c`.

use std::path::PathBuf;

use nagaya_tests::mpi::{INTEL_MPI, MPICH_4, MPICH_5, Mpi, OPEN_MPI_4, OPEN_MPI_5};
use nagaya_tests::{Cmd, WorkDir, nagaya, program};

fn program(mpi: Mpi) -> PathBuf {
    mpi.compile_with_libraries("delegate_mpi.c", &["pvas_delegate", "pvas"])
}

/// Runs a case with this many ranks, each with two requesters.
#[track_caller]
fn holds(mpi: Mpi, ranks: usize, case: &str) {
    // One that fails takes the others along.
    let space = nagaya("run").args(["-K", "-n", "3"]).arg(program(mpi)).arg(case);
    let output = mpi.launch(ranks).command(space).run();
    assert!(output.status.success(), "{output}");
}

/// A module for each MPI, with a test for each case.
macro_rules! cells {
    ($($module:ident: $mpi:ident),* $(,)?) => {
        $(mod $module {
            use super::*;

            #[test]
            fn messages_come_as_sent_whoever_is_first() {
                holds($mpi, 3, "messages");
            }

            #[test]
            fn one_thread_has_many_calls_on_their_way() {
                holds($mpi, 2, "many");
            }

            #[test]
            fn collectives_give_the_same_as_plain_mpi() {
                holds($mpi, 3, "collectives");
            }

            #[test]
            fn a_wrong_argument_fails_the_call_and_not_the_rank() {
                holds($mpi, 2, "errors");
            }

            #[test]
            fn a_rank_that_closes_leaves_nobody_waiting() {
                holds($mpi, 2, "closes");
            }

            #[test]
            fn a_requester_that_is_killed_keeps_its_memory_while_mpi_needs_it() {
                let dir = WorkDir::new();
                let owner = Cmd::new(program($mpi)).arg("dies");
                let output = $mpi.launch(2).command(owner).dir(dir.path()).run();
                assert!(output.status.success(), "{output}");
            }
        })*
    };
}

cells! {
    openmpi4: OPEN_MPI_4,
    openmpi5: OPEN_MPI_5,
    mpich4: MPICH_4,
    mpich5: MPICH_5,
    intel: INTEL_MPI,
}

#[test]
fn the_headers_are_c_and_cplusplus_and_the_requesters_needs_no_mpi() {
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        let flags = ["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"];
        let header = program::include_dir().join("pvas_delegate_mpi.h");
        Cmd::new(compiler).args(flags).arg(program::include_dir()).arg(header).run().ok();
    }
}
