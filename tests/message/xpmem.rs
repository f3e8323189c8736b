//! libxpmem: each call of `xpmem.h` does what the header says, and each documented error
//! happens. The cases are in `programs/xpmem.c`.

use std::path::PathBuf;

use nagaya_tests::{Cmd, exec, job, program, skip, task, tasks};

fn xpmem() -> PathBuf {
    program::c_with_libraries("xpmem.c", &["pvas", "xpmem"])
}

/// Runs a case as the only task of a space.
#[track_caller]
fn holds(case: &str) {
    task(xpmem()).arg(case).run().ok();
}

/// Runs a case as two tasks of one space.
#[track_caller]
fn holds_for_two(case: &str) {
    tasks(2, xpmem()).arg(case).run().ok();
}

#[test]
fn outside_a_space_every_call_is_enoent() {
    Cmd::new(xpmem()).arg("outside").run().ok();
}

#[test]
fn the_version_is_that_of_the_interface() {
    holds("version");
}

#[test]
fn segments_are_made_and_removed() {
    holds("making");
}

#[test]
fn segids_are_unique_and_enough() {
    holds("many");
}

#[test]
fn without_a_name_to_be_found_by_nothing_is_made() {
    holds("no_name_left");
}

#[test]
fn permits_are_got_and_released() {
    holds("getting");
}

#[test]
fn an_attachment_is_the_address_itself() {
    holds("attaching");
}

#[test]
fn attachments_are_given_up() {
    holds("detaching");
}

#[test]
fn a_forked_child_has_left_the_space() {
    holds("forking");
}

#[test]
fn threads_may_call_at_once() {
    holds("threads");
}

#[test]
fn sharing_takes_no_fault_and_no_page_table() {
    holds_for_two("sharing");
}

/// As in many containers.
#[test]
fn sharing_needs_no_call_that_a_filter_denies() {
    let denied = ["process_vm_readv=kill", "process_vm_writev=kill", "kcmp=EPERM"];
    let denied = Cmd::new(program::c("run_under_seccomp.c")).args(denied).arg("--");
    denied.command(tasks(2, xpmem()).arg("sharing")).run().ok();
}

#[test]
fn tasks_of_one_job_share_as_well() {
    let job = job();
    let first = exec(&job, xpmem()).arg("sharing").spawn();
    exec(&job, xpmem()).arg("sharing").run().ok();
    first.wait().ok();
}

#[test]
fn segments_and_permits_end_with_their_task() {
    let output = tasks(2, xpmem()).arg("ending").run().ends_with(128 + 9);
    assert_eq!(output.stdout, "ended well\n", "{output}");
}

#[test]
fn the_mode_decides_access_to_a_segment() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can become other users");
    }
    // The requesting task becomes other users, and goes back.
    tasks(2, xpmem()).arg("modes").env("NAGAYA_KEEP_ACCESS", "1").run().ok();
}

#[test]
fn makers_that_die_harm_nobody() {
    Cmd::new(xpmem()).arg("chaos").run().ok();
}
