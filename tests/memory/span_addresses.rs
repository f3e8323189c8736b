//! Addresses under `nagaya span`: hints and fixed addresses, large unused parts, and memory that
//! is allocated at first use.

use std::time::Duration;

use nagaya_tests::span::program;
use nagaya_tests::{Cmd, WorkDir, nagaya, tool};

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

/// The addresses of text, heap, libc, a mapping and the stack of a program on two nodes.
#[track_caller]
fn places(command: impl Fn(Cmd) -> Cmd) -> Vec<u64> {
    let span = nagaya("span").args(["--nodes", "2", "--place", "spread"]);
    let text = command(span).time_limit(LIMIT).run().ok();
    text.split_whitespace().map(|word| u64::from_str_radix(word, 16).expect("a number")).collect()
}

#[test]
fn addresses_are_random_unless_the_user_wants_fixed_ones() {
    let program = || program("places", &[]);
    let jobs: Vec<Vec<u64>> = (0..8).map(|_| places(|span| span.arg(program()))).collect();
    for part in 0..5 {
        let of = |job: &Vec<u64>| job[part];
        let bits = jobs.iter().fold(0, |bits, job| bits | (of(job) ^ of(&jobs[0]))).count_ones();
        // Of 25 bits, at least 20 differ between some of eight runs.
        assert!(bits >= 20, "part {part}: {jobs:x?}");
    }
    let fixed = places(|span| span.arg("--fixed-addresses").arg(program()));
    assert_eq!(fixed[0] >> 20, 0x550_0000, "{fixed:x?}");
    assert_eq!(fixed[3] >> 24, 0x7e_8000, "{fixed:x?}");
    let again = places(|span| span.arg("--fixed-addresses").arg(program()));
    assert_eq!(fixed, again);
    let setarch = tool("setarch");
    let without = places(|span| Cmd::new(&setarch).arg("-R").command(span).arg(program()));
    assert_eq!(fixed[..4], without[..4]);
    let variable = places(|span| span.arg(program()).env("NAGAYA_FIXED_ADDRESSES", "1"));
    assert_eq!(fixed[..4], variable[..4]);
}
