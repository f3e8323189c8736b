//! Addresses under `nagaya span`: hints and fixed addresses, large unused parts, and memory that
//! is allocated at first use.

use std::time::Duration;

use nagaya_tests::span::program;
use nagaya_tests::{Cmd, WorkDir, nagaya};

const LIMIT: Duration = Duration::from_secs(100);

/// The program prints `right`, alone and on this many nodes.
fn right_everywhere(name: &str) {
    let program = program(name, &[]);
    Cmd::new(&program).time_limit(LIMIT).run().prints("right\n");
    for nodes in ["1", "2", "3"] {
        let span = nagaya("span").args(["--place", "spread", "--nodes", nodes]).arg(&program);
        span.time_limit(LIMIT).run().prints("right\n");
    }
}

#[test]
fn mappings_are_where_the_program_wants_them() {
    right_everywhere("addresses");
}

#[test]
fn addresses_that_nobody_uses_cost_nothing() {
    right_everywhere("reserves");
}

#[test]
fn system_v_segments_are_shared_with_other_processes() {
    right_everywhere("sysv");
}

#[test]
fn memory_is_taken_as_it_is_used() {
    right_everywhere("sparse");
    let work = WorkDir::new();
    let file = work.join("run.json");
    let span = nagaya("span").args(["--nodes", "2", "--place", "spread"]);
    let span = span.arg(format!("--report={}", file.display())).arg(program("sparse", &[]));
    span.arg("32").time_limit(LIMIT).run().prints("right\n");
    let text = std::fs::read_to_string(file).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for node in report["run"]["nodes"].as_array().expect("nodes") {
        let most = node["memory_most"].as_u64().expect("bytes");
        // The program uses 32 MiB four times, and gives them back each time.
        assert!(most < (32 + 4 * 32 / 8 + 4) << 20, "{most}");
    }
}
