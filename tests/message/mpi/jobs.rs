//! Jobs as a whole: several at once, what a launcher passes on, what remains.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use nagaya_tests::mpi::{MPICH_4, OPEN_MPI_4};
use nagaya_tests::{Cmd, WorkDir, is_alive, nagaya, ps, wait_until};

#[test]
fn two_mpi_jobs_at_once_stay_apart() {
    let open_mpi = OPEN_MPI_4.launch_tasks(2, OPEN_MPI_4.compile("mpi_messages.c"));
    let mpich = MPICH_4.launch_tasks(2, MPICH_4.compile("mpi_messages.c"));
    let running: Vec<_> = [open_mpi.clone(), open_mpi, mpich].into_iter().map(Cmd::spawn).collect();
    for job in running {
        job.wait().prints("messages arrived\n");
    }
}

#[test]
fn the_launcher_forwards_standard_input_to_rank_0() {
    for mpi in [OPEN_MPI_4, MPICH_4] {
        // MPICH's launcher never closes the other ranks' standard input.
        let script = "if [ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 0 ]; then cat; fi";
        mpi.launch_tasks(2, "sh")
            .args(["-c", script])
            .stdin("to rank 0\n")
            .run()
            .prints("to rank 0\n");
    }
}

#[test]
fn a_program_that_cannot_be_a_task_runs_beside_us_on_request() {
    let dir = WorkDir::new();
    let bytes = std::fs::read(OPEN_MPI_4.compile("mpi_messages.c")).expect("read it");
    let program = dir.write_executable("set-id", bytes);
    std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("chmod");
    let output = OPEN_MPI_4.launch(2).command(nagaya("exec").arg("--fallback").arg(&program)).run();
    assert!(output.stderr.contains("nagaya: "), "{output}");
    output.prints("messages arrived\n");
}

#[test]
fn nothing_remains_after_an_mpi_job() {
    let short = WorkDir::short();
    let program = OPEN_MPI_4.compile("mpi_messages.c");
    let dir = WorkDir::new();
    let done = dir.join("done");
    let mut job = OPEN_MPI_4
        .launch_tasks(2, &program)
        .arg(&done)
        .env("XDG_RUNTIME_DIR", short.path())
        .spawn();
    job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
    let tasks = ps(|command| command.env("XDG_RUNTIME_DIR", short.path()));
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    let server: i32 = nagaya_tests::proc_status(tasks[0].pid, "PPid")
        .and_then(|pid| pid.parse().ok())
        .expect("the task's parent");
    std::fs::write(&done, "").expect("write");
    job.wait().ok();
    wait_until("the node server is gone", nagaya_tests::TIME_LIMIT, || !is_alive(server));
    for task in tasks {
        assert!(!is_alive(task.pid), "{task:?}");
    }
    let left: Vec<_> = std::fs::read_dir(short.join("nagaya"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let sockets = left.iter().filter(|path| {
        use std::os::unix::fs::FileTypeExt as _;
        path.symlink_metadata().is_ok_and(|data| data.file_type().is_socket())
    });
    assert_eq!(sockets.count(), 0, "{left:?}");
}
