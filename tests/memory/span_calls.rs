//! `nagaya span`: system calls that are not made as on one machine, by threads of all nodes.

use std::time::{Duration, Instant};

use nagaya_tests::program::c;
use nagaya_tests::span::{LIMIT, nodes, packing, program, span};
use nagaya_tests::{Cmd, TIME_LIMIT, WorkDir, is_alive, kill, nagaya, wait_until};
use rustix::process::Signal;

#[test]
fn calls_fail_that_would_not_work_and_others_work_everywhere() {
    let calls = program("calls", &[]);
    for nodes in [1, 2, 3] {
        packing(nodes, &calls).run().prints("right\n");
    }
}

#[test]
fn calls_of_patched_sites_are_as_the_kernels() {
    let jumps = program("jumps", &[]);
    Cmd::new(&jumps).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &jumps).run().prints("right\n");
    }
}

#[test]
fn exec_ends_the_threads_of_all_nodes() {
    let calls = program("calls", &[]);
    for node in ["0", "1"] {
        packing(2, &calls).args(["exec", node]).run().prints("executed\n");
    }
}

/// The thread on the second node needs no agent between its call and the origin. On a busy machine
/// most calls take so long that it sleeps.
#[test]
fn a_thread_of_another_node_drives_the_engine_until_its_call_is_answered() {
    let work = WorkDir::new();
    let file = work.join("run.json");
    let span = nagaya("span").args(["--nodes", "2", "--place", "spread"]);
    let span = span.arg(format!("--report={}", file.display())).arg(c("span/drives.c"));
    span.args(["1", "4000"]).time_limit(LIMIT).run().prints("4000 calls, sum 1000\n");
    let text = std::fs::read_to_string(&file).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let driven = |node: usize| {
        let threads = report["run"]["nodes"][node]["threads"].as_array().expect("threads");
        threads.iter().map(|it| it["driven"].as_u64().expect("a number")).sum::<u64>()
    };
    // The thread may have been at the origin at first.
    assert!(driven(1) > 50, "{text}");
    // All descriptors there are the program's.
    assert_eq!(driven(0), 0, "{text}");
}

#[test]
fn many_threads_drive_the_engine_of_their_node_in_turn() {
    let drives = c("span/drives.c");
    for (nodes, threads) in [(2, 2), (2, 16), (3, 8)] {
        let (calls, sum) = (threads * 1000, threads * 250);
        let run = span(nodes, &drives).args([threads.to_string().as_str(), "1000"]);
        run.run().prints(&format!("{calls} calls, sum {sum}\n"));
    }
}

#[test]
fn a_program_ends_while_threads_drive_the_engine() {
    let drives = c("span/drives.c");
    for round in 0..10 {
        let (end, code) = [("exit", 7), ("execute", 0)][round % 2];
        let calls = (100 * (round + 1)).to_string();
        let output = span(2, &drives).args(["8", &calls, end]).run();
        assert_eq!(output.code(), code, "{output}");
        assert_eq!(output.stdout, "there\n", "{output}");
    }
}

#[test]
fn a_kill_while_threads_drive_the_engine_ends_all_nodes() {
    let drives = c("span/drives.c");
    for round in 0..8 {
        let victim = round % 2;
        let mut job = span(2, &drives).args(["4", "1000000000", "exit"]).spawn();
        job.wait_for_word("there");
        let all = nodes(&job);
        std::thread::sleep(Duration::from_millis(20 + 13 * round as u64));
        let begin = Instant::now();
        kill(all[victim], Signal::KILL);
        let output = job.wait();
        assert!(begin.elapsed() < Duration::from_secs(10), "{output}");
        match victim {
            0 => assert_eq!(output.signal(), Some(libc::SIGKILL), "{output}"),
            _ => output.one_line(&["node 1", "lost", "was killed by signal 9"]),
        };
        wait_until("all have ended", TIME_LIMIT, || all.iter().all(|&pid| !is_alive(pid)));
    }
}
