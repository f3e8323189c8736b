//! Shared memory under Slurm: srun starts the tasks, on two nodes.

use std::time::{Duration, Instant};

use nagaya_tests::program::c_with_libraries;
use nagaya_tests::slurm::Slurm;
use nagaya_tests::{Cmd, is_alive, kill, nagaya, nagaya_path, wait_until};
use rustix::process::Signal;

/// Time limit of each step.
const LIMIT: Duration = Duration::from_secs(120);
/// Until all tasks have ended when one is lost, or never came.
const LOST_MAX: Duration = Duration::from_secs(20);

fn srun(slurm: &Slurm, interface: &str, tasks: u32) -> Cmd {
    let interface = format!("--mpi={interface}");
    let srun = slurm.client("srun").args([&interface, "-N2", "-n", &tasks.to_string()]);
    srun.time_limit(LIMIT)
}

fn program(name: &str) -> std::path::PathBuf {
    c_with_libraries(&format!("dsm/{name}.c"), &["jia"])
}

#[test]
fn srun_starts_tasks_that_share_memory_and_ends_them_all() {
    share_memory_and_end("pmix", "task 1 has not called jia_init within 2 s");
}

#[test]
fn srun_s_pmi2_does_the_same() {
    share_memory_and_end("pmi2", "not called jia_init within ");
}

fn share_memory_and_end(interface: &str, absent: &str) {
    let slurm = Slurm::start(&["n0", "n1"]);
    let srun = |slurm: &Slurm, tasks| srun(slurm, interface, tasks);
    // A node each; and those that srun starts on one host as one node.
    for tasks_of in [None, Some(nagaya_path())] {
        let mut job = srun(&slurm, 4);
        if let Some(nagaya) = tasks_of {
            job = job.arg(nagaya).arg("exec");
        }
        let said = job.arg(program("litmus")).args(["all", "20"]).run().ok();
        assert_eq!(said.matches(" is right\n").count(), 15, "{said}");
    }

    let mut job = srun(&slurm, 3).arg(program("endless")).spawn();
    let lines = job.wait_for_lines(3);
    let pids: Vec<i32> =
        lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse().expect("a PID")).collect();
    kill(pids[1], Signal::KILL);
    let begin = Instant::now();
    let output = job.wait();
    assert_ne!(output.code(), 0, "{output}");
    assert!(begin.elapsed() < LOST_MAX, "{output}");
    assert!(output.stderr.contains(&format!("PID {}) is lost: ", pids[1])), "{output}");
    wait_until("all tasks are gone", LOST_MAX, || !pids.iter().any(|&pid| is_alive(pid)));

    // One that never joins, of those on this host and of all.
    let begin = Instant::now();
    let job = srun(&slurm, 4).arg(program("misuse")).arg("absent").env("NAGAYA_DSM_JOIN", "2");
    let output = job.run();
    assert_ne!(output.code(), 0, "{output}");
    assert!(begin.elapsed() < LOST_MAX, "{output}");
    assert!(output.stderr.contains(absent), "{output}");
}

#[test]
fn srun_without_an_interface_is_refused_in_one_line() {
    let slurm = Slurm::start(&["n0", "n1"]);
    let litmus = || Cmd::new(program("litmus")).args(["all", "5"]);
    for exec in [false, true] {
        let program = if exec { nagaya("exec").command(litmus()) } else { litmus() };
        let output = srun(&slurm, "none", 2).command(program).run();
        assert_ne!(output.code(), 0, "{output}");
        assert!(!output.stdout.contains("is right"), "{output}");
        let line = "the 2 processes of srun (SLURM_STEP_NUM_TASKS) cannot find each other";
        assert!(output.stderr.contains(line), "{output}");
    }
    // One task, and a task of an allocation for several, are jobs of one.
    let one = slurm.client("srun").args(["--mpi=none", "-n", "1"]).command(litmus());
    assert!(one.time_limit(LIMIT).run().ok().contains(" is right"));
    let salloc = slurm.client("salloc").args(["-n", "2"]).command(litmus());
    assert!(salloc.time_limit(LIMIT).run().ok().contains(" is right"));
    let alone = nagaya("run").args(["-n", "1"]).command(litmus());
    let said = srun(&slurm, "none", 2).command(alone).run().ok();
    assert_eq!(said.matches("counter is right").count(), 2, "{said}");
}
