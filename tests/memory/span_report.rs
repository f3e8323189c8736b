//! `nagaya span --report`: the work of a program's nodes and threads, its obstacles, and its
//! scaling.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::program::c_with;
use nagaya_tests::{Cmd, WorkDir, nagaya};

const LIMIT: Duration = Duration::from_secs(100);

fn shares() -> PathBuf {
    c_with("span/shares.c", &["-pthread", "-g"])
}

fn counted(how: &str, report: &str) -> Cmd {
    let span = nagaya("span").args(["--nodes", "2", "--place", "spread", report]);
    span.arg(shares()).args([how, "150"]).time_limit(LIMIT)
}

#[test]
fn variables_that_share_a_page_are_named_with_the_code_that_uses_them() {
    let output = counted("apart", "--report").run();
    let report = &output.stderr;
    assert!(output.stdout.ends_with("300\n"), "{output}");
    for words in [
        "false sharing",
        "counts, written by count_first at shares.c:",
        "counts + 64, written by count_second at shares.c:",
        "would this program scale?",
    ] {
        assert!(report.contains(words), "no {words:?} in\n{report}");
    }
}

#[test]
fn one_variable_that_both_write_is_no_false_sharing() {
    let output = counted("one", "--report").run();
    let report = &output.stderr;
    assert!(report.contains("counts, written by count_first"), "{report}");
    let page = report.split("counts, written").nth(1).expect("it is there");
    let page = page.split("times\n").next().expect("some");
    assert!(!page.contains("false sharing"), "{report}");
}

#[test]
fn numbers_go_to_a_file_as_json() {
    let work = WorkDir::new();
    let file = work.join("run.json");
    let output = counted("alone", &format!("--report={}", file.display())).run();
    assert!(!output.stderr.contains("scale"), "{output}");
    let text = std::fs::read_to_string(&file).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let nodes = report["run"]["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2);
    // Each thread that is not at the origin has its calls made there: a dot a round.
    let thread = |node: &serde_json::Value| node["threads"].as_array().expect("threads").clone();
    let away = thread(&nodes[1]);
    assert_eq!(away.len(), 1, "{text}");
    let calls = away[0]["calls"].as_array().expect("calls");
    assert!(calls.iter().any(|call| call[0] == libc::SYS_write && call[1] == 150), "{text}");
    for thread in nodes.iter().flat_map(thread) {
        assert!(thread["running_ns"].as_u64() > Some(100_000), "{text}");
    }
    assert!(nodes[1]["pages_in"].as_u64() > Some(5), "{text}");
}

/// A page of text that it has read from its file is the protocol's later.
#[test]
fn a_thread_that_sleeps_is_not_stopped_at_a_page() {
    let work = WorkDir::new();
    let file = work.join("run.json");
    let text = c_with("span/text.c", &["-Wl,--build-id", "-DVALUE=1"]);
    let span = nagaya("span").args(["--nodes", "2", "--place", "spread"]);
    let span = span.arg(format!("--report={}", file.display())).arg(text).arg("500");
    span.time_limit(LIMIT).run().prints(&format!("{} 8 7 18\n", 1 << 20));
    let report = std::fs::read_to_string(&file).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let run = &report["run"];
    let awake = run["seconds"].as_f64().expect("seconds") - 0.5;
    let threads = run["nodes"][1]["threads"].as_array().expect("threads");
    assert_eq!(threads.len(), 1, "{run}");
    let stopped = threads[0]["stopped_ns"].as_f64().expect("ns") / 1e9;
    assert!(stopped < awake, "{stopped} s of {awake}: {run}");
}

#[test]
fn a_report_that_cannot_be_written_is_refused_at_once() {
    let output = counted("alone", "--report=/nowhere/to/be/found").run();
    output.refused(125, &["/nowhere/to/be/found"]);
}

/// A program whose threads do not wait for processors uses the origin's memory as it does alone: no
/// fault reaches the agent, and no other node has a thread.
#[test]
fn a_program_with_one_thread_stays_on_the_origin() {
    let span = nagaya("span").args(["--nodes", "2", "--report"]).arg("/usr/bin/seq");
    let output = span.arg("500000").time_limit(LIMIT).run();
    assert!(output.stdout.ends_with("\n500000\n"), "{output}");
    let line = |node: &str| output.stderr.lines().find(|line| line.starts_with(node));
    for node in ["node 0 (", "node 1 ("] {
        let faults = line(node).is_some_and(|it| it.contains("faults: 0 to read, 0 to write"));
        assert!(faults, "{output}");
    }
    assert!(!output.stderr.contains("were tried"), "{output}");
}
