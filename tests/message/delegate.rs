//! Delegation: each call of `pvas_delegate.h` does what the header says, between tasks that
//! `nagaya run` starts. The cases are in `programs/delegate.c`.

use std::collections::BTreeSet;
use std::time::Duration;

use nagaya_tests::{Cmd, WorkDir, nagaya, program, seed};

/// Runs one case of `programs/delegate.c` in three tasks.
#[track_caller]
fn holds(case: &str) {
    holds_with(3, case);
}

#[track_caller]
fn holds_with(count: usize, case: &str) {
    let dir = WorkDir::new();
    let program = program::c_with_libraries("delegate.c", &["pvas_delegate", "pvas"]);
    // One that fails takes the others along.
    let run = nagaya("run").args(["-K", "-n", &count.to_string()]).arg(program).arg(case);
    let run = run.dir(dir.path());
    let output = run.time_limit(Duration::from_secs(120)).run();
    assert!(output.status.success(), "{output}");
}

#[test]
fn a_call_brings_a_payload_or_an_address_and_the_answer_or_an_errno() {
    holds("calls");
}

#[test]
fn a_process_that_is_no_delegatee_is_not_found() {
    holds_with(1, "not_there");
}

#[test]
fn requests_are_answered_in_order_and_can_be_cancelled() {
    holds("asynchronous");
}

#[test]
fn requests_can_be_kept_and_answered_later_in_any_order() {
    holds("later");
}

#[test]
fn missing_and_foreign_objects_have_different_errors() {
    holds("checked");
}

#[test]
fn a_requester_gets_its_share_of_the_queue_and_no_more() {
    holds("share");
}

#[test]
fn many_threads_call_many_threads() {
    holds("threads");
}

#[test]
fn a_closed_queue_refuses_what_it_has_not_begun() {
    holds_with(2, "close_and_open");
}

#[test]
fn files_and_sockets_of_the_delegatee_are_used_in_place() {
    holds("ready_made");
}

#[test]
fn a_delegatee_that_ends_leaves_nobody_waiting() {
    holds("delegatee_dies");
}

/// A case of `programs/delegate_server.c` under `nagaya run` with these options.
fn server(dir: &WorkDir, options: &[&str], case: &str) -> Cmd {
    let program = program::c_with_libraries("delegate_server.c", &["pvas_delegate", "pvas"]);
    let run = nagaya("run").args(options).arg(program).arg(case);
    run.dir(dir.path()).time_limit(Duration::from_secs(60))
}

#[test]
fn the_node_server_does_io_on_passed_descriptors_only() {
    let domains = ["--domains", "all:1,all:1"];
    for options in [&["-n", "2"][..], &domains] {
        let dir = WorkDir::new();
        let options = [options, &["--delegatee", "all:2"]].concat();
        // Task 1 kills itself, with something passed.
        let output = server(&dir, &options, "works").run().ends_with(128 + 9);
        let mut lines: Vec<_> = output.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["passed", "works"], "{output}");
        output.one_line(&["task 1", "signal 9"]);
    }
}

#[test]
fn programs_that_are_linked_to_their_addresses_ask_the_node_server_too() {
    let dir = WorkDir::new();
    dir.write("alone", "");
    let flags = program::library_flags(&["pvas_delegate", "pvas"]);
    let flags: Vec<&str> =
        ["-pthread", "-no-pie"].into_iter().chain(flags.iter().map(String::as_str)).collect();
    let program = program::c_with("delegate_server.c", &flags);
    let run = nagaya("run").args(["--delegatee", "all:1"]).arg(program).arg("works");
    run.dir(dir.path()).run().prints("works\n");
}

#[test]
fn a_job_under_a_launcher_has_a_delegatee_and_ends_with_its_last_task() {
    let dir = WorkDir::new();
    dir.write("alone", "");
    let job = nagaya_tests::job();
    let program = program::c_with_libraries("delegate_server.c", &["pvas_delegate", "pvas"]);
    let exec = nagaya("exec").args(["--job", &job, "--delegatee", "all:1"]).arg(program);
    exec.arg("works").dir(dir.path()).run().prints("works\n");
    let is_over = || nagaya_tests::tasks_of(&job).is_empty();
    nagaya_tests::wait_until("the node server to end", Duration::from_secs(10), is_over);
}

#[test]
fn a_node_server_whose_delegatee_is_killed_says_so_and_its_tasks_go_on() {
    let dir = WorkDir::new();
    let job = nagaya_tests::job();
    let mut run = server(&dir, &["--job", &job, "--delegatee", "all:2"], "dies").spawn();
    run.wait_for_word("works");
    let tasks = nagaya_tests::tasks_of(&job);
    let its = tasks.iter().find(|task| task.command.contains("delegatee --threads 2"));
    nagaya_tests::kill(its.expect("it runs").pid, rustix::process::Signal::KILL);
    let output = run.wait().ends_with(0);
    output.one_line(&["delegatee", "has ended"]);
    assert_eq!(output.stdout, "works\non\n");
}

#[test]
fn a_request_to_a_server_without_delegation_is_refused() {
    let dir = WorkDir::new();
    server(&dir, &[], "absent").run().ok();
    for (place, words) in [
        ("all", &["threads"][..]),
        ("all:0", &["threads"]),
        ("all:99", &["at most"]),
        ("all:1,all:1", &["one place"]),
        ("@b:1", &["one place"]),
        ("9999:1", &["--delegatee", "9999"]),
    ] {
        server(&dir, &["--delegatee", place], "absent").run().refused(125, words);
    }
    let options = ["--delegatee", "all:1", "--domains", "all:1,@b:1"];
    server(&dir, &options, "absent").run().refused(125, &["--delegatee", "machines"]);
}

/// Runs a case of `programs/delegate_faults.c`, which owns a space.
#[track_caller]
fn survives(arguments: &[String], seconds: u64) -> String {
    let program = program::c_with_libraries("delegate_faults.c", &["pvas_delegate", "pvas"]);
    let command = Cmd::new(program).args(arguments);
    let output = command.time_limit(Duration::from_secs(seconds)).run();
    assert!(output.status.success(), "{output}");
    output.stdout
}

#[test]
fn the_memory_of_a_dead_requester_stays_while_it_is_in_use() {
    survives(&["requester_dies".into()], 120);
}

#[test]
fn a_delegatee_that_dies_while_others_write_into_its_queue_takes_nobody_along() {
    survives(&["full_queue_goes".into()], 120);
}

#[test]
fn requesters_and_delegatees_are_killed_at_any_instant() {
    let seed = seed();
    for seed in seed..seed + 2 {
        let text = survives(&["chaos".into(), seed.to_string(), "4".into()], 120);
        print!("{text}");
    }
}

#[test]
fn the_library_has_the_calls_of_the_header_and_no_others() {
    let header = std::fs::read_to_string(program::include_dir().join("pvas_delegate.h"));
    let declared: BTreeSet<String> = header
        .expect("the header")
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', '\t']) && line.contains('('))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("pvas_"))
        .map(str::to_owned)
        .collect();
    assert!(declared.len() > 10, "{declared:?}");
    let library = program::library("pvas_delegate");
    let symbols = Cmd::new("nm").args(["-D", "--defined-only"]).arg(&library).run().ok();
    let has = symbols.lines().filter_map(|line| line.split(' ').nth(2));
    assert_eq!(has.map(str::to_owned).collect::<BTreeSet<_>>(), declared);
    let dynamic = Cmd::new("readelf").arg("-d").arg(library).run().ok();
    assert!(dynamic.contains("soname: [libpvas_delegate.so.0]"), "{dynamic}");
    let header = program::include_dir().join("pvas_delegate.h");
    let flags = ["-x", "c++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"];
    Cmd::new("g++").args(flags).arg(header).run().ok();
}
