//! Tasks of one space (`nagaya pvm --space`): they live in one space, and each survives or ends as
//! specified when a task, the server or the daemon ends. (`conformance` runs PVM's own programs in
//! a space.)

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::pvm::Machine;
use nagaya_tests::{Cmd, WorkDir, program, ps, same_lines, wait_until};

/// Time limit of each step.
const LIMIT: Duration = nagaya_tests::TIME_LIMIT;

fn compiled(name: &str, flags: &[&str]) -> PathBuf {
    program::c_pvm(&format!("pvm/{name}.c"), &[&["-Wextra", "-Werror"], flags].concat())
}

/// A machine whose tasks live in a space, and a program that it finds.
fn machine(name: &str, flags: &[&str]) -> (Machine, PathBuf) {
    let program = compiled(name, flags);
    (Machine::in_space(&[program.parent().expect("a directory")]), program)
}

const LIVES: &str = "a server of their own: yes\nread right: 12\nended: 0\nended: 1\n\
                     read right: 2\nread right: 12\nended: 2\nended: 3\nread right: 12\n";

#[test]
fn tasks_read_each_others_memory_and_one_that_crashes_leaves_the_others() {
    let (machine, program) = machine("space", &[]);
    same_lines("space", &machine.task(program).run().ok(), LIVES);
    assert!(!machine.log().contains("ordinary process"));
}

#[test]
fn when_the_server_is_killed_its_tasks_end_and_the_next_get_another() {
    let (machine, program) = machine("space", &[]);
    let printed = machine.task(program).arg("own server").run().ok();
    same_lines("space", &printed, &format!("{LIVES}own server: yes\nended: 6\nread right: 12\n"));
}

#[test]
fn tasks_outlive_a_killed_daemon_and_are_told_and_nothing_is_left() {
    let (machine, program) = machine("space", &[]);
    let mut starter = machine.task(program).arg("daemon").spawn();
    starter.wait_for_lines(1);
    machine.kill();
    same_lines("the starter", &starter.wait().ok(), "waiting\nrecv PvmSysErr\n");
    let told = || std::fs::read_to_string(machine.dir().join("orphans")).unwrap_or_default();
    wait_until("all tasks are told", LIMIT, || told().lines().count() == 4);
    same_lines("the tasks", &told(), &"PvmSysErr\n".repeat(4));
    let left = || {
        let files = std::fs::read_dir(machine.dir().join("nagaya")).expect("a directory");
        files
            .filter(|file| {
                let file = file.as_ref().expect("an entry").file_name();
                file != "pvmd.0" && file != "pvmd.lock"
            })
            .count()
    };
    wait_until("the server has ended", LIMIT, || left() == 0);
}

#[test]
fn a_program_that_cannot_be_a_task_of_a_space_runs_as_an_ordinary_process() {
    let work = WorkDir::new();
    let program = work.join("output");
    nagaya_tests::copy_program(&compiled("output", &[]), &program);
    let mode = Permissions::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).expect("set-user-ID");
    let stock = Machine::stock(&[work.path()]);
    let wanted = stock.task(&program).run().ok();
    // The program spawns itself, by its name.
    let ours = Machine::in_space(&[work.path()]);
    same_lines("output", &ours.task(&program).run().ok(), &wanted);
    let log = ours.log();
    let line = log.lines().find(|line| line.contains("ordinary process")).unwrap_or(&log);
    assert!(line.contains("output") && line.contains("set-user-ID"), "{line}");
}

/// The space is theirs, or was made for others.
#[test]
fn programs_linked_to_fixed_addresses_copy_out_of_each_others_memory() {
    let program = compiled("neighbours", &["-O1", "-no-pie"]);
    let first = compiled("space", &[]);
    let search = [&program, &first].map(|path| path.parent().expect("a directory"));
    for others_first in [false, true] {
        let machine = Machine::in_space(&search);
        if others_first {
            same_lines("space", &machine.task(&first).run().ok(), LIVES);
        }
        let copies = || {
            let turns = machine.task(&program).args(["turns", "1000", "1000000"]);
            let printed = turns.time_limit(Duration::from_secs(120)).run().ok();
            same_lines("neighbours", &printed, "wrong messages: 0\n");
            let tasks = ps(|command| command.env("XDG_RUNTIME_DIR", machine.dir()));
            let turned = tasks.iter().filter(|task| task.command.contains("neighbours"));
            turned.map(|task| task.copies).sum::<u64>()
        };
        // The number depends on the time of the query.
        assert!((0..10).any(|_| copies() > 0), "{}", machine.log());
        assert!(!machine.log().contains("ordinary process"), "{}", machine.log());
    }
}

#[test]
fn ps_shows_the_tasks_of_the_machine() {
    let (machine, program) = machine("space", &[]);
    let mut starter = machine.task(program).arg("daemon").spawn();
    starter.wait_for_lines(1);
    let ps = Cmd::new(nagaya_tests::nagaya_path()).arg("ps").env("XDG_RUNTIME_DIR", machine.dir());
    let listed = ps.run().ok();
    assert_eq!(listed.lines().filter(|line| line.starts_with("pvm.0 ")).count(), 4, "{listed}");
}

fn neighbours(arguments: &[&str]) -> String {
    let (machine, program) = machine("neighbours", &["-O1"]);
    let limit = Duration::from_secs(120);
    let output = machine.task(program).args(arguments).time_limit(limit).run().ok();
    assert!(!machine.log().contains("ordinary process"));
    output
}

#[test]
fn two_tasks_that_send_each_other_long_messages_at_once_lose_nothing() {
    for arguments in [["flood", "400", "100000"], ["flood", "100", "3000000"]] {
        let wanted = "wrong messages: 0\n";
        same_lines("neighbours", &neighbours(&arguments), wanted);
    }
}

/// The receiver waits for each message, so both tasks copy it.
#[test]
fn long_messages_that_both_tasks_copy_arrive_whole() {
    let wanted = "wrong messages: 0\n";
    same_lines("neighbours", &neighbours(&["turns", "1000", "1000000"]), wanted);
}

#[test]
fn senders_that_are_killed_in_the_space_leave_no_torn_message() {
    let seed = nagaya_tests::seed().to_string();
    let wanted = "the honest sender was done: yes\n\
                  messages that are broken or out of order: 0\n";
    same_lines("neighbours", &neighbours(&["senders", "40", &seed]), wanted);
}

#[test]
fn receivers_that_are_killed_in_the_space_block_no_sender() {
    let seed = nagaya_tests::seed().to_string();
    let wanted = "senders that were done: 30\n\
                  messages that are broken or out of order: 0\n";
    same_lines("neighbours", &neighbours(&["receivers", "30", &seed]), wanted);
}
