//! A task's memory lies in its own segment, for all kinds of requests, and stays unchanged while
//! other tasks do the same.

use nagaya_tests::{Cmd, Output, nagaya, program, seed, tasks};

/// Runs one case of `programs/memory.c`: as an ordinary process, so that the case itself is
/// known to be right, then as `n` tasks at once.
#[track_caller]
fn holds(case: &str, n: usize) -> Output {
    let (program, seed) = (program::c_pvas("memory.c"), seed().to_string());
    let plain = Cmd::new(&program).args([case, &seed]).run().ok();
    let output = tasks(n, &program).args([case, &seed]).run();
    assert!(output.status.success(), "{output}");
    assert_eq!(output.stdout, plain.repeat(n), "{output}");
    output
}

#[test]
fn code_data_heap_stacks_and_maps_lie_in_the_segment() {
    holds("everything_is_in_the_segment", 3);
}

#[test]
fn system_calls_that_cannot_be_patched_are_safe() {
    holds("unreached_calls_are_safe", 4);
}

#[test]
fn each_task_has_its_own_program_break() {
    holds("program_break", 4);
}

#[test]
fn fixed_addresses_in_the_own_segment_are_honoured() {
    holds("fixed_addresses", 3);
}

#[test]
fn a_full_segment_is_enomem_and_no_more() {
    holds("more_than_the_segment", 2);
}

#[test]
fn random_maps_keep_their_content() {
    holds("random_mappings", 3);
}

#[test]
fn malloc_in_threads_of_many_tasks_keeps_its_content() {
    holds("mallocs", 4);
}

#[test]
fn threads_of_a_task_map_at_once() {
    holds("threads_map_at_once", 2);
}

#[test]
fn huge_pages_stay_huge_when_messages_are_copied() {
    holds("huge_pages", 2);
}

#[test]
fn address_space_that_was_unmapped_is_used_again() {
    holds("address_space_is_reused", 2);
}

#[test]
fn many_mappings_end_in_enomem() {
    holds("mappings_without_end", 1);
}

#[test]
fn a_small_segment_runs_out_gracefully() {
    let program = program::c_pvas("memory.c");
    for (size, case) in [("256M", "more_than_the_segment"), ("1G", "program_break")] {
        nagaya("run").args(["--segment-size", size]).arg(&program).args([case, "1"]).run().ok();
    }
}

#[test]
fn the_papers_segment_size_works() {
    let program = program::c_pvas("memory.c");
    nagaya("run")
        .args(["-n", "3", "--segment-size", "4G"])
        .arg(&program)
        .args(["everything_is_in_the_segment"])
        .run()
        .ok();
}

#[test]
fn a_static_pie_is_a_task() {
    let flags = ["-static-pie", "-pthread", "-Wno-nonnull"];
    let program = program::c_with("posix.c", &flags);
    for case in ["tls", "many_threads", "forks", "signals", "synchronise", "spawns", "big_stack"] {
        Cmd::new(&program).arg(case).run().ok();
        tasks(2, &program).arg(case).run().ok();
    }
}

#[test]
fn a_program_without_libc_is_a_task() {
    tasks(5, program::tiny()).run().prints("");
}
