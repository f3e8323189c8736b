//! `nagaya span`: clocks, which are read on all nodes without a system call, and are the origin's.

use std::path::{Path, PathBuf};

use nagaya_tests::span::{LIMIT, packing, program};
use nagaya_tests::{Cmd, WorkDir, nagaya, skip};

#[test]
fn clocks_are_read_on_all_nodes_without_a_call() {
    let clocks = program("clocks", &[]);
    Cmd::new(&clocks).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        packing(nodes, &clocks).run().prints("right\n");
    }
}

/// Stands for ssh: a host that was started long before this one.
fn other_time(work: &WorkDir) -> PathBuf {
    let script = "#!/bin/sh\nshift\n\
        exec unshare --fork --time --monotonic 1000000 --boottime 2000000 sh -c \"$1\"\n";
    work.write_executable("ssh", script)
}

fn can_be_elsewhere(ssh: &Path) -> bool {
    Cmd::new(ssh).args(["host", "true"]).run().code() == 0
}

#[test]
fn clocks_of_other_machines_are_the_origin_s() {
    let work = WorkDir::new();
    let ssh = other_time(&work);
    if !can_be_elsewhere(&ssh) {
        return skip("only root can make time namespaces, on Linux 5.6 or newer");
    }
    let clocks = program("clocks", &[]);
    for hosts in ["localhost,a", "localhost,a,b"] {
        let span = nagaya("span").args(["--place", "spread", "-H", hosts]).arg(&clocks);
        span.env("NAGAYA_RSH", &ssh).time_limit(LIMIT).run().prints("right\n");
    }
}
