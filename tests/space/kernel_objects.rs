//! Kernel objects of a task work as in a process, and none of them outlives the task: contexts of
//! asynchronous I/O, rings of io_uring, System V memory, a raised stack limit, a seccomp filter of
//! the program's own.

use std::path::PathBuf;

use nagaya_tests::{Cmd, Output, nagaya, program, skip, tasks};

/// Exit status of a case that this kernel or user cannot run.
const NOT_HERE: i32 = 77;

fn objects() -> PathBuf {
    program::c_pvas("kernel_objects.c")
}

/// The same program, linked to fixed addresses.
fn fixed_objects() -> PathBuf {
    let libraries = program::library_flags(&["pvas"]);
    let mut flags = vec!["-pthread", "-no-pie"];
    flags.extend(libraries.iter().map(String::as_str));
    program::c_with("kernel_objects.c", &flags)
}

fn shared(command: Cmd) -> Cmd {
    command.env("PVAS_SHARED", "1")
}

/// Lets the tasks install a filter, although they keep access to the memory of the others.
fn permitted(command: Cmd) -> Cmd {
    command.env("NAGAYA_KEEP_ACCESS", "1")
}

/// Returns true if the case could not run here, and reports that.
fn is_skipped(output: &Output, needs: &str) -> bool {
    let skipped = output.status.code() == Some(NOT_HERE);
    if skipped {
        skip(needs);
    }
    skipped
}

/// Runs a case as an ordinary process, then as two tasks with private memory, with shared memory,
/// and linked to fixed addresses.
#[track_caller]
fn holds(case: &str, needs: &str) {
    let plain = Cmd::new(objects()).arg(case).run();
    if is_skipped(&plain, needs) {
        return;
    }
    let plain = plain.ok().repeat(2);
    tasks(2, objects()).arg(case).run().prints(&plain);
    shared(tasks(2, objects()).arg(case)).run().prints(&plain);
    tasks(2, fixed_objects()).arg(case).run().prints(&plain);
}

/// Runs a case of an owner of a space.
#[track_caller]
fn owner_holds(case: &str, needs: &str) {
    let output = Cmd::new(objects()).arg(case).run();
    if !is_skipped(&output, needs) {
        output.ok();
    }
}

#[test]
fn contexts_of_asynchronous_io_work() {
    holds("aio_works", "io_setup");
}

#[test]
fn the_end_of_a_task_destroys_its_contexts_of_asynchronous_io() {
    owner_holds("the_end_of_a_task_destroys_contexts", "io_setup");
}

#[test]
fn rings_of_io_uring_work() {
    holds("uring_works", "io_uring_setup (kernel.io_uring_disabled?)");
}

#[test]
fn the_end_of_a_task_unmaps_its_rings_of_io_uring() {
    owner_holds("the_end_of_a_task_unmaps_rings", "io_uring_setup (kernel.io_uring_disabled?)");
}

#[test]
fn the_end_of_a_task_of_another_domain_leaves_nothing_either() {
    owner_holds("the_same_in_a_domain", "io_uring_setup (kernel.io_uring_disabled?)");
}

#[test]
fn more_than_64_attachments_of_system_v_memory_leave_no_address_space() {
    let case = "many_attachments";
    Cmd::new(objects()).arg(case).run().ok();
    let run = || nagaya("run").args(["-n", "2", "--segment-size", "8G"]).arg(objects()).arg(case);
    run().run().ok();
    shared(run()).run().ok();
}

#[test]
fn a_stack_grows_up_to_a_limit_that_the_program_raises() {
    holds("a_raised_stack_limit", "a hard RLIMIT_STACK of 110 MiB");
}

#[test]
fn mprotect_and_madvise_of_foreign_memory_are_refused() {
    holds("the_control_area_is_refused", "");
}

#[test]
fn a_programs_filter_may_allow_mmap_without_madvise() {
    let case = "a_filter_without_madvise";
    Cmd::new(objects()).arg(case).run().prints("worked\n");
    permitted(tasks(3, objects())).arg(case).run().prints(&"worked\n".repeat(3));
}

#[test]
fn a_task_forks_under_a_filter_without_madvise() {
    let case = "forks_under_a_filter";
    Cmd::new(objects()).arg(case).run().ok();
    permitted(tasks(2, objects())).arg(case).run().ok();
}

#[test]
fn a_filter_without_a_call_that_the_gate_needs_is_refused_with_one_line() {
    let case = "a_filter_without_mmap";
    Cmd::new(objects()).arg(case).run().prints("worked\n");
    let output = permitted(tasks(1, objects())).arg(case).run();
    output.one_line(&["kernel_objects", "seccomp filter", "brk without mmap", "Allow mmap"]);
    output.prints("refused\n");
    // In shared segments it is madvise that gives the memory back.
    let output = shared(permitted(tasks(1, objects())).arg("a_filter_without_madvise")).run();
    assert_eq!(output.code(), 3, "{output}");
    assert!(output.stderr.contains("without madvise"), "{output}");
    assert!(output.stderr.contains("PVAS_SHARED"), "{output}");
}

#[test]
fn a_filter_that_lets_a_task_change_its_user_must_allow_what_that_needs() {
    let case = "a_filter_without_prctl";
    Cmd::new(objects()).arg(case).run().prints("worked\n");
    let output = permitted(tasks(1, objects())).arg(case).run();
    output.one_line(&["setuid without prctl", "Allow prctl"]);
    output.prints("refused\n");
}
