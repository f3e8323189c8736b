//! Segments of shared memory (`PVAS_SHARED=1`), which other address spaces can map, too. For its
//! task such memory is private memory. The cases of `programs/shared.c` define this, and other
//! programs run there as they do elsewhere. Each runs as an ordinary process first.

use nagaya_tests::{Cmd, nagaya, program, seed, tasks};

fn shared(command: Cmd) -> Cmd {
    command.env("PVAS_SHARED", "1")
}

/// Runs one case of `programs/shared.c`, as `n` tasks at once.
#[track_caller]
fn holds(case: &str, n: usize) {
    let program = program::c_pvas("shared.c");
    let plain = Cmd::new(&program).arg(case).run().ok();
    shared(tasks(n, &program).arg(case)).run().prints(&plain.repeat(n));
}

#[test]
fn unmapped_memory_is_zero_again() {
    holds("unmapped_memory_is_zero_again", 2);
}

#[test]
fn discarded_memory_is_zero() {
    holds("discarded_memory_is_zero", 2);
}

#[test]
fn memory_that_is_not_in_use_is_given_back() {
    holds("memory_is_given_back", 1);
}

#[test]
fn mremap_keeps_contents_and_protection() {
    holds("mremap_keeps_contents", 2);
}

#[test]
fn private_mappings_leave_the_file_as_it_is() {
    holds("private_mappings_leave_the_file", 2);
}

#[test]
fn a_fork_has_memory_of_its_own() {
    holds("fork_gives_memory_of_its_own", 3);
}

#[test]
fn a_clone_with_its_own_stack_is_a_fork() {
    holds("clone_with_a_stack_is_a_fork", 2);
}

#[test]
fn a_fork_does_not_fill_untouched_pages() {
    holds("fork_does_not_fill_holes", 1);
}

#[test]
fn a_child_killed_while_it_copies_does_not_hold_its_parent_up() {
    holds("children_killed_while_they_copy", 1);
}

#[test]
fn the_end_of_a_task_gives_its_memory_back() {
    let program = program::c_pvas("shared.c");
    shared(Cmd::new(program).arg("the_end_of_a_task_gives_back")).run().ok();
}

/// Cases of other tests' programs with special uses of memory.
#[test]
fn other_programs_run_as_they_do_in_private_memory() {
    let posix = program::c("posix.c");
    let memory = program::c_pvas("memory.c");
    let seed = seed().to_string();
    let cases = [
        (&posix, "forks"),
        (&posix, "fork_beside_threads"),
        (&posix, "raw_forks"),
        (&posix, "vforks"),
        (&posix, "spawns"),
        (&posix, "shells"),
        (&posix, "children_that_die"),
        (&posix, "robust_mutex"),
        (&posix, "big_stack"),
        (&posix, "big_thread_stack"),
        (&posix, "stack_overflow"),
        (&posix, "past_end_of_file"),
        (&posix, "opens_libraries"),
        (&posix, "sysv_shm"),
        (&memory, "everything_is_in_the_segment"),
        (&memory, "unreached_calls_are_safe"),
        (&memory, "program_break"),
        (&memory, "fixed_addresses"),
        (&memory, "more_than_the_segment"),
        (&memory, "random_mappings"),
        (&memory, "mallocs"),
        (&memory, "threads_map_at_once"),
        (&memory, "address_space_is_reused"),
    ];
    for (program, case) in cases {
        let plain = Cmd::new(program).args([case, &seed]).run().ok();
        shared(tasks(2, program).args([case, &seed])).run().prints(&plain.repeat(2));
    }
}

#[test]
fn a_shell_forks_and_pipes() {
    let script = "for i in 1 2 3 4 5; do (echo $i; exit $i) | cat; echo $(expr $i + $i); done";
    let plain = Cmd::new("sh").args(["-c", script]).run().ok();
    shared(nagaya("run").args(["sh", "-c", script])).run().prints(&plain);
}

#[test]
fn a_limit_of_file_size_is_named() {
    let limited = Cmd::new("prlimit").args(["--fsize=1000000", "--"]);
    let output = limited.command(shared(nagaya("run").arg("true"))).run();
    output.clone().refused(output.code(), &["ulimit -f"]);
}

#[test]
fn a_value_that_is_neither_0_nor_1_is_refused() {
    let output = nagaya("run").arg("true").env("PVAS_SHARED", "maybe").run();
    output.clone().refused(output.code(), &["PVAS_SHARED"]);
}
