//! The node server outlives a task that uses up a resource of the shared address space: its
//! mappings, its memory. The task gets ENOMEM, and the other tasks run on.

use nagaya_tests::program;
use nagaya_tests::{
    Cmd, Running, TIME_LIMIT, exec, job, kernel_text, nagaya, proc_status, tasks_of, wait_until,
};
use rustix::process::Signal;

/// More mappings than the other tasks and the server have.
const MAPPINGS_LEFT: usize = 5000;

/// Bytes of the heap of a process, as /proc/PID/maps has it.
fn heap_size(pid: i32) -> u64 {
    let maps = kernel_text(format!("/proc/{pid}/maps")).expect("the mappings");
    let heap = maps.lines().filter(|line| line.ends_with("[heap]"));
    let size = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    };
    heap.filter_map(size).sum()
}

/// The PID of the node server of a task.
fn server_of(task: i32) -> i32 {
    proc_status(task, "PPid").and_then(|pid| pid.parse().ok()).expect("the task's parent")
}

/// A task of the job that uses up a resource and stays.
fn exhausts(limited: impl Fn(Cmd) -> Cmd, job: &str, what: &str) -> Running {
    let program = program::c("exhaust_mappings.c");
    // A pipe whose other end stays open.
    let script = "sleep 600 | \"$@\"";
    let command = limited(exec(job, &program).arg(what));
    let mut running = Cmd::new("bash").args(["-c", script, "bash"]).command(command).spawn();
    running.wait_for_word("exhausted");
    running
}

/// A task of the job that prints a line for each that it reads, with memory of its own in use.
fn neighbour(limited: impl Fn(Cmd) -> Cmd, job: &str) -> Running {
    let script = "echo up; while :; do sleep 0.05; done";
    let mut running = limited(exec(job, "bash").args(["-c", script])).spawn();
    running.wait_for_word("up");
    running
}

#[track_caller]
fn survives(limited: impl Fn(Cmd) -> Cmd, what: &str, reason: &str) {
    let job = job();
    let mut neighbour = neighbour(&limited, &job);
    let before = tasks_of(&job);
    let server = server_of(before[0].pid);
    let greedy = exhausts(&limited, &job, what);
    // The server describes the job.
    let tasks = tasks_of(&job);
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    let maps = nagaya("maps").arg(&job).run().ok();
    assert!(maps.contains("exhaust_mappings"), "{maps}");
    // No other task has room, and its user reads why.
    let output = limited(exec(&job, "echo").arg("ran")).run();
    if !output.status.success() {
        output.clone().refused(output.code(), &[reason]);
    }
    assert!(neighbour.is_running(), "{}", neighbour.wait());
    // All is free again at the end of the task.
    let pid = tasks.iter().find(|task| task.command.contains(what)).expect("listed").pid;
    nagaya_tests::kill(pid, Signal::KILL);
    drop(greedy);
    let is_free = || {
        let maps = kernel_text(format!("/proc/{server}/maps")).unwrap_or_default();
        tasks_of(&job).len() == 1 && maps.lines().count() < MAPPINGS_LEFT
    };
    wait_until("the task's memory is free", TIME_LIMIT, is_free);
    limited(exec(&job, "echo").arg("ran")).run().prints("ran\n");
    assert!(neighbour.is_running(), "{}", neighbour.wait());
    assert_eq!(server_of(before[0].pid), server);
}

#[test]
fn a_task_that_uses_up_the_mappings_ends_nobody() {
    survives(|command| command, "mappings", "vm.max_map_count");
}

#[test]
fn a_task_that_uses_up_the_memory_ends_nobody() {
    let limited = |command| Cmd::new("prlimit").args(["--as=2147483648", "--"]).command(command);
    survives(limited, "memory", "memory");
}

/// An optimising compiler may remove a reserve that is only allocated and freed.
#[test]
fn a_server_has_heap_in_reserve() {
    const RESERVE_MIN: u64 = 64 << 20;
    let job = job();
    let _keeps_the_server = neighbour(|command| command, &job);
    let size = heap_size(server_of(tasks_of(&job)[0].pid));
    assert!(size >= RESERVE_MIN, "the server's heap has {size} bytes");
}
