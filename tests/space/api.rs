//! The C API: each call of `pvas.h` does what the header says, and each documented error
//! happens. The cases are in `programs/api.c`.

use nagaya_tests::{Cmd, Output, WorkDir, program};

/// Runs one case of `programs/api.c` in a separate directory.
#[track_caller]
fn holds(case: &str) -> Output {
    let dir = WorkDir::new();
    let output = Cmd::new(program::c_pvas("api.c")).arg(case).dir(dir.path()).run();
    assert!(output.status.success(), "{output}");
    output
}

#[test]
fn spaces_are_made_and_removed() {
    holds("spaces_are_made_and_removed");
}

#[test]
fn a_wrong_descriptor_is_ebadf() {
    holds("no_such_space");
}

#[test]
fn a_space_has_the_attributes_asked_for() {
    holds("space_attributes");
}

#[test]
fn the_environment_sets_the_segment_size() {
    holds("segment_size_from_the_environment");
}

#[test]
fn a_process_has_several_spaces() {
    holds("several_spaces");
}

#[test]
fn address_space_that_runs_out_is_enomem() {
    holds("address_space_runs_out");
}

#[test]
fn waitpid_gives_the_true_status() {
    holds("true_statuses");
}

#[test]
fn an_id_is_taken_while_its_task_lives() {
    holds("identifiers");
}

#[test]
fn the_child_of_pvas_fork_may_end_otherwise() {
    holds("fork_and_other_ends");
}

#[test]
fn the_task_has_the_settings_of_the_child_of_pvas_fork() {
    holds("fork_and_set_up");
}

#[test]
fn a_program_that_cannot_be_run_leaves_no_child() {
    holds("programs_that_cannot_be_run");
}

#[test]
fn empty_argument_lists_are_those_of_execve() {
    holds("empty_lists");
}

#[test]
fn pvas_spawn_heeds_its_attributes() {
    holds("spawn_attributes");
}

#[test]
fn pvas_spawn_refuses_bad_attributes() {
    holds("bad_spawn_attributes");
}

#[test]
fn pvas_spawn_tells_the_id_also_of_a_task_that_has_ended() {
    holds("spawn_tells_the_id");
}

#[test]
fn the_death_signal_comes_when_the_spawning_thread_ends() {
    holds("death_signal");
}

#[test]
fn threads_spawn_tasks_at_once() {
    holds("threads_spawn_at_once");
}

#[test]
fn two_hundred_tasks_live_at_once() {
    holds("two_hundred_at_once");
}

#[test]
fn pvas_destroy_kills_the_tasks_and_unmaps_the_space() {
    holds("destroy_kills_and_unmaps");
}

#[test]
fn the_owner_is_no_task() {
    holds("owner_is_no_task");
}

#[test]
fn a_task_knows_who_and_where_it_is() {
    holds("tasks_know_themselves");
}

#[test]
fn a_task_that_was_waited_for_does_not_count() {
    holds("tasks_waited_for_do_not_count");
}

#[test]
fn a_child_of_a_task_is_no_task() {
    holds("children_of_tasks_are_none");
}

#[test]
fn export_areas_are_shared_and_zero_without_a_task() {
    holds("export_areas");
}

#[test]
fn names_are_exported_and_imported() {
    holds("exports_and_imports");
}

#[test]
fn an_import_waits_even_for_a_task_that_has_not_started() {
    holds("imports_wait");
}

#[test]
fn an_import_ends_with_the_task_also_a_past_one_or_by_a_signal() {
    holds("imports_are_interrupted");
}

#[test]
fn tasks_sum_each_others_arrays_in_place() {
    holds("tasks_sum_each_others_arrays");
}

#[test]
fn figure_6_of_the_paper_works() {
    let text = holds("figure_6").stdout;
    assert_eq!(text.matches("fork pvas process ").count(), 32, "{text}");
    assert_eq!(text.matches("hello from process ").count(), 32, "{text}");
}

#[test]
fn a_reason_is_its_threads_own() {
    holds("reasons_are_the_threads_own");
}

#[test]
fn a_task_is_limited_to_a_part_of_its_segment() {
    Cmd::new(program::c_pvas("segment_limit.c")).run().ok();
}

#[test]
fn handlers_of_a_waiting_parent_stay_off_its_childs_stack() {
    Cmd::new(program::c_pvas("fork_disturbed.c")).arg("signals").run().ok();
}

#[test]
fn the_parent_of_a_child_whose_end_the_kernel_does_not_announce_goes_on() {
    Cmd::new(program::c_pvas("fork_disturbed.c")).arg("unheard").run().ok();
}

#[test]
fn the_child_of_a_killed_owner_is_told_so() {
    Cmd::new(program::c_pvas("fork_disturbed.c")).arg("orphan").run().ok();
}

#[test]
fn children_killed_while_they_start_leave_their_parent_well() {
    Cmd::new(program::c_pvas("fork_disturbed.c")).arg("kills").run().ok();
}
