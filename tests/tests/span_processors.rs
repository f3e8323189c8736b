//! `nagaya span`: programs see the processors of all nodes.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::program::{c_with, include_dir};
use nagaya_tests::{Cmd, WorkDir, nagaya};

const LIMIT: Duration = Duration::from_secs(100);

fn program() -> PathBuf {
    let include = format!("-I{}", include_dir().display());
    c_with("span/processors.c", &["-O1", "-pthread", &include])
}

/// Those that we may use.
fn ours() -> usize {
    rustix::thread::sched_getaffinity(None).expect("a mask").count() as usize
}

#[test]
fn programs_see_the_processors_of_all_nodes() {
    let processors = program();
    for nodes in [2, 3] {
        // Each has a share of this machine's, or one if there are not enough.
        let all = if ours() < nodes { nodes } else { ours() };
        let span = nagaya("span").args(["--nodes", &nodes.to_string()]).arg(&processors);
        span.arg(all.to_string()).time_limit(LIMIT).run().prints("right\n");
    }
}

#[test]
fn hosts_have_as_many_as_is_said() {
    let (work, processors) = (WorkDir::new(), program());
    let ssh = work.write_executable("ssh", "#!/bin/sh\nshift\nexec sh -c \"$1\"\n");
    let span = |hosts: &str, program: &str| {
        let span = nagaya("span").args(["-H", hosts]).arg(program);
        span.env("NAGAYA_RSH", &ssh).env_remove("OMP_NUM_THREADS").time_limit(LIMIT)
    };
    let processors = processors.to_str().expect("text");
    span("localhost:3,a:64,b:2", processors).arg("69").run().prints("right\n");
    let hosts = "localhost:1,a:3,b:2";
    let count = "import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))";
    span(hosts, "/usr/bin/python3").args(["-c", count]).run().prints("6 6\n");
    let threads = c_with("span/openmp_threads.c", &["-fopenmp"]);
    span(hosts, threads.to_str().expect("text")).run().prints("6 6\n");
}

#[test]
fn a_program_on_one_node_sees_what_the_kernel_says() {
    let alone = Cmd::new("/usr/bin/nproc").run().ok();
    nagaya("span").arg("/usr/bin/nproc").time_limit(LIMIT).run().prints(&alone);
}
