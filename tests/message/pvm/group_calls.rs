//! Calls on groups in an order that a script says, with the results that stock PVM gives:
//! each script runs under stock PVM, too.
//!
//! A line is a task and a call of `programs/pvm/member.c`, then what comes of it:
//! ```text
//! 1 join g = 0        result (and pvm_errno, if it is not what the result says)
//! 2 barrier g 2 ...   it waits
//! 2 = 0               … and is done, with this result
//! 1 size g ~ 1        asked until it is so: others notice a death late
//! 3 kill              the task is killed
//! ```
//! `@2` is the tid of task 2. Tasks begin when they are first named, on the first host;
//! `2@127.0.0.3` is on another.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nagaya_tests::pvm::Machine;
use nagaya_tests::{Running, program};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

/// Observation time of a call that must wait.
const WATCHED: Duration = Duration::from_millis(60);

fn member() -> PathBuf {
    program::c_pvm("pvm/member.c", &["-Wextra", "-Werror"])
}

/// A task, and the channel of its orders.
struct Task {
    script: File,
    running: Running,
    tid: String,
    lines: usize,
}

impl Task {
    fn start(machine: &Machine, member: &Path, name: &str) -> Task {
        let script = machine.dir().join(format!("script-{name}"));
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &script, FileType::Fifo, mode, 0).expect("a pipe with a name");
        let mut command = machine.task(member).arg(&script);
        if let Some((_, host)) = name.split_once('@') {
            // As the daemon of that host was started: see Machine.
            let directory = machine.dir().join(host);
            command = command.env("PVM_TMP", &directory).env("XDG_RUNTIME_DIR", &directory);
        }
        let running = command.spawn();
        let mut task = Task {
            script: File::options().write(true).open(&script).expect("it reads"),
            running,
            tid: String::new(),
            lines: 0,
        };
        std::fs::remove_file(script).expect("ours");
        task.tid = task.result();
        task
    }

    fn call(&mut self, call: &str) {
        writeln!(self.script, "{call}").expect("it reads");
    }

    fn result(&mut self) -> String {
        self.lines += 1;
        self.running.wait_for_lines(self.lines)[self.lines - 1].clone()
    }

    fn waits(&self) -> bool {
        std::thread::sleep(WATCHED);
        self.running.stdout().lines().count() == self.lines
    }
}

/// Runs the script; panics where it is wrong.
#[track_caller]
fn play(machine: &Machine, whose: &str, script: &str) {
    let member = member();
    let mut tasks = BTreeMap::<&str, Task>::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, rest) = line.split_once(' ').expect("a task and a call");
        if rest == "kill" {
            tasks.remove(name).expect("it has begun").running.signal(Signal::KILL);
            continue;
        }
        if !tasks.contains_key(name) {
            tasks.insert(name, Task::start(machine, &member, name));
        }
        let tids = |text: &str| {
            tasks.iter().fold(text.to_owned(), |text, (name, task)| {
                let name = name.split('@').next().expect("a split has a first part");
                text.replace(&format!("@{name}"), &task.tid)
            })
        };
        let task = |tasks: &mut BTreeMap<&str, Task>, then: &mut dyn FnMut(&mut Task)| {
            then(tasks.get_mut(name).expect("it has begun"));
        };
        if let Some(call) = rest.strip_suffix(" ...") {
            let call = tids(call);
            task(&mut tasks, &mut |task| {
                task.call(&call);
                assert!(task.waits(), "{whose}: {line}: {}", task.result());
            });
        } else if let Some((call, wanted)) = rest.split_once('~') {
            let (call, wanted) = (tids(call), complete(wanted.trim()));
            task(&mut tasks, &mut |task| {
                nagaya_tests::wait_until(line, nagaya_tests::TIME_LIMIT, || {
                    task.call(&call);
                    task.result() == wanted
                });
            });
        } else {
            let (call, wanted) = rest.split_once('=').expect("what is wanted");
            let (call, wanted) = (tids(call.trim()), complete(&tids(wanted.trim())));
            task(&mut tasks, &mut |task| {
                if !call.is_empty() {
                    task.call(&call);
                }
                assert_eq!(task.result(), wanted, "{whose}: {line}");
            });
        }
    }
}

/// A single result determines pvm_errno: the error, or still 0.
fn complete(wanted: &str) -> String {
    match wanted.parse::<i32>() {
        Ok(number) => format!("{number} {}", number.min(0)),
        Err(_) => wanted.to_owned(),
    }
}

fn search(member: &Path) -> [&Path; 1] {
    [member.parent().expect("a directory")]
}

/// The script has its expected results, under stock PVM and under Nagaya.
#[track_caller]
fn holds(script: &str) {
    play(&Machine::stock(&search(&member())), "stock PVM", script);
    holds_for_ours(script);
}

#[track_caller]
fn holds_for_ours(script: &str) {
    play(&Machine::ours(&search(&member())), "ours", script);
}

#[test]
fn an_unknown_group_is_an_error() {
    holds(
        "1 size g = -19
         1 inst g @1 = -19
         1 tid g 0 = -19
         1 leave g = -19
         1 barrier g 1 = -19
         1 bcast g 3 4 = -19
         1 freeze g 1 = -19 0
         1 reduce g sum 3 1 10 0 1 = -19 -19:
         1 gather g 3 1 10 0 1 = -19 -19:
         1 scatter g 3 1 10 0 1 = -19 -19:",
    );
}

#[test]
fn a_group_has_a_name() {
    holds(
        "1 join NULL = -17
         1 join EMPTY = -17
         1 leave NULL = -17
         1 size EMPTY = -17
         1 inst NULL @1 = -17
         1 tid NULL 0 = -17
         1 barrier NULL 1 = -17
         1 bcast EMPTY 1 1 = -17
         1 freeze NULL 1 = -17 0
         1 reduce NULL sum 3 1 10 0 1 = -17 -17:
         1 gather EMPTY 3 1 10 0 1 = -17 -17:
         1 scatter EMPTY 3 1 10 0 1 = -17 -17:",
    );
    // For any length and any bytes.
    let long = "x".repeat(3000);
    holds(&format!(
        "1 join {long} = 0
         2 join {long} = 1
         1 size {long} = 2
         1 size {} = -19
         1 barrier {long} 2 ...
         2 barrier {long} -1 = 0
         1 = 0",
        &long[1..]
    ));
}

#[test]
fn instances_are_given_from_the_lowest() {
    holds(
        "1 join g = 0
         1 join g = -18
         2 join g = 1
         3 join g = 2
         1 size g = 3
         2 leave g = 0
         2 leave g = -20
         1 inst g @3 = 2
         3 tid g 2 = @3 0
         1 tid g 1 = -21
         1 tid g -1 = -21
         1 tid g 3 = -21
         1 tid g 77 = -21
         1 inst g @2 = -20
         1 size g = 2
         4 join g = 1
         4 leave g = 0
         3 leave g = 0
         3 join g = 1
         2 join g = 2
         4 size g = 3
         4 inst g @3 = 1
         4 tid g 2 = @2 0
         1 leave g = 0
         2 leave g = 0
         3 leave g = 0
         4 size g = -19
         4 join g = 0",
    );
}

#[test]
fn a_task_is_in_many_groups() {
    holds(
        "1 join a = 0
         1 join b = 0
         2 join b = 1
         2 join a = 1
         1 barrier a 2 ...
         2 barrier a 2 = 0
         1 = 0
         1 barrier b 2 ...
         2 leave a = 0
         2 inst b @2 = 1
         2 size a = 1
         2 barrier b 2 = 0",
    );
}

#[test]
fn a_broadcast_goes_to_all_others() {
    holds(
        "1 join g = 0
         1 bcast g 6 6 = -21
         2 join g = 1
         3 join g = 2
         4 bcast g 5 55 = 0
         1 recv 5 = @4 5: 55
         2 recv 5 = @4 5: 55
         3 recv 5 = @4 5: 55
         2 bcast g 6 66 = 0
         1 recv 6 = @2 6: 66
         3 recv 6 = @2 6: 66
         2 probe 6 = 0
         1 bcast-nothing g = -15
         3 leave g = 0
         1 bcast g 7 77 = 0
         2 recv 7 = @1 7: 77
         3 probe 7 = 0",
    );
}

#[test]
fn a_barrier_is_for_members_and_for_one_count() {
    holds(
        "1 join g = 0
         2 join g = 1
         3 join g = 2
         4 barrier g 2 = -20
         1 barrier g 2 ...
         2 barrier g 3 = -3
         2 barrier g -1 = -3
         3 barrier g 2 = 0
         1 = 0
         1 barrier g -1 ...
         2 barrier g -1 ...
         3 barrier g -1 = 0
         1 = 0
         2 = 0
         1 barrier g 1 = 0
         1 barrier g 100000 ...
         2 barrier g 100000 ...
         3 barrier g 3 = -3",
    );
}

#[test]
fn a_barrier_counts_arrivals_even_if_the_group_changes() {
    holds(
        "1 join g = 0
         2 join g = 1
         3 join g = 2
         4 join g = 3
         1 barrier g -1 ...
         2 barrier g 4 ...
         4 leave g = 0
         3 barrier g 4 ...
         4 join g = 3
         4 barrier g -1 = 0
         1 = 0
         2 = 0
         3 = 0
         1 barrier g 2 ...
         4 leave g = 0
         2 leave g = 0
         3 barrier g -1 = 0
         1 = 0",
    );
}

#[test]
fn a_task_killed_at_a_barrier_has_arrived() {
    holds(
        "1 join g = 0
         2 join g = 1
         3 join g = 2
         4 join g = 3
         1 barrier g 3 ...
         4 kill
         3 size g ~ 3
         2 barrier g 3 ...
         2 kill
         3 size g ~ 2
         3 barrier g 3 = 0
         1 = 0
         1 inst g @3 = 2
         3 size g = 2",
    );
}

#[test]
fn a_task_that_exits_leaves_its_groups() {
    holds(
        "1 join g = 0
         2 join g = 1
         1 join h = 0
         1 exit = 0
         2 size g ~ 1
         2 inst g @2 = 1
         2 size h = -19
         2 join h = 0",
    );
}

#[test]
fn no_task_passes_an_impossible_count() {
    holds(
        "1 join g = 0
         2 join g = 1
         1 barrier g 0 = -3
         1 barrier g 2 = -3
         2 barrier g 0 = -3
         1 barrier g -1 = -3
         1 leave g = 0
         2 leave g = 0
         1 join g = 0
         2 join g = 1
         1 barrier g -5 = -3
         2 barrier g 1 = -3",
    );
}

#[test]
fn a_frozen_group_takes_nobody_in() {
    holds(
        "1 join s = 0
         2 join s = 1
         3 join s = 2
         4 freeze s 3 = -20 0
         1 freeze s 3 ...
         2 freeze s 2 = -3 0
         2 freeze s 3 ...
         3 freeze s -1 = 3
         1 = 3
         2 = 3
         1 freeze s 3 = -18 0
         4 freeze s 3 = -18 0
         4 join s = -20
         4 size s = 3
         4 inst s @2 = 1
         1 tid s 2 = @3 0
         1 barrier s 3 ...
         2 barrier s -1 ...
         4 barrier s 1 = -20
         3 barrier s 3 = 0
         1 = 0
         2 = 0",
    );
}

/// Stock PVM does not wake the tasks at the barrier, against its manual.
#[test]
fn a_frozen_group_dies_with_the_first_that_leaves() {
    holds_for_ours(
        "1 join s = 0
         2 join s = 1
         3 join s = 2
         1 freeze s 3 ...
         2 freeze s 3 ...
         3 freeze s 3 = 3
         1 = 3
         2 = 3
         1 barrier s 3 ...
         2 barrier s -1 ...
         3 leave s = 0
         1 = -19
         2 = -19
         1 barrier s 2 = -19
         2 barrier s -1 = -19
         1 bcast s 7 7 = -19
         1 size s = 2
         4 tid s 1 = @2 0
         1 freeze s 2 = -3 0
         3 join s = -20
         1 leave s = 0
         2 leave s = 0
         3 join s = 0
         5 join d = 0
         6 join d = 1
         5 freeze d 2 ...
         6 freeze d 2 = 2
         5 = 2
         5 barrier d 2 ...
         6 kill
         5 = -19",
    );
}

#[test]
fn a_reduction_ends_at_its_root() {
    holds(
        "1 join r = 0
         2 join r = 1
         3 join r = 2
         2 reduce r sum 3 2 10 0 100 = 0 0:
         3 reduce r sum 3 2 10 0 1000 = 0 0:
         1 reduce r sum 3 2 10 0 1 = 0 0: 1101 1104
         2 reduce r product 7 1 10 1 3 ...
         3 reduce r product 7 1 10 1 4 = 0 0:
         1 reduce r product 7 1 10 1 1 = 0 0:
         2 = 0 0: -24-24i
         2 reduce r difference 3 1 10 0 100 = 0 0:
         3 reduce r difference 3 1 10 0 1000 = 0 0:
         1 reduce r difference 3 1 10 0 1 = 0 0: -1099
         1 reduce r sum 3 0 10 1 1 = -2 -2:
         1 reduce r sum 3 1 10 3 1 = -21 -21:
         1 reduce r sum 3 1 10 0 -1 = -2 -2:
         1 reduce r sum 99 1 10 0 1 = -2 -2:
         1 reduce r sum 9 1 10 0 1 = -2 -2:
         4 reduce r sum 3 1 10 0 1 = -20 -20:
         2 leave r = 0
         3 reduce r max 3 2 10 0 10 = 0 0:
         1 reduce r max 3 2 10 0 1 = 0 0: 10 11",
    );
}

#[test]
fn members_gather_and_scatter_by_instance() {
    holds(
        "1 join r = 0
         2 join r = 1
         3 join r = 2
         1 gather r 3 2 11 0 1 ...
         2 gather r 3 2 11 0 10 = 0 0:
         3 gather r 3 2 11 0 100 = 0 0:
         1 = 0 0: 1 2 10 11 100 101
         1 scatter r 6 2 12 2 1 ...
         2 scatter r 6 2 12 2 10 ...
         3 scatter r 6 2 12 2 100 = 0 0: 104 105
         1 = 0 0: 100 101
         2 = 0 0: 102 103
         1 gather r 3 0 11 0 1 = -2 -2:
         1 gather r 3 1 11 9 1 = -21 -21:
         1 gather r 99 1 11 0 1 = -2 -2:
         1 gather r 3 1 11 0 -1 = -2 -2:
         1 gather r 3 1 11 0 -2 = -2 -2:
         1 scatter r 3 0 11 0 1 = -2 -2:
         1 scatter r 3 1 11 9 1 = -21 -21:
         1 scatter r 99 1 11 0 1 = -2 -2:
         1 scatter r 3 1 11 0 -1 = -2 -2:
         1 scatter r 3 1 11 0 -2 = -2 -2:
         4 gather r 3 1 11 0 1 = -20 -20:
         4 scatter r 3 1 11 0 1 = -20 -20:
         2 leave r = 0
         1 gather r 3 1 11 0 1 = -21 -21:
         1 scatter r 3 1 11 0 1 = -21 -21:
         3 gather r 3 1 13 0 1 = 0 0:
         1 probe 13 = 0
         1 context x = 0",
    );
}

#[test]
fn operations_have_stock_pvms_types() {
    holds(
        "1 call max 1 -3 4 = 0: 4
         1 call min 1 -3 4 = 0: -3
         1 call sum 1 3 4 = -2: 3
         1 call product 1 3 4 = -2: 3
         1 call max 2 -3 4 = 0: 4
         1 call sum 2 32767 1 = 0: -32768
         1 call product 3 3 4 = 0: 12
         1 call sum 3 2147483647 1 = 0: -2147483648
         1 call sum 8 3 4 = 0: 7
         1 call product 8 3 4 = 0: 12
         1 call max 4 -3 4 = 0: 4
         1 call product 5 3 4 = 0: 0-24i
         1 call max 5 3 -4 = 0: -4+4i
         1 call min 5 3 -4 = 0: 3-3i
         1 call sum 5 3 -4 = 0: -1+1i
         1 call max 7 3 4 = 0: 4-4i
         1 call min 7 -3 4 = 0: -3+3i
         1 call sum 7 -3 4 = 0: 1-1i
         1 call product 6 3 4 = 0: 12
         1 call min 6 3 4 = 0: 3
         1 call sum 0 1 1 = -2:
         1 call max 9 1 1 = -2:",
    );
}

#[test]
fn a_waiter_at_a_barrier_receives_messages() {
    // More than any buffer holds.
    holds(
        "1 join g = 0
         2 join g = 1
         1 barrier g 2 ...
         2 flood @1 2000 50000 = 0
         2 barrier g 2 = 0
         1 = 0
         1 drain 2000 = 0",
    );
}

const OTHER_HOST: &str = "127.0.0.3";

#[test]
fn members_on_two_hosts_do_the_same() {
    let script = "1 addhost OTHER = 0
         1 join g = 0
         2 join g = 1
         1 barrier g 2 ...
         2 barrier g 2 = 0
         1 = 0
         1 barrier g 3 ...
         3@OTHER join g = 2
         3@OTHER size g = 3
         3@OTHER inst g @2 = 1
         2 barrier g -1 ...
         3@OTHER barrier g 2 = -3
         3@OTHER barrier g 3 = 0
         1 = 0
         2 = 0
         2 barriers g 3 50 ...
         3@OTHER barriers g 3 50 ...
         1 barriers g 3 50 = 0
         2 = 0
         3@OTHER = 0
         1 bcast g 6 66 = 0
         2 recv 6 = @1 6: 66
         3@OTHER recv 6 = @1 6: 66
         3@OTHER bcast g 7 77 = 0
         1 recv 7 = @3 7: 77
         2 recv 7 = @3 7: 77
         1 gather g 3 2 11 0 1 ...
         2 gather g 3 2 11 0 10 = 0 0:
         3@OTHER gather g 3 2 11 0 100 = 0 0:
         1 = 0 0: 1 2 10 11 100 101
         3@OTHER reduce g sum 3 2 12 2 100 ...
         1 reduce g sum 3 2 12 2 1 ...
         2 reduce g sum 3 2 12 2 10 = 0 0:
         1 = 0 0:
         3@OTHER = 0 0: 111 114
         2 kill
         1 size g ~ 2"
        .replace("OTHER", OTHER_HOST);
    holds(&script);
}

/// So many members of a group, each at a call.
fn members<'a>(
    machine: &Machine,
    program: &Path,
    names: impl Iterator<Item = &'a str>,
) -> Vec<Task> {
    names
        .map(|name| {
            let mut task = Task::start(machine, program, name);
            task.call("join g");
            assert!(task.result().ends_with(" 0"));
            task
        })
        .collect()
}

#[test]
fn more_members_than_processors_pass() {
    let (program, names) = (member(), (0..16).map(|n| n.to_string()).collect::<Vec<_>>());
    let machine = Machine::ours(&search(&program));
    let mut tasks = members(&machine, &program, names.iter().map(String::as_str));
    for task in &mut tasks {
        task.call("barriers g 16 500");
    }
    for task in &mut tasks {
        assert_eq!(task.result(), "0 0");
    }
}

/// Members meet in pairs, in any order; some are killed at any instant. The others continue.
#[test]
fn a_killed_member_keeps_nobody_from_passing() {
    let program = member();
    let machine = Machine::ours(&search(&program));
    let mut random = nagaya_tests::seed();
    for round in 0..10 {
        let names: Vec<_> = (0..6).map(|n| format!("{round}-{n}")).collect();
        let mut tasks = members(&machine, &program, names.iter().map(String::as_str));
        for task in &mut tasks[1..] {
            task.call("barriers g 2 10000");
        }
        for killed in tasks.drain(4..) {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            std::thread::sleep(Duration::from_micros((random >> 33) % 10_000));
            killed.running.signal(Signal::KILL);
        }
        // The first member is the partner of one without another.
        let (first, others) = tasks.split_first_mut().expect("four are left");
        first.call("barriers g 2 100000000");
        nagaya_tests::wait_until("all pass", nagaya_tests::TIME_LIMIT, || {
            others.iter().all(|task| task.running.stdout().lines().count() > task.lines)
        });
        for task in others {
            assert_eq!(task.result(), "0 0");
        }
        for task in tasks {
            task.running.signal(Signal::KILL);
        }
        let mut last = Task::start(&machine, &program, &format!("{round}-last"));
        nagaya_tests::wait_until("the group ends", nagaya_tests::TIME_LIMIT, || {
            last.call("size g");
            last.result() == "-19 -19"
        });
    }
}
