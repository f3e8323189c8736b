//! Tasks that crash, are killed or stopped, fork or exec: the others work on, the memory comes
//! back, nothing grows. The cases are in `programs/faults.c`.

use std::time::Duration;

use nagaya_tests::{Cmd, WorkDir, machine_lacks, program};

/// Runs one case of `programs/faults.c`.
#[track_caller]
fn holds(case: &str) -> String {
    let command = Cmd::new(program::c_pvas("faults.c")).arg(case).arg(program::tiny());
    let output = command.time_limit(Duration::from_secs(240)).run();
    assert!(output.status.success(), "{output}");
    output.stdout
}

#[test]
fn a_task_that_ends_badly_leaves_the_others_working_and_its_segment_empty() {
    holds("bad_ends");
}

#[test]
fn a_fork_copies_the_callers_segment_and_costs_the_others_nothing() {
    holds("fork_is_cheap_for_others");
}

#[test]
fn a_task_stopped_or_killed_while_it_forks_blocks_nobody() {
    holds("interrupted_forks");
}

#[test]
fn ten_thousand_tasks_leave_no_trace() {
    holds("ten_thousand_cycles");
}

#[test]
fn tasks_that_crash_exec_or_fail_to_start_leave_no_trace() {
    holds("cycles_of_all_kinds");
}

#[test]
fn a_start_without_mappings_left_is_enomem() {
    let text = holds("mappings_run_out");
    if text.contains("unlimited") {
        machine_lacks("a vm.max_map_count that can be reached");
    }
}

#[test]
fn a_core_file_holds_the_memory_of_the_task_that_died() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") {
        return machine_lacks("core files in the current directory (kernel.core_pattern)");
    }
    let dir = WorkDir::new();
    let program = program::c_pvas("core_files.c");
    Cmd::new(program).dir(dir.path()).run().prints("small cores\n");
}
