//! What our tasks must stand: floods, kills at any instant, forks, threads, the daemon's death.

use std::time::{Duration, Instant};

use nagaya_tests::pvm::Machine;
use nagaya_tests::{Output, program, same_lines};

fn run(source: &str, arguments: &[&str]) -> Output {
    let program = program::c_pvm(&format!("pvm/{source}.c"), &["-O1", "-Wextra", "-Werror"]);
    Machine::ours(&[]).task(program).args(arguments).time_limit(Duration::from_secs(60)).run()
}

#[test]
fn two_tasks_that_flood_each_other_lose_nothing_on_any_route() {
    for arguments in [["2000", "100000"], ["200", "3000000"], ["20000", "40"]] {
        assert_eq!(run("flood", &arguments).ok(), "all came: yes\n");
    }
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
    let wanted = "messages that are not what was sent: 0\nwaited for 7\nwaited for 8\n";
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
