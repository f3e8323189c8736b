//! `nagaya span`: limits on memory and threads are as they are alone.

use std::path::Path;

use nagaya_tests::span::{LIMIT, program, span};
use nagaya_tests::{Cmd, Output};

/// A command under limits that a shell sets.
fn under(limits: &str, command: Cmd) -> Cmd {
    Cmd::new("bash").args(["-c", &format!("{limits} && exec \"$@\""), "bash"]).command(command)
}

fn alone(program: &Path, arguments: &[&str]) -> Cmd {
    Cmd::new(program).args(arguments).time_limit(LIMIT)
}

fn on(nodes: usize, program: &Path, arguments: &[&str]) -> Cmd {
    span(nodes, program).args(arguments)
}

/// All that one may see of it.
fn seen(output: Output) -> (String, Option<i32>, Option<i32>) {
    let signal = output.signal();
    let code = if signal.is_none() { Some(output.code()) } else { None };
    (output.stdout, code, signal)
}

#[test]
fn the_main_stack_is_as_large_as_its_limit() {
    let limits = program("limits", &[]);
    for (limit, arguments, nodes) in [
        ("ulimit -s 8192", &["stack", "7000"][..], 1),
        ("ulimit -s 8192", &["stack", "9000"], 1),
        ("ulimit -s 1024", &["stack", "2000"], 2),
        ("ulimit -s 40000", &["stack", "36000"], 2),
        ("ulimit -s 200000", &["stack", "140000"], 1),
        ("ulimit -s unlimited", &["stack", "10000"], 3),
        ("ulimit -Ss 8192", &["raise", "8192", "20000"], 2),
    ] {
        let wanted = seen(under(limit, alone(&limits, arguments)).run());
        let ours = seen(under(limit, on(nodes, &limits, arguments)).run());
        assert_eq!(ours, wanted, "{limit}, {arguments:?} on {nodes} nodes");
    }
}

#[test]
fn threads_get_stacks_of_the_size_that_the_limit_says() {
    let limits = program("limits", &[]);
    for limit in ["ulimit -s 8192", "ulimit -s 12345", "ulimit -s unlimited"] {
        let wanted = under(limit, alone(&limits, &["threads"])).run().stdout;
        for nodes in [1, 2] {
            under(limit, on(nodes, &limits, &["threads"])).run().prints(&wanted);
        }
    }
}

/// If the kernel's limit cannot be lifted, Nagaya's memory counts, too: here the hard limit stays.
#[test]
fn a_program_has_as_many_addresses_as_its_limit_allows() {
    let limits = program("limits", &[]);
    let limit = "ulimit -Sv 524288";
    under(limit, alone(&limits, &["addresses"])).run().prints("right\n");
    let child = under(limit, alone(&limits, &["child"])).run().stdout;
    assert_eq!(child, "524288\nright\n");
    for nodes in [1, 2, 3] {
        under(limit, on(nodes, &limits, &["addresses"])).run().prints("right\n");
        let children = "524288\n".repeat(nodes) + "right\n";
        under(limit, on(nodes, &limits, &["child"])).run().prints(&children);
    }
}

#[test]
fn three_thousand_threads_exist_at_one_time() {
    let crowd = program("crowd", &[]);
    for nodes in [1, 2] {
        on(nodes, &crowd, &["3000"]).run().prints("3000 threads\n");
    }
}
