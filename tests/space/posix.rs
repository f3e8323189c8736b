//! The guarantees of POSIX hold for a task: threads, signals, stacks, children, shared memory.
//! Each case runs as an ordinary process first (which checks the case itself), then as three tasks
//! at once.

use nagaya_tests::{Cmd, nagaya, program, tasks};

/// Runs one case of `programs/posix.c`.
#[track_caller]
fn holds(case: &str) {
    let program = program::c("posix.c");
    let plain = Cmd::new(&program).arg(case).run().ok();
    tasks(3, &program).arg(case).run().prints(&plain.repeat(3));
}

#[test]
fn the_stack_grows_to_its_limit() {
    holds("big_stack");
}

#[test]
fn the_stack_follows_the_resource_limit() {
    let program = program::c("posix.c");
    let raised = "ulimit -s 65536 && exec \"$@\"";
    Cmd::new("sh")
        .args(["-c", raised, "sh"])
        .command(nagaya("run").arg(program).arg("big_stack"))
        .run()
        .ok();
}

#[test]
fn threads_have_big_stacks() {
    holds("big_thread_stack");
}

#[test]
fn a_stack_overflow_is_caught_on_another_stack() {
    holds("stack_overflow");
}

#[test]
fn thread_local_variables_are_the_threads_own() {
    holds("tls");
}

#[test]
fn threads_are_cancelled_wherever_they_wait() {
    holds("cancel");
}

#[test]
fn mutexes_conditions_barriers_and_semaphores_work() {
    holds("synchronise");
}

#[test]
fn a_dead_owner_of_a_robust_mutex_is_noticed() {
    holds("robust_mutex");
}

#[test]
fn a_task_lives_as_long_as_its_last_thread() {
    holds("main_ends_first");
}

#[test]
fn two_thousand_threads_come_and_go() {
    holds("many_threads");
}

#[test]
fn signals_are_caught_queued_blocked_and_ignored() {
    holds("signals");
}

#[test]
fn timers_and_descriptors_of_events_work() {
    holds("timers");
}

#[test]
fn long_jumps_and_contexts_work() {
    holds("jumps");
}

#[test]
fn a_segv_handler_repairs_the_fault() {
    holds("segv_handler");
}

#[test]
fn a_touch_beyond_the_end_of_a_file_is_a_bus_error() {
    holds("past_end_of_file");
}

#[test]
fn posix_spawn_starts_programs() {
    holds("spawns");
}

#[test]
fn popen_and_system_start_shells() {
    holds("shells");
}

#[test]
fn vfork_works() {
    holds("vforks");
}

#[test]
fn forked_children_have_their_own_memory() {
    holds("forks");
}

/// The node server's program, libraries and heap have as many mappings as a small program. During a
/// fork no other task of the space can fork.
#[test]
fn children_have_no_copy_of_the_node_server() {
    let script = "(while read -r line; do echo \"$line\"; done </proc/self/maps)";
    for options in [&["-n", "1"][..], &["--domains", "all:1,all:1"]] {
        let run = nagaya("run").args(options).args(["bash", "-c", script]);
        let maps = run.run().ok();
        assert!(maps.contains("[vdso]") && maps.contains("libc.so.6"), "{maps}");
        assert!(!maps.lines().any(|line| line.ends_with("/nagaya")), "{maps}");
    }
}

#[test]
fn a_task_with_threads_forks() {
    holds("fork_beside_threads");
}

#[test]
fn fork_as_a_bare_system_call_works() {
    holds("raw_forks");
}

#[test]
fn children_that_die_or_stop_are_reported() {
    holds("children_that_die");
}

#[test]
fn system_v_shared_memory_works() {
    holds("sysv_shm");
}

#[test]
fn posix_shared_memory_works() {
    holds("posix_shm");
}

#[test]
fn libraries_are_opened_and_closed() {
    holds("opens_libraries");
}

#[test]
fn exit_handlers_run_and_buffers_are_flushed() {
    holds("exits_in_order");
}
