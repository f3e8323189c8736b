//! `nagaya span`: system calls that are not made as on one machine, by threads of all nodes.

use nagaya_tests::Cmd;
use nagaya_tests::span::{LIMIT, packing, program, span};

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
