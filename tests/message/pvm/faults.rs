//! Robustness of tasks: floods, kills at any instant, forks, threads, the daemon's death.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nagaya_tests::pvm::{HOSTS, Machine};
use nagaya_tests::user::User;
use nagaya_tests::{Cmd, Output, kernel_text, program, same_lines, wait_until};

fn run(source: &str, arguments: &[&str]) -> Output {
    let program = program::c_pvm(&format!("pvm/{source}.c"), &["-O1", "-Wextra", "-Werror"]);
    Machine::ours(&[]).task(program).args(arguments).time_limit(Duration::from_secs(60)).run()
}

#[test]
fn two_tasks_that_flood_each_other_lose_nothing_on_any_route() {
    for arguments in [["2000", "100000"], ["200", "3000000"], ["20000", "40"]] {
        assert_eq!(run("flood", &arguments).ok(), "all came: yes\n");
    }
    // More through the daemon alone than it keeps for both.
    assert_eq!(run("flood", &["60000", "8000", "1"]).ok(), "all came: yes\n");
}

/// Maximum memory of a daemon at any time: the messages that it stores for a task that does not
/// receive, and some for everything else.
const DAEMON_KIB_MAX: u64 = 100 << 10;

fn stopped(arguments: &[&str]) {
    let program = program::c_pvm("pvm/stopped.c", &["-O1", "-Wextra", "-Werror"]);
    let machine = Machine::ours(&[program.parent().expect("a directory")]);
    let limit = Duration::from_secs(120);
    let output = machine.task(&program).args(arguments).time_limit(limit).run().ok();
    let wanted = "the sender waits: yes\nwrong or out of order: 0\nnot sent: 0\n";
    same_lines("stopped", &output, wanted);
    let most = machine.memory_max_kib();
    assert!(most < DAEMON_KIB_MAX, "the daemon has had {most} KiB");
}

#[test]
fn only_the_sender_to_a_stopped_task_through_the_daemon_waits() {
    // Short messages, and those that are exposed until no more can be.
    stopped(&["200", "6000", "."]);
    stopped(&["300", "30000", "."]);
}

#[test]
fn only_the_sender_to_a_stopped_task_of_another_host_waits() {
    stopped(&["200", "6000", HOSTS[1]]);
}

#[test]
fn senders_that_are_killed_leave_no_torn_message_and_take_nothing_of_others_along() {
    let seed = nagaya_tests::seed().to_string();
    let output = run("killed", &["60", &seed]).ok();
    same_lines(
        "killed",
        &output,
        "messages that are broken or out of order: 0\ntasks that sent: 61\n",
    );
}

#[test]
fn another_users_process_at_the_daemons_socket_gets_nothing_and_disturbs_nobody() {
    let Some(user) = User::another() else {
        return nagaya_tests::skip("only root may become somebody else");
    };
    let compiled =
        |name: &str| program::c_pvm(&format!("pvm/{name}.c"), &["-O1", "-Wextra", "-Werror"]);
    let flood = compiled("flood");
    let machine = Machine::ours(&[flood.parent().expect("a directory")]);
    let directory = machine.dir().join("nagaya");
    let socket = directory.join("pvmd.0");
    let library = user.bring(&program::pvm_libraries().join("libpvm3.so.3"));
    let foreign = || {
        let program = Cmd::new(user.bring(&compiled("foreign"))).arg(&socket);
        let libraries = library.parent().expect("a directory");
        let path = format!("LD_LIBRARY_PATH={}", libraries.display());
        user.command(Cmd::new("env").arg(path).command(program)).run()
    };
    let busy = machine.task(&flood).args(["20000", "4000"]).spawn();
    wait_until("both are tasks", nagaya_tests::TIME_LIMIT, || {
        let sockets = kernel_text("/proc/net/unix").expect("the kernel's list");
        let path = socket.to_str().expect("plain text");
        // That where the daemon listens, and theirs.
        sockets.lines().filter(|line| line.ends_with(path)).count() >= 3
    });
    let outside = foreign();
    assert_eq!(outside.stdout, "connect: Permission denied\nmytid PvmSysErr\n");
    // Somebody has opened the doors.
    for path in [&directory, &socket] {
        std::fs::set_permissions(path, Permissions::from_mode(0o777)).expect("ours");
    }
    for _ in 0..10 {
        assert_eq!(foreign().stdout, "the daemon says nothing\nmytid PvmSysErr\n");
    }
    assert_eq!(busy.wait().ok(), "all came: yes\n");
    let (log, uid) = (machine.log(), user.uid().to_string());
    let lines = log.lines().filter(|line| line.contains(&uid)).count();
    assert_eq!(lines, 20, "{log}");
}

#[test]
fn tasks_that_leave_while_a_direct_way_begins_take_nobody_along() {
    let program = program::c_pvm("pvm/leaving.c", &["-Wextra", "-Werror"]);
    // It spawns itself, by its name.
    let machine = Machine::ours(&[program.parent().expect("a directory")]);
    let output = machine.task(&program).arg("25").time_limit(Duration::from_secs(60)).run();
    assert_eq!(output.ok(), "answers missing 0\n");
}

#[test]
fn a_forked_child_is_a_task_of_its_own() {
    let child = "child's tid is another 1, its parent PvmNoParent, its messages 0\n\
                 it sends as itself yes\n";
    let wanted = child.repeat(3)
        + "to itself PvmOk\npacked before 41, same tid yes\n\
           the thread had its message yes\nexit PvmOk\n";
    same_lines("forked", &run("forked", &[]).ok(), &wanted);
}

#[test]
fn threads_send_while_others_wait() {
    let wanted = "wrong messages: 0\nwaited for 7\nwaited for 8\n";
    same_lines("waiting", &run("waiting", &[]).ok(), wanted);
}

#[test]
fn a_task_whose_daemon_is_killed_is_told_as_by_stock_pvm() {
    let program = program::c_pvm("pvm/orphan.c", &["-Wextra", "-Werror"]);
    let told = |machine: Machine| {
        let mut task = machine.task(&program).spawn();
        task.wait_for_lines(1);
        machine.kill();
        task.wait().ok()
    };
    let stock = told(Machine::stock(&[]));
    let start = Instant::now();
    let ours = told(Machine::ours(&[]));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    same_lines("orphan", &ours, &stock);
}

/// The library's recvmsg failed by EINTR. It connected again, and the daemon reported the end of
/// the first connection as that of the task (found by `chaos`).
#[test]
fn a_task_that_is_stopped_while_it_enrolls_goes_on() {
    let program = program::c_pvm("pvm/interrupted.c", &["-Wextra", "-Werror"]);
    // It spawns itself, by its name.
    let machine = Machine::ours(&[program.parent().expect("a directory")]);
    let output = machine.task(&program).time_limit(Duration::from_secs(60)).run();
    assert_eq!(output.ok(), "the worker has sent its number: yes\n");
}
