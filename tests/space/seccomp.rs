//! Seccomp filters like those of container runtimes. A space does not need the calls that the
//! kernel denies to an MPI (`process_vm_readv`, `kcmp`), and its large messages are still single
//! copies.

use std::path::Path;

use nagaya_tests::program::c;
use nagaya_tests::{Cmd, WorkDir, messages, mpi, nagaya, task};

/// Calls that the profiles of container runtimes deny: all profiles the first three, unless the
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
    Cmd::new(c("run_under_seccomp.c")).args(rules).arg("--").command(command)
}

/// Also `nagaya ps` runs under the filter.
fn messages_are_single_copies(rules: &[&str]) {
    for mpi in mpi::ALL {
        println!("{}", mpi.name);
        let dir = WorkDir::new();
        let bring = |path: &Path| path.to_owned();
        messages::are_single_copies(mpi, &dir.join("done"), bring, |c| denied(rules, c));
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
fn every_mpi_makes_single_copies_where_cma_is_denied() {
    messages_are_single_copies(NO_CMA);
}

#[test]
fn every_mpi_makes_single_copies_under_an_old_runtimes_filter() {
    messages_are_single_copies(OLD_RUNTIME);
}

#[test]
fn no_mpi_asks_the_kernel_for_a_copy_at_all() {
    messages_are_single_copies(CMA_KILLS);
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
fn missing_requirements_are_named() {
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
