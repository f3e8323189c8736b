//! Under a seccomp filter, as container runtimes set them: what the kernel denies to an MPI
//! (`process_vm_readv`, `kcmp`) it does not need in a space, and its large messages are
//! single copies all the same.

use std::path::PathBuf;

use nagaya_tests::program::{build, c};
use nagaya_tests::{Cmd, WorkDir, nagaya, ps, task, tool};

/// What the profiles of container runtimes deny: all of them the first three, unless the
/// container may trace; older ones the calls that they did not know.
const NO_CMA: &[&str] = &["process_vm_readv=EPERM", "process_vm_writev=EPERM", "kcmp=EPERM"];
const OLD_RUNTIME: &[&str] = &[
    "process_vm_readv=EPERM",
    "process_vm_writev=EPERM",
    "kcmp=EPERM",
    "ptrace=EPERM",
    "userfaultfd=EPERM",
    "clone3=ENOSYS",
];
/// Nobody survives the attempt.
const CMA_KILLS: &[&str] = &["process_vm_readv=kill", "process_vm_writev=kill", "kcmp=EPERM"];

/// A command under a filter.
fn denied(rules: &[&str], command: Cmd) -> Cmd {
    Cmd::new(c("denied.c")).args(rules).arg("--").command(command)
}

/// Large messages arrive and are copied once, in user space; `nagaya ps` tells so from
/// inside the filter and from outside.
fn messages_are_single_copies(suffix: &str, rules: &[&str]) {
    let compiler = format!("mpicc.{suffix}");
    tool(&compiler);
    let program: PathBuf = build(&compiler, "mpi_messages.c", &["-Wno-stringop-overflow"]);
    let dir = WorkDir::new();
    let done = dir.join("done");
    let launcher = Cmd::new(tool(&format!("mpirun.{suffix}"))).args(["-n", "2"]);
    let launcher = match suffix {
        "openmpi" => launcher.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]),
        _ => launcher,
    };
    let launcher = launcher.command(nagaya("exec").arg(&program).arg(&done));
    let mut job = denied(rules, launcher).spawn();
    job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
    let ours = done.to_str().expect("UTF-8");
    let outside = ps(|command| command);
    let inside = ps(|command| denied(rules, command));
    std::fs::write(&done, "").expect("write");
    assert_eq!(job.wait().ok().matches("messages arrived").count(), 1);

    for tasks in [outside, inside] {
        let tasks: Vec<_> = tasks.iter().filter(|task| task.command.contains(ours)).collect();
        assert_eq!(tasks.len(), 2, "{tasks:?}");
        let copies: u64 = tasks.iter().map(|task| task.copies).sum();
        let bytes: u64 = tasks.iter().map(|task| task.copied_bytes).sum();
        assert!(copies > 40, "{tasks:?}");
        // 20 fresh buffers of 4 MiB each way, at the least.
        assert!(bytes > 2 * 20 * (4 << 20), "{tasks:?}");
    }
}

#[test]
fn the_filter_denies_what_it_is_told_to() {
    let cma = |command: Cmd| {
        let text = command.run().ok();
        let line = text.lines().find(|line| line.starts_with("cma="));
        line.expect("a line of nagaya info").to_owned()
    };
    let info = || nagaya("info").arg("--parsable");
    assert_eq!(cma(info()), "cma=allowed");
    assert_eq!(cma(denied(NO_CMA, info())), "cma=refused: Operation not permitted (os error 1)");
    assert_eq!(cma(denied(CMA_KILLS, info())), "cma=refused: seccomp kills the caller");
}

#[test]
fn open_mpi_makes_single_copies_where_cma_is_denied() {
    messages_are_single_copies("openmpi", NO_CMA);
}

#[test]
fn mpich_makes_single_copies_where_cma_is_denied() {
    messages_are_single_copies("mpich", NO_CMA);
}

#[test]
fn open_mpi_makes_single_copies_under_an_old_runtimes_filter() {
    messages_are_single_copies("openmpi", OLD_RUNTIME);
}

#[test]
fn mpich_makes_single_copies_under_an_old_runtimes_filter() {
    messages_are_single_copies("mpich", OLD_RUNTIME);
}

#[test]
fn open_mpi_asks_the_kernel_for_no_copy_at_all() {
    messages_are_single_copies("openmpi", CMA_KILLS);
}

#[test]
fn mpich_asks_the_kernel_for_no_copy_at_all() {
    messages_are_single_copies("mpich", CMA_KILLS);
}

#[test]
fn programs_run_without_the_calls_that_old_filters_do_not_know() {
    let script = "echo $(ls / | grep tmp); (echo sub-shell); exit 7";
    let rules = [OLD_RUNTIME, &["rseq=ENOSYS"]].concat();
    let output = denied(&rules, task("bash").args(["-c", script])).run();
    assert_eq!(output.stdout, "tmp\nsub-shell\n", "{output}");
    output.ends_with(7);
}

#[test]
fn what_nagaya_cannot_do_without_is_named() {
    for call in ["close_range=EPERM", "pidfd_open=EPERM"] {
        let name = call.split('=').next().expect("a name");
        denied(&[call], task("true")).run().refused(125, &[name]);
        denied(&[call], nagaya("exec").arg("true")).run().refused(125, &[name]);
        let fallback = nagaya("exec").args(["--fallback", "echo", "a process"]);
        let output = denied(&[call], fallback).run();
        output.one_line(&[name]);
        output.prints("a process\n");
    }
}
