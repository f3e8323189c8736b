//! `nagaya span`: the state of a thread on any node: its registers when it moves to another node,
//! its signals, and its locks when it ends.

use nagaya_tests::span::{LIMIT, program, span};
use nagaya_tests::{Cmd, Running, kill, nagaya};
use rustix::process::Signal;

#[test]
fn threads_go_from_node_to_node_with_all_that_is_theirs() {
    let mut builds = vec![program("moves", &[])];
    if std::is_x86_feature_detected!("avx") {
        builds.push(program("moves", &["-mavx"]));
    }
    for moves in builds {
        Cmd::new(&moves).run().prints("alone\n");
        for (nodes, rounds) in [(1, "5"), (2, "50"), (3, "30")] {
            span(nodes, &moves).arg(rounds).run().prints("there and back\n");
        }
    }
}

#[test]
fn signals_reach_threads_wherever_they_are() {
    let signals = program("signals", &[]);
    Cmd::new(&signals).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &signals).run().prints("right\n");
    }
}

/// The frame of the signal that arrives is built over the frame of the handler that returns.
#[test]
fn vector_registers_survive_a_signal_that_arrives_as_a_handler_returns() {
    let vectors = program("vectors", &[]);
    Cmd::new(&vectors).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &vectors).run().prints("right\n");
    }
}

#[test]
fn a_waiter_of_a_robust_mutex_learns_of_its_owners_end() {
    let robust = program("robust", &[]);
    Cmd::new(&robust).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &robust).run().prints("right\n");
    }
}

#[test]
fn running_threads_go_where_there_is_less_to_do_and_stay() {
    let busy = program("busy", &[]);
    let span = nagaya("span").args(["--nodes", "2", "--place", "load"]).arg(&busy).arg("load");
    let output = span.time_limit(LIMIT).run();
    let moves = output.stdout.strip_suffix(" moves\n").and_then(|moves| moves.parse().ok());
    // Twice as many as are needed: others' work is load, too, but no thread goes to and fro.
    assert!(moves.is_some_and(|moves: u32| (2..=4).contains(&moves)), "{output}");
}

/// By themselves, and it is said in the report only.
#[test]
fn threads_that_get_in_each_other_s_way_are_packed() {
    let packed = program("packed", &[]);
    let run = |what: &str| {
        let span = nagaya("span").args(["--nodes", "2", "--report"]).arg(&packed);
        span.arg(what).time_limit(LIMIT).run()
    };
    // Two nodes on one processor are no better than one.
    let may_spread = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    for what in
        if may_spread { &["together", "apart", "alone", "visits"][..] } else { &["together"] }
    {
        let output = run(what);
        assert!(output.stdout == "right\n" && output.code() == 0, "{output}");
        let is_packed = output.stderr.contains("s threads were packed on 1 node");
        // A thread that comes home by itself need not be packed.
        assert!(is_packed || ["alone", "visits"].contains(what), "{output}");
    }
    let output = run("migrates");
    assert!(output.stdout == "right\n" && !output.stderr.contains("packed on"), "{output}");
    for nodes in ["2", "3"] {
        let span = nagaya("span").args(["--nodes", nodes]).arg(&packed).arg("phases");
        let output = span.time_limit(LIMIT).run();
        assert_eq!(output.stderr, "", "{output}");
        output.prints("right\n");
    }
}

/// Unless the user controls the placement.
#[test]
fn threads_that_call_more_than_they_compute_go_home() {
    let homes = program("homes", &[]);
    for (place, printed) in [("auto", "right\n"), ("spread", "still away\n")] {
        let span = nagaya("span").args(["--nodes", "2", "--place", place]).arg(&homes);
        span.time_limit(LIMIT).run().prints(printed);
    }
}

#[test]
fn a_thread_is_sent_elsewhere_from_outside() {
    let busy = program("busy", &[]);
    let mut job = span(2, &busy).arg("order").spawn();
    let who = job.wait_for_lines(1).remove(0);
    let order = |what: &str| nagaya("span").args(["--move", what]).run();
    let (process, thread) = who.split_once(':').expect("two numbers");
    order(&format!("{who}=2")).refused(125, &[&who, "node 2"]);
    order(&format!("{process}:1=1")).refused(125, &["thread 1"]);
    order(&format!("1:{thread}=1")).refused(125, &["no program"]);
    order("nobody").refused(125, &["PID:TID=NODE"]);
    order(&format!("{who}=1")).ok();
    job.wait_for_word("on node 1");
    order(&format!("{who}=0")).ok();
    job.wait_for_word("on node 0");
    assert_eq!(job.wait().code(), 0);
}

#[test]
fn a_thread_s_fault_ends_the_program_as_it_does_alone() {
    let signals = program("signals", &[]);
    let ends = [
        ("segv", libc::SIGSEGV),
        ("fpe", libc::SIGFPE),
        ("abort", libc::SIGABRT),
        ("overflow", libc::SIGSEGV),
        ("handled overflow", libc::SIGSEGV),
    ];
    for (what, signal) in ends {
        for nodes in [1, 2] {
            let output = span(nodes, &signals).arg(what).run();
            assert_eq!(output.signal(), Some(signal), "{what} on {nodes} nodes: {output}");
        }
    }
}

/// A thread of another node handles signals from outside; all nodes live on.
#[test]
fn signals_from_outside_are_handled() {
    let signals = program("signals", &[]);
    for (what, signal) in [("term", Signal::TERM), ("interrupt", Signal::INT)] {
        for nodes in [1, 2] {
            let mut job: Running = span(nodes, &signals).arg(what).spawn();
            job.wait_for_word("there");
            // As a terminal does: all of them get it.
            let nodes = format!("/proc/{0}/task/{0}/children", job.pid());
            let nodes = std::fs::read_to_string(nodes).expect("children");
            for node in nodes.split_whitespace().skip(1) {
                kill(node.parse().expect("a PID"), signal);
            }
            job.signal(signal);
            let output = job.wait();
            assert_eq!(output.code(), 7, "{output}");
            assert!(output.stdout.contains("handled 1"), "{output}");
        }
    }
}
