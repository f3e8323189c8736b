//! Tasks that change their rights, as programs of root do. No task outlives its node server, and no
//! task keeps access to memory by rights that it has given up. The cases are in
//! `programs/rights.c`.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::{
    Cmd, exec, is_alive, job, kill, nagaya, proc_status, program, skip, tasks, tasks_of, wait_until,
};
use rustix::process::Signal;

const SOON: Duration = nagaya_tests::TIME_LIMIT;
const NEEDS_ROOT: &str = "only root can change its IDs";

fn rights() -> PathBuf {
    program::c_with("rights.c", &["-pthread"])
}

/// Returns true if the test can run here, or reports that it cannot.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(NEEDS_ROOT);
    }
    is_root
}

/// Starts a task of this case beside one that changes nothing, kills their owner, and waits until
/// both are gone.
#[track_caller]
fn ends_with_its_server(case: &str, more: impl Fn(Cmd) -> Cmd) {
    let job = job();
    let start = |case: &str| {
        let mut running = more(exec(&job, rights()).arg(case)).spawn();
        running.wait_for_word("ready");
        running
    };
    let running = [start("idles"), start(case)];
    let tasks = tasks_of(&job);
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    let server = proc_status(tasks[0].pid, "PPid").and_then(|pid| pid.parse().ok());
    kill(server.expect("the parent of a task is its server"), Signal::KILL);
    for stub in running {
        stub.wait().one_line(&["server"]);
    }
    let gone = || tasks.iter().all(|task| !is_alive(task.pid));
    wait_until(&format!("no task of {case} is left"), SOON, gone);
}

#[track_caller]
fn ends_with_its_server_as_root(case: &str) {
    if is_root() {
        ends_with_its_server(case, |command| command);
    }
}

#[test]
fn a_task_that_leaves_its_user_and_comes_back_ends_with_its_server() {
    ends_with_its_server_as_root("user_and_back");
}

#[test]
fn a_task_that_has_left_its_user_ends_with_its_server() {
    ends_with_its_server_as_root("user_left");
}

#[test]
fn a_task_that_leaves_its_group_and_comes_back_ends_with_its_server() {
    ends_with_its_server_as_root("group_and_back");
}

#[test]
fn a_task_that_opens_files_as_another_user_ends_with_its_server() {
    ends_with_its_server_as_root("user_of_files");
}

#[test]
fn a_task_that_changes_its_user_by_a_bare_call_ends_with_its_server() {
    ends_with_its_server_as_root("by_number");
}

#[test]
fn a_task_of_several_threads_that_leaves_its_user_ends_with_its_server() {
    ends_with_its_server_as_root("with_threads");
}

#[test]
fn a_task_whose_thread_leaves_its_user_ends_with_its_server() {
    ends_with_its_server_as_root("from_a_thread");
}

#[test]
fn a_task_of_shared_memory_that_leaves_its_user_ends_with_its_server() {
    if is_root() {
        ends_with_its_server("with_threads", |command| command.env("PVAS_SHARED", "1"));
    }
}

#[test]
fn a_task_that_drops_its_user_ends_with_its_server() {
    ends_with_its_server_as_root("user_dropped");
}

#[test]
fn a_program_that_sets_a_death_signal_of_its_own_ends_with_its_server() {
    ends_with_its_server("own_signal", |command| command);
}

/// The tasks of `nagaya run` are its children.
#[test]
fn a_task_in_a_domain_that_leaves_its_user_ends_with_its_owner() {
    if !is_root() {
        return;
    }
    let run = nagaya("run").args(["--domains", "all:1,all:1"]);
    let mut running = run.arg(rights()).arg("with_threads").spawn();
    running.wait_for_lines(2);
    let tasks: Vec<_> = nagaya_tests::ps(|command| command)
        .into_iter()
        .filter(|task| proc_status(task.pid, "PPid") == Some(running.pid().to_string()))
        .collect();
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    running.signal(Signal::KILL);
    let gone = || tasks.iter().all(|task| !is_alive(task.pid));
    wait_until("no task is left", SOON, gone);
}

#[test]
fn a_forked_child_has_a_death_signal_of_its_own() {
    let case = "signal_of_a_child";
    Cmd::new(rights()).arg(case).run().ok();
    tasks(2, rights()).arg(case).run().ok();
    tasks(2, rights()).arg(case).env("PVAS_SHARED", "1").run().ok();
}
