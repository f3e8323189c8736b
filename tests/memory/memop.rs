//! libmemop.so: memory operations on another process.

use nagaya_tests::{Cmd, program};

/// Runs one case of `programs/memop.c`.
#[track_caller]
fn holds(case: &str) {
    let output = Cmd::new(program::c_with_libraries("memop.c", &["memop"])).arg(case).run();
    assert!(output.status.success(), "{output}");
}

#[test]
fn pages_are_read_and_written_whatever_their_protection() {
    holds("pages");
}

#[test]
fn memory_is_mapped_protected_and_unmapped() {
    holds("maps");
}

#[test]
fn calls_that_wait_go_on() {
    holds("calls_go_on");
}

#[test]
fn registers_are_kept() {
    holds("registers_are_kept");
}

#[test]
fn a_stopped_process_stays_stopped() {
    holds("stays_stopped");
}

#[test]
fn no_signal_is_lost() {
    holds("signals_come");
}

#[test]
fn the_first_thread_may_have_ended() {
    holds("first_thread_has_ended");
}

#[test]
fn a_process_may_catch_its_system_calls() {
    holds("its_calls_are_caught");
}

#[test]
fn a_tracer_brings_pages_as_in_the_paper() {
    holds("paper");
}

#[test]
fn a_tracer_may_have_attached_in_the_old_way() {
    holds("attached");
}

#[test]
fn a_call_that_its_tracer_interrupted_goes_on() {
    holds("held_in_a_call");
}

#[test]
fn a_process_may_be_killed_meanwhile() {
    holds("killed_meanwhile");
}

#[test]
fn somebody_else_s_process_is_eperm() {
    holds("somebody_else_s");
}

#[test]
fn a_process_that_is_traced_by_another_is_eperm() {
    holds("traced_by_another");
}
