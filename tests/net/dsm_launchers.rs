//! Shared memory under launchers that speak PMI-1 (MPICH's and Intel MPI's): jobs are formed, on
//! one node and across two. If they cannot be, one line reports it and the launcher's status is
//! not zero.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nagaya_tests::mpi::{INTEL_MPI, MPICH_4, MPICH_5, Mpi, OPEN_MPI_4};
use nagaya_tests::nodes::{NAMES, Nodes, Shares};
use nagaya_tests::program::c_with_libraries;
use nagaya_tests::{Cmd, Output, is_alive, kill, nagaya, skip, tool, wait_until};
use rustix::process::Signal;

/// Time limit of a job.
const LIMIT: Duration = Duration::from_secs(120);
/// Until all tasks have ended when one is lost, or never came.
const LOST_MAX: Duration = Duration::from_secs(30);

const LAUNCHERS: [Mpi; 3] = [MPICH_4, MPICH_5, INTEL_MPI];

fn program(name: &str) -> PathBuf {
    c_with_libraries(&format!("dsm/{name}.c"), &["jia"])
}

fn litmus() -> Cmd {
    Cmd::new(program("litmus")).args(["all", "20"]).time_limit(LIMIT)
}

/// All litmus programs are right, in one job, which its launcher saw end well.
fn is_right(output: Output) {
    let said = output.ok();
    assert_eq!(said.matches(" is right\n").count(), 15, "{said}");
}

fn is_right_under(mpi: Mpi) {
    is_right(mpi.launch(4).command(litmus()).time_limit(LIMIT).run());
    // The tasks of a space as one node.
    let exec = mpi.launch(4).command(nagaya("exec").command(litmus()));
    is_right(exec.time_limit(LIMIT).run());
}

#[test]
fn mpich_4_starts_tasks_that_share_memory() {
    is_right_under(MPICH_4);
}

#[test]
fn mpich_5_starts_tasks_that_share_memory() {
    is_right_under(MPICH_5);
}

#[test]
fn intel_mpi_starts_tasks_that_share_memory() {
    is_right_under(INTEL_MPI);
}

#[test]
fn hydra_s_port_will_do_instead_of_a_descriptor() {
    for mpi in [MPICH_4, MPICH_5] {
        let port = |program: Cmd| mpi.launch(3).arg("-pmi-port").command(program).time_limit(LIMIT);
        is_right(port(litmus()).run());
        // A shell in between, so that the tasks' parents differ.
        let exec = Cmd::new("sh").args(["-c", "\"$@\"; exit $?", "sh"]);
        is_right(port(exec.command(nagaya("exec").command(litmus()))).run());
    }
}

#[test]
fn two_machines_share_memory_under_pmi() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip("only root can make network namespaces");
    };
    for mpi in LAUNCHERS {
        let launch = |program: Cmd| {
            let launcher = mpi.launch_on([NAMES[0], NAMES[1]], &nodes.agent());
            nodes.on(0, launcher.command(program)).time_limit(LIMIT)
        };
        is_right(launch(litmus()).run());
        is_right(launch(nagaya("exec").command(litmus())).run());
    }
}

/// A launcher within another's job: the inner one's processes are the job.
#[test]
fn the_inner_of_two_launchers_forms_the_job() {
    let outer = Cmd::new(tool("mpirun.openmpi")).args(["-n", "1"]);
    is_right(outer.command(MPICH_4.launch(3).command(litmus())).time_limit(LIMIT).run());
    let inner = Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n", "3"]);
    is_right(MPICH_4.launch(1).command(inner.command(litmus())).time_limit(LIMIT).run());
    let run = nagaya("run").args(["--nodes", "1", "-n", "2"]);
    let said = MPICH_4.launch(2).command(run.command(litmus())).time_limit(LIMIT).run().ok();
    assert_eq!(said.matches(" is right\n").count(), 2 * 15, "a job for each rank: {said}");
    let run = nagaya("run").args(["--nodes", "1", "-n", "1"]);
    is_right(run.command(MPICH_4.launch(3).command(litmus())).time_limit(LIMIT).run());
}

#[test]
fn tasks_of_pmi_that_are_killed_end_all_others() {
    for mpi in LAUNCHERS {
        let mut job = mpi.launch(3).arg(program("endless")).time_limit(LIMIT).spawn();
        let pids: Vec<i32> = job.wait_for_lines(3).iter().map(|line| pid_in(line)).collect();
        kill(pids[1], Signal::KILL);
        let output = job.wait();
        assert_ne!(output.code(), 0, "{output}");
        wait_until("all tasks are gone", LOST_MAX, || !pids.iter().any(|&pid| is_alive(pid)));
    }
}

fn pid_in(line: &str) -> i32 {
    line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a PID")
}

#[test]
fn tasks_of_pmi_that_never_join_end_the_job() {
    for mpi in LAUNCHERS {
        let begin = Instant::now();
        let job = mpi.launch(3).arg(program("misuse")).arg("absent").env("NAGAYA_DSM_JOIN", "2");
        let output = job.time_limit(LIMIT).run();
        assert_ne!(output.code(), 0, "{output}");
        assert!(begin.elapsed() < LOST_MAX, "{output}");
        assert!(output.stderr.contains("not called jia_init within "), "{output}");
    }
}

#[test]
fn a_job_that_cannot_be_formed_is_never_several_jobs_of_one() {
    // Scripts that close the launcher's descriptor, or hide it.
    let closes = "eval \"exec $PMI_FD>&-\"; exec \"$@\"";
    let hides = "unset PMI_FD; exec \"$@\"";
    for (script, words) in [(closes, " is no socket"), (hides, "PMI_FD is not set")] {
        for exec in [false, true] {
            let program = if exec { nagaya("exec").command(litmus()) } else { litmus() };
            let script = Cmd::new("sh").args(["-c", script, "sh"]).command(program);
            let output = MPICH_4.launch(2).command(script).time_limit(LIMIT).run();
            assert_ne!(output.code(), 0, "{output}");
            assert!(!output.stdout.contains("is right"), "{output}");
            let lines = output.stderr.lines().filter(|line| line.contains("cannot find each"));
            let lines: Vec<_> = lines.collect();
            assert!((1..=2).contains(&lines.len()), "{output}");
            assert!(lines[0].contains("2 processes (PMI_SIZE) cannot find each other"), "{output}");
            assert!(lines[0].contains(words), "{output}");
        }
    }
}

/// The launcher's connection is over after the first.
#[test]
fn a_second_program_in_a_rank_is_refused_in_one_line() {
    let twice = Cmd::new("sh").args(["-c", "\"$@\" && exec \"$@\"", "sh"]).command(litmus());
    for mpi in LAUNCHERS {
        let output = mpi.launch(2).command(twice.clone()).time_limit(LIMIT).run();
        assert_ne!(output.code(), 0, "{output}");
        assert!(output.stderr.contains("be one program that joins the job, once"), "{output}");
    }
}

#[test]
fn variables_of_other_launchers_are_not_ignored() {
    for (name, words) in [
        ("SLURM_STEP_NUM_TASKS", "use srun --mpi=pmix or --mpi=pmi2"),
        ("OMPI_COMM_WORLD_SIZE", "keep PMIX_NAMESPACE"),
        ("FLUX_JOB_SIZE", "keep PMI_FD"),
    ] {
        let output = litmus().env(name, "2").run();
        assert_ne!(output.code(), 0, "{output}");
        assert_eq!(output.stderr.lines().count(), 1, "{output}");
        assert!(output.stderr.contains(words), "{output}");
        // As the line says.
        let alone = nagaya("run").args(["-n", "1"]).command(litmus()).env(name, "2");
        is_right(alone.time_limit(LIMIT).run());
    }
}

/// Both use the launcher's connection; MPI ends it.
#[test]
fn programs_that_use_mpi_as_well_share_the_connection() {
    for mpi in [OPEN_MPI_4, MPICH_4, MPICH_5, INTEL_MPI] {
        let program = mpi.compile_with_libraries("dsm/with_mpi.c", &["jia"]);
        let said = mpi.launch(3).arg(program).time_limit(LIMIT).run().ok();
        assert_eq!(said, "sum 18\n", "{}", mpi.name);
    }
}
