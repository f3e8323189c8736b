//! Domains: tasks with separate page tables in one space. The cases are in `programs/domains.c`.

use std::time::Duration;

use nagaya_tests::{Cmd, WorkDir, is_alive, job, kill, nagaya, program, tasks_of, wait_until};
use rustix::process::Signal;

/// Runs a case of `programs/domains.c` with these tasks.
#[track_caller]
fn holds(domains: &str, case: &str) {
    let program = program::c_with_libraries("domains.c", &["pvas"]);
    let run = nagaya("run").args(["--domains", domains]).arg(program).arg(case);
    let output = run.time_limit(Duration::from_secs(30)).run();
    assert!(output.status.success(), "{domains}, {case}: {output}");
}

#[test]
fn tasks_know_their_domain() {
    holds("0:2,1:1,0-1:2", "apart");
}

#[test]
fn a_pointer_means_the_same_in_all_domains() {
    for domains in ["0:1,1:1", "0:2,1:2", "all:1,all:1,all:1"] {
        holds(domains, "pointers");
    }
}

#[test]
fn copies_go_straight_and_fail_as_the_kernels_do() {
    for domains in ["0:1,1:1", "all:2,all:2"] {
        holds(domains, "copies");
    }
}

#[test]
fn memory_that_its_owner_unmaps_vanishes_for_all() {
    holds("0:1,1:1", "unmaps");
    holds("all:2,all:2", "unmaps");
}

#[test]
fn files_are_looked_at_where_nobody_writes_them() {
    holds("0:1,1:1", "files");
}

#[test]
fn page_tables_grow_with_touched_pages() {
    holds("0:1,1:1", "demand");
}

/// A case of `programs/domain_owner.c`.
fn owner(case: &str) -> Cmd {
    let program = program::c_with_libraries("domain_owner.c", &["pvas"]);
    Cmd::new(program).arg(case).time_limit(Duration::from_secs(60))
}

#[test]
fn a_program_makes_domains_of_its_own() {
    for case in ["arguments", "children", "refused"] {
        let output = owner(case).run();
        assert!(output.status.success(), "{case}: {output}");
    }
}

#[test]
fn an_id_of_another_domain_is_used_again_and_again() {
    let output = owner("again").run();
    assert!(output.status.success(), "{output}");
}

#[test]
fn no_task_survives_a_killed_owner() {
    let mut owner = owner("abandoned").spawn();
    let text = owner.wait_for_word("all");
    let pids: Vec<i32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(pids.len(), 4, "three tasks and a keeper: {text}");
    owner.signal(Signal::KILL);
    owner.wait();
    let gone = || pids.iter().all(|&pid| !is_alive(pid));
    wait_until("tasks and keeper end", Duration::from_secs(10), gone);
}

#[test]
fn a_domain_whose_keeper_is_killed_ends_and_says_so() {
    let job = job();
    let command = ["--job", &job, "--domains", "all:1,all:1", "sleep", "100"];
    let run = nagaya("run").args(command).spawn();
    let both = || tasks_of(&job).len() == 2;
    wait_until("both tasks run", Duration::from_secs(20), both);
    let maps = nagaya("maps").arg(&job).run().ok();
    let line = maps.lines().find(|line| line.starts_with("domain 1: PID ")).expect(&maps);
    let keeper = line["domain 1: PID ".len()..].split(',').next().unwrap().parse().unwrap();
    kill(keeper, Signal::KILL);
    wait_until("one task is left", Duration::from_secs(10), || tasks_of(&job).len() == 1);
    run.signal(Signal::TERM);
    let output = run.wait();
    assert!(output.stderr.contains("domain 1 has lost its keeper"), "{output}");
}

#[test]
fn maps_shows_domains_and_what_they_have_mapped_of_others() {
    let job = job();
    let command = ["--job", &job, "--domains", "0:2,1:1", "sleep", "100"];
    let run = nagaya("run").args(command).spawn();
    let all = || tasks_of(&job).len() == 3;
    wait_until("all tasks run", Duration::from_secs(20), all);
    let maps = nagaya("maps").arg(&job).run().ok();
    for words in [
        "domain 0: PID ",
        ", 2 tasks, ",
        "1 tasks of IDs 2 to 2, processors 1, ",
        " of other domains mapped",
    ] {
        assert!(maps.contains(words), "{words}: {maps}");
    }
    let task = maps.lines().position(|line| line.starts_with("task 2 ")).expect(&maps);
    let its: Vec<&str> =
        maps.lines().skip(task + 1).take_while(|line| line.starts_with(' ')).collect();
    for part in ["export", "control", "image", "heap", "stack"] {
        assert!(its.iter().any(|line| line.contains(part)), "{part}: {maps}");
    }
    run.signal(Signal::TERM);
    run.wait();
}

#[test]
fn an_invalid_domain_is_refused() {
    let run = |domains: &str| nagaya("run").args(["--domains", domains, "true"]).run();
    for domains in ["", "0-1", "0:0", "fast:1", "999:1", "node77:1", "cgroup=/none/of/these:1"] {
        run(domains).refused(125, &["--domains"]);
    }
    nagaya("run").args(["--domains", "0:1", "-n", "2", "true"]).run().refused(125, &["-n"]);
}

/// Runs a case of `programs/delegate.c`, each of whose three tasks has its own domain.
#[track_caller]
fn delegates(case: &str) {
    let program = program::c_with_libraries("delegate.c", &["pvas_delegate", "pvas"]);
    let dir = WorkDir::new();
    let run = nagaya("run").args(["--domains", "all:1,all:1,all:1"]).arg(program).arg(case);
    let output = run.dir(dir.path()).time_limit(Duration::from_secs(60)).run();
    assert!(output.status.success(), "{case}: {output}");
}

#[test]
fn work_is_delegated_from_domain_to_domain() {
    for case in ["calls", "asynchronous", "share", "threads"] {
        delegates(case);
    }
}

#[test]
fn files_and_sockets_of_another_domain_are_used_in_place() {
    delegates("ready_made");
}

#[test]
fn a_delegatee_of_another_domain_that_ends_leaves_nobody_waiting() {
    delegates("delegatee_dies");
}
