//! `nagaya span`: system calls that are not made as on one machine, by threads of all nodes.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::nagaya;
use nagaya_tests::program::{c_with, include_dir};

const LIMIT: Duration = Duration::from_secs(100);

fn program() -> PathBuf {
    let include = format!("-I{}", include_dir().display());
    c_with("span/calls.c", &["-O1", "-pthread", &include])
}

#[test]
fn calls_fail_that_would_not_work_and_others_work_everywhere() {
    let calls = program();
    for nodes in ["1", "2", "3"] {
        let span = nagaya("span").args(["--nodes", nodes]).arg(&calls);
        span.time_limit(LIMIT).run().prints("right\n");
    }
}

#[test]
fn who_executes_something_ends_the_threads_of_all_nodes() {
    let calls = program();
    for node in ["0", "1"] {
        let span = nagaya("span").args(["--nodes", "2"]).arg(&calls).args(["exec", node]);
        span.time_limit(LIMIT).run().prints("executed\n");
    }
}
