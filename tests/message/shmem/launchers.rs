//! Launchers of others start PEs, with and without `nagaya exec`; MPI and OpenSHMEM in one program.

use nagaya_tests::mpi::{ALL, MPICH_4, MPICH_5, Mpi, OPEN_MPI_4, OPEN_MPI_5};
use nagaya_tests::slurm::Slurm;
use nagaya_tests::{Cmd, program, tasks};

use crate::compiled;

const CASES: [&str; 3] = ["moves", "signals", "statics"];

#[test]
fn nagaya_run() {
    for case in CASES {
        tasks(3, compiled("chapters.c", &[])).arg(case).run().ok();
    }
}

/// The library executes the program again by `nagaya exec`.
#[test]
fn mpirun_mpiexec_and_prterun_without_nagaya_exec() {
    let program = compiled("chapters.c", &[]);
    for mpi in ALL {
        for case in CASES {
            mpi.launch(3).arg(&program).arg(case).run().ok();
        }
    }
}

#[test]
fn mpirun_with_nagaya_exec() {
    let program = compiled("chapters.c", &[]);
    for mpi in [OPEN_MPI_4, OPEN_MPI_5, MPICH_4, MPICH_5] {
        mpi.launch_tasks(3, &program).arg("signals").run().ok();
    }
}

#[test]
fn a_program_that_is_started_alone_has_one_pe() {
    Cmd::new(compiled("chapters.c", &[])).arg("moves").run().ok();
}

#[test]
fn srun_by_pmix_and_by_pmi2() {
    let (slurm, program) = (Slurm::start(&["n0"]), compiled("chapters.c", &[]));
    for interface in ["pmix", "pmi2"] {
        let srun = slurm.client("srun").args([&format!("--mpi={interface}"), "-n", "3"]);
        srun.arg(&program).arg("signals").env("UCX_TLS", "tcp,self").run().ok();
    }
}

/// MPI and OpenSHMEM initialise in either order.
fn with_mpi(mpi: Mpi) {
    let flags = program::library_flags(&["nagaya-shmem"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = mpi.compile_with("shmem/with_mpi.c", &flags);
    for first in ["mpi", "shmem"] {
        mpi.launch(2).arg(&program).arg(first).run().prints("both\n");
    }
}

#[test]
fn with_open_mpi_4() {
    with_mpi(OPEN_MPI_4);
}

#[test]
fn with_open_mpi_5() {
    with_mpi(OPEN_MPI_5);
}

#[test]
fn with_mpich_4() {
    with_mpi(MPICH_4);
}

#[test]
fn with_mpich_5() {
    with_mpi(MPICH_5);
}
