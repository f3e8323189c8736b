//! `nagaya span`: stacks of threads. Nagaya uses no part of them for system calls, so threads may
//! have small ones, as goroutines do. The program's alternate signal stack behaves as it does
//! alone.

use nagaya_tests::Cmd;
use nagaya_tests::span::{GO_BUILDS, LIMIT, go_program, program, span};

#[test]
fn alternate_stacks_are_as_they_are_alone() {
    let stacks = program("alternate_stacks", &[]);
    let alone = Cmd::new(&stacks).run();
    assert!(alone.stdout.ends_with("right\n"), "{alone}");
    for nodes in [1, 2, 3] {
        span(nodes, &stacks).run().prints(&alone.stdout);
    }
}

/// AVX-512 needs more than the least that an alternate stack may have.
#[test]
fn a_frame_that_does_not_fit_ends_the_program_as_it_does_alone() {
    let stacks = program("alternate_stacks", &[]);
    let alone = Cmd::new(&stacks).arg("small").run();
    for nodes in [1, 2] {
        let output = span(nodes, &stacks).arg("small").run();
        assert_eq!(output.signal(), alone.signal(), "{nodes} nodes: {output}");
        assert_eq!(output.stdout, alone.stdout, "{nodes} nodes");
    }
}

#[test]
fn go_programs_give_the_same_as_alone() {
    for build in GO_BUILDS {
        let goroutines = go_program("goroutines", build);
        let alone = Cmd::new(&goroutines).time_limit(LIMIT).run();
        assert!(alone.stdout.ends_with("threads 40\n"), "{alone}");
        for nodes in [1, 2] {
            span(nodes, &goroutines).run().prints(&alone.stdout);
        }
    }
}
