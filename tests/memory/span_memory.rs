//! The memory of a program under `nagaya span`: one map on all nodes, for changes by all threads.

use std::time::Duration;

use nagaya_tests::program::c;
use nagaya_tests::span::{LIMIT, program, span};
use nagaya_tests::{Cmd, WorkDir, nagaya};

#[test]
fn memory_that_is_mapped_anew_is_new_on_all_nodes() {
    let mappings = c("span/mappings.c");
    for (nodes, rounds) in [("1", "20"), ("2", "5"), ("3", "4"), ("4", "4")] {
        let span = nagaya("span").args(["--place", "spread", "--nodes", nodes]).arg(&mappings);
        span.arg(rounds).time_limit(Duration::from_secs(100)).run().prints("right\n");
    }
}

#[test]
fn copies_go_where_memory_is_short() {
    let work = WorkDir::new();
    let file = work.join("run.json");
    let span = nagaya("span").args(["--nodes", "2", "--place", "spread", "--memory", "14M"]);
    let span = span.arg(format!("--report={}", file.display())).arg(c("span/fills.c"));
    // 16 MB at each node, of which half are copies.
    span.args(["8", "2"]).time_limit(Duration::from_secs(100)).run().prints("right\n");
    let text = std::fs::read_to_string(file).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for node in report["run"]["nodes"].as_array().expect("nodes") {
        let most = node["memory_most"].as_u64().expect("bytes");
        assert!((8 << 20..15 << 20).contains(&most), "{most}");
    }
}

#[test]
fn a_node_whose_own_pages_are_too_many_is_named() {
    let span = nagaya("span").args(["--nodes", "2", "--place", "spread", "--memory", "12M"]);
    let output =
        span.arg(c("span/fills.c")).args(["16", "2"]).time_limit(Duration::from_secs(100)).run();
    assert_eq!(output.code(), 1, "{output}");
    output.one_line(&["node ", "--memory"]);
    nagaya("span").args(["--memory", "1", "true"]).run().refused(125, &["--memory"]);
}

/// Alone and on one to three nodes.
#[track_caller]
fn protects_rightly(what: &str) {
    let protect = program("protect", &[]);
    Cmd::new(&protect).arg(what).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &protect).arg(what).run().prints("right\n");
    }
}

#[test]
fn memory_that_grows_part_by_part_is_protected_rightly() {
    protects_rightly("grows");
}

#[test]
fn threads_of_other_nodes_find_the_protection_that_was_set_before() {
    protects_rightly("moves");
}

#[test]
fn children_have_the_protection_that_was_set_before_also_beside_other_changes() {
    protects_rightly("forks");
}
