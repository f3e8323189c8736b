//! `nagaya span`: programs see the processors of all nodes, and bind threads to them.

use std::path::Path;

use nagaya_tests::span::{LIMIT, packing, program};
use nagaya_tests::{Cmd, WorkDir, nagaya};

/// On hosts that are this one.
fn span_on(work: &WorkDir, hosts: &str, program: impl AsRef<Path>) -> Cmd {
    let ssh = work.write_executable("ssh", "#!/bin/sh\nshift\nexec sh -c \"$1\"\n");
    let span = nagaya("span").args(["-H", hosts]).arg(program.as_ref());
    span.env("NAGAYA_RSH", &ssh).env_remove("OMP_NUM_THREADS").time_limit(LIMIT)
}

/// The allowed processors.
fn ours() -> usize {
    rustix::thread::sched_getaffinity(None).expect("a mask").count() as usize
}

#[test]
fn programs_see_the_processors_of_all_nodes() {
    let processors = program("processors", &["-fopenmp"]);
    for nodes in [2, 3] {
        // Each has a share of this machine's, or one if there are not enough.
        let all = if ours() < nodes { nodes } else { ours() };
        packing(nodes, &processors).arg(all.to_string()).run().prints("right\n");
    }
}

#[test]
fn hosts_have_as_many_as_is_said() {
    let work = WorkDir::new();
    span_on(&work, "localhost:3,a:64,b:2", program("processors", &["-fopenmp"]))
        .arg("69")
        .run()
        .prints("right\n");
    let hosts = "localhost:1,a:3,b:2";
    let count = "import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))";
    span_on(&work, hosts, "/usr/bin/python3").args(["-c", count]).run().prints("6 6\n");
    span_on(&work, hosts, program("openmp_threads", &["-fopenmp"])).run().prints("6 6\n");
}

#[test]
fn threads_go_where_the_program_binds_them() {
    let (work, bound) = (WorkDir::new(), program("bound", &["-fopenmp"]));
    let span = |place: &str, hosts: &str| span_on(&work, hosts, "--place").arg(place).arg(&bound);
    for place in ["auto", "spread", "load"] {
        span(place, "localhost:2,a:3").args(["0", "2", "5"]).run().prints("right\n");
    }
    span("auto", "localhost:1,a:3,b:70").args(["0", "1", "4", "74"]).run().prints("right\n");
}

#[test]
fn openmp_binds_its_threads_over_all_nodes() {
    let (work, bound) = (WorkDir::new(), program("openmp_bound", &["-fopenmp"]));
    let run = |places: &str, bind: &str, threads: &str| {
        let span = span_on(&work, "localhost:1,a:3,b:2", &bound);
        let span = span.env("OMP_PLACES", places).env("OMP_PROC_BIND", bind);
        span.env("OMP_NUM_THREADS", threads).run().ok()
    };
    assert_eq!(run("cores", "spread", "6"), "0 1 1 1 2 2 \n");
    assert_eq!(run("cores", "spread", "3"), "0 1 2 \n");
    assert_eq!(run("threads", "close", "3"), "0 1 1 \n");
    assert_eq!(run("sockets", "spread", "3"), "0 1 2 \n");
    assert_eq!(run("{0},{4},{2}", "close", "3"), "0 2 1 \n");
}

#[test]
fn a_program_on_one_node_sees_what_the_kernel_says() {
    let alone = Cmd::new("/usr/bin/nproc").run().ok();
    nagaya("span").arg("/usr/bin/nproc").time_limit(LIMIT).run().prints(&alone);
}
