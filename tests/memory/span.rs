//! `nagaya span`: unmodified programs whose threads run on several nodes, print and end as on
//! one machine; litmus tests for their memory; nodes that are killed.

use std::path::Path;
use std::time::{Duration, Instant};

use nagaya_tests::program::{c, c_with};
use nagaya_tests::python::interpreter;
use nagaya_tests::span::{LIMIT, nodes, python_threads, span};
use nagaya_tests::{Cmd, WorkDir, is_alive, kill, nagaya, tool, wait_until};
use rustix::process::Signal;

/// A C program with threads.
fn threads(source: &str) -> std::path::PathBuf {
    c(source)
}

/// Bytes that can be packed, but not too well; the same each time.
fn data(work: &WorkDir) -> std::path::PathBuf {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x3f
    };
    work.write("data", (0..6_000_000).map(|_| next()).collect::<Vec<u8>>())
}

/// The command's output, by a file: bytes that are no text.
fn output(command: Cmd, work: &WorkDir) -> Vec<u8> {
    let file = work.join("output");
    let shell = Cmd::new("bash").args(["-c", "exec \"$@\" >\"$0\""]).arg(&file).command(command);
    shell.time_limit(LIMIT).run().ok();
    std::fs::read(file).expect("output")
}

#[test]
fn threads_of_all_nodes_see_one_memory() {
    let litmus = threads("span/litmus.c");
    for (nodes, rounds) in [(1, "300"), (2, "100"), (3, "50"), (4, "30")] {
        span(nodes, &litmus).arg(rounds).run().prints("right\n");
    }
}

#[test]
fn packers_write_the_same_as_on_one_machine() {
    let work = WorkDir::new();
    let data = data(&work);
    let file = data.to_str().expect("text");
    for command in [
        &["xz", "-T2", "-0", "-c", file][..],
        &["zstd", "-T2", "-q", "-c", file],
        &["pigz", "-p3", "-c", file],
        &["pbzip2", "-p2", "-c", "-k", file],
    ] {
        let program = tool(command[0]);
        let alone = output(Cmd::new(&program).args(&command[1..]), &work);
        for nodes in [2, 3] {
            let ours = output(span(nodes, &program).args(&command[1..]), &work);
            assert!(ours == alone, "{command:?} on {nodes} nodes writes something else");
        }
    }
}

#[test]
fn openmp_programs_run_on_all_nodes() {
    let program = c_with("span/product.c", &["-fopenmp"]);
    let alone = Cmd::new(&program).env("OMP_NUM_THREADS", "3").run().ok();
    for nodes in [1, 2, 3] {
        span(nodes, &program).env("OMP_NUM_THREADS", "3").run().prints(&alone);
    }
}

#[test]
fn python_s_threads_run_on_all_nodes() {
    let work = WorkDir::new();
    let (script, wanted) = python_threads(&work, 20000);
    // Debian's interpreter is linked to fixed addresses; the test's own is not.
    for interpreter in [Path::new("/usr/bin/python3"), &interpreter()] {
        for nodes in [1, 2] {
            span(nodes, interpreter).arg(&script).run().prints(&wanted);
        }
    }
}

#[test]
fn programs_without_threads_do_as_they_do() {
    span(2, tool("cat")).arg("-").stdin("in and out\n").run().prints("in and out\n");
    assert_eq!(span(2, tool("false")).run().code(), 1);
    span(2, tool("readlink")).arg("/proc/self/exe").run().prints(&format!(
        "{}\n",
        std::fs::canonicalize(tool("readlink")).expect("a path").display()
    ));
}

#[test]
fn a_program_ends_however_it_ends() {
    let ends = threads("span/ends.c");
    let said = "all are there\n";
    for nodes in [1, 2, 3] {
        assert_eq!(span(nodes, &ends).arg("exit").run().code(), 5);
        span(nodes, &ends).arg("last").run().prints(said);
        let fault = span(nodes, &ends).arg("fault").run();
        assert!(fault.signal().is_some() || fault.code() == 1, "{fault}");
    }
}

#[test]
fn a_node_that_is_killed_is_named_and_all_end() {
    let ends = threads("span/ends.c");
    for victim in 0..3 {
        let mut job = span(3, &ends).arg("wait").spawn();
        job.wait_for_word("there");
        let all = nodes(&job);
        assert_eq!(all.len(), 3);
        let begin = Instant::now();
        kill(all[victim], Signal::KILL);
        let output = job.wait();
        assert!(begin.elapsed() < Duration::from_secs(10), "{output}");
        match victim {
            0 => assert_eq!(output.signal(), Some(libc::SIGKILL), "{output}"),
            _ => {
                assert_eq!(output.code(), 1, "{output}");
                output.one_line(&[&format!("node {victim}"), "lost", "was killed by signal 9"]);
            }
        }
        wait_until("all have ended", nagaya_tests::TIME_LIMIT, || {
            all.iter().all(|&pid| !is_alive(pid))
        });
    }
}

#[test]
fn signals_go_to_the_program() {
    let ends = threads("span/ends.c");
    let mut job = span(2, &ends).arg("wait").spawn();
    job.wait_for_word("there");
    let all = nodes(&job);
    job.signal(Signal::TERM);
    let output = job.wait();
    assert_eq!(output.signal(), Some(libc::SIGTERM), "{output}");
    wait_until("all have ended", nagaya_tests::TIME_LIMIT, || {
        all.iter().all(|&pid| !is_alive(pid))
    });
}

/// Runs a short program many times, several at a time. Fails in nearly all runs if its end does not
/// wait for nodes that still begin.
fn runs_often(command: &[&str]) {
    let program = tool(command[0]);
    std::thread::scope(|all| {
        for _ in 0..4 {
            all.spawn(|| {
                (0..25).for_each(|_| span(3, &program).args(&command[1..]).run().prints(""));
            });
        }
    });
}

#[test]
fn a_program_may_end_before_all_nodes_have_begun() {
    runs_often(&["true"]);
}

#[test]
fn a_program_may_execute_another_before_all_nodes_have_begun() {
    runs_often(&["env", "true"]);
}

#[test]
fn programs_that_cannot_run_are_refused_in_one_line() {
    span(2, "/nowhere/to/be/found").run().refused(127, &["/nowhere/to/be/found"]);
    span(2, "/etc/passwd").run().refused(126, &["/etc/passwd", "execut"]);
    nagaya("span").args(["--nodes", "0", "true"]).run().refused(125, &["--nodes"]);
    nagaya("span").run().refused(125, &["prog"]);
}
