//! Foreign programs: NetPIPE and mpi4py.

use nagaya_tests::mpi::{MPICH_4, Mpi, OPEN_MPI_4};
use nagaya_tests::program::{made_once, source_dir};
use nagaya_tests::python::{interpreter, packages};
use nagaya_tests::{Cmd, WorkDir, tool};

fn netpipe_runs(mpi: Mpi, program: &str) {
    let netpipe = tool(program);
    let dir = WorkDir::new();
    // -i checks every message instead of timing it.
    let checked = mpi
        .launch_tasks(2, &netpipe)
        .args(["-i", "-u", "1048576", "-n", "5", "-o"])
        .arg(dir.join("checked"))
        .run();
    let text = format!("{}{}", checked.stdout, checked.stderr);
    assert!(checked.status.success(), "{checked}");
    assert!(text.matches("Integrity check passed").count() > 20, "{checked}");
    assert!(!text.to_lowercase().contains("fail"), "{checked}");
    let results = dir.join("timed");
    mpi.launch_tasks(2, &netpipe)
        .args(["-u", "4194304", "-n", "10", "-p", "0", "-o"])
        .arg(&results)
        .run()
        .ok();
    let results = std::fs::read_to_string(results).expect("NetPIPE's results");
    assert!(results.lines().count() > 30, "{results}");
}

fn mpi4py_command(mpi: Mpi) -> Cmd {
    mpi.launch_tasks(2, interpreter())
        .arg(source_dir().join("mpi_work.py"))
        .env("PYTHONPATH", packages())
}

#[test]
fn netpipe_runs_over_open_mpi() {
    netpipe_runs(OPEN_MPI_4, "NPopenmpi");
}

#[test]
fn netpipe_runs_over_mpich() {
    netpipe_runs(MPICH_4, "NPmpich2");
}

#[test]
fn mpi4py_runs_over_open_mpi() {
    mpi4py_command(OPEN_MPI_4).run().prints("Open MPI: 2 ranks agree\n");
}

#[test]
fn mpi4py_runs_over_mpich() {
    // mpi4py asks for MPICH's library by the name that the MPICH ABI gives it; Debian names it
    // libmpich.
    let directory = made_once("mpich-abi", &"debian", |path| {
        std::fs::create_dir(path).expect("make a directory");
        let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
        std::os::unix::fs::symlink(library, path.join("libmpi.so.12")).expect("link");
    });
    mpi4py_command(MPICH_4)
        .env("MPI4PY_MPIABI", "mpich")
        .env("LD_LIBRARY_PATH", directory)
        .run()
        .prints("MPICH: 2 ranks agree\n");
}
