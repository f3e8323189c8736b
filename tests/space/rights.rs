//! Tasks that change their rights, as programs of root do. No task outlives its node server, and no
//! task keeps access to memory by rights that it has given up. The cases are in
//! `programs/rights.c`.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::user::User;
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

/// Lets the tasks of the job give up rights.
fn permitted(command: Cmd) -> Cmd {
    command.env("NAGAYA_KEEP_ACCESS", "1")
}

/// Runs a case that is refused: one line for each task names the program, the call and the remedy.
#[track_caller]
fn is_refused(case: &str, call: &str) {
    for shared in ["0", "1"] {
        let output = tasks(1, rights()).arg(case).env("PVAS_SHARED", shared).run();
        output.one_line(&["rights", call, "is refused", "NAGAYA_KEEP_ACCESS=1"]);
        output.prints("refused\n");
    }
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
fn a_task_that_may_drop_its_user_ends_with_its_server() {
    if is_root() {
        ends_with_its_server("user_dropped", permitted);
    }
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

#[test]
fn a_task_that_drops_its_user_or_group_is_refused_with_one_line() {
    if is_root() {
        is_refused("ids_refused", "setgroups");
    }
}

#[test]
fn a_task_that_drops_capabilities_is_refused_with_one_line() {
    if is_root() {
        is_refused("capabilities_refused", "capset");
    }
}

#[test]
fn all_threads_of_a_task_are_refused_alike() {
    if is_root() {
        is_refused("refused_in_all_threads", "setgid");
    }
}

#[test]
fn a_task_that_installs_a_seccomp_filter_is_refused_with_one_line() {
    is_refused("seccomp_refused", "seccomp");
}

#[test]
fn a_task_that_confines_itself_by_landlock_is_refused_with_one_line() {
    let case = "landlock_refused";
    let output = tasks(1, rights()).arg(case).run();
    if output.status.code() == Some(77) {
        return skip("Landlock");
    }
    is_refused(case, "landlock_restrict_self");
}

#[test]
fn changes_that_can_be_undone_pass() {
    let case = "nothing_lost";
    Cmd::new(rights()).arg(case).run().prints("done\n");
    tasks(2, rights()).arg(case).run().prints("done\ndone\n");
    let user = User::ordinary();
    let run = user.nagaya("run").args(["-n", "2"]).arg(user.bring(&rights())).arg(case);
    user.command(run).run().prints("done\ndone\n");
}

#[test]
fn an_ordinary_users_filter_is_refused_too() {
    let user = User::ordinary();
    let run = user.nagaya("run").arg(user.bring(&rights())).arg("seccomp_refused");
    let output = user.command(run).run();
    output.one_line(&["seccomp", "NAGAYA_KEEP_ACCESS=1"]);
    output.prints("refused\n");
}

#[test]
fn children_that_are_no_tasks_drop_their_rights() {
    if !is_root() {
        return;
    }
    let ids = "65534\n65534\n";
    Cmd::new(rights()).arg("children_drop").run().prints(ids);
    tasks(1, rights()).arg("children_drop").run().prints(ids);
    tasks(1, rights()).arg("children_drop").env("PVAS_SHARED", "1").run().prints(ids);
}

#[test]
fn the_variable_that_permits_losses_is_checked() {
    let run = nagaya("run").arg("true").env("NAGAYA_KEEP_ACCESS", "perhaps");
    let output = run.run();
    output.clone().refused(output.code(), &["NAGAYA_KEEP_ACCESS (0 or 1)"]);
}
