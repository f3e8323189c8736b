//! Programs under `nagaya span`, and one that several of its tests run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::program::{c_with, include_dir, made_once, source_dir};
use crate::{Cmd, Running, WorkDir, nagaya, scratch_dir, tool};

/// For a run, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(200);

/// A program on this many nodes of this machine, whose threads stay on all of them.
pub fn span(nodes: usize, program: impl AsRef<Path>) -> Cmd {
    let span = nagaya("span").args(["--place", "spread", "--nodes", &nodes.to_string()]);
    span.arg(program.as_ref()).time_limit(LIMIT)
}

/// The same, but threads are packed where that is better.
pub fn packing(nodes: usize, program: impl AsRef<Path>) -> Cmd {
    let span = nagaya("span").args(["--nodes", &nodes.to_string()]);
    span.arg(program.as_ref()).time_limit(LIMIT)
}

/// Processes of the nodes of a job, the origin's first.
pub fn nodes(job: &Running) -> Vec<i32> {
    let children = format!("/proc/{0}/task/{0}/children", job.pid());
    let children = std::fs::read_to_string(children).expect("children");
    children.split_whitespace().map(|pid| pid.parse().expect("a PID")).collect()
}

/// A C program that knows of nodes.
pub fn program(name: &str, flags: &[&str]) -> PathBuf {
    let include = format!("-I{}", include_dir().display());
    let all = [&["-O1", "-pthread", &include], flags].concat();
    c_with(&format!("span/{name}.c"), &all)
}

/// Returns a Python program whose threads each add up this many numbers, and its output.
pub fn python_threads(work: &WorkDir, numbers: u64) -> (PathBuf, String) {
    let script = format!(
        "import threading\n\
         sums = [0] * 4\n\
         def work(me):\n\
         \tfor k in range({numbers}): sums[me] += k * me\n\
         threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]\n\
         [thread.start() for thread in threads]\n\
         [thread.join() for thread in threads]\n\
         print(sums)\n"
    );
    let sums: Vec<u64> = (0..4).map(|me| me * numbers * (numbers - 1) / 2).collect();
    (work.write("work.py", script), format!("{sums:?}\n"))
}

/// The Go linker's modes: static, position-independent, or with C's library.
pub const GO_BUILDS: [(&str, &str, &str); 3] =
    [("static", "0", "exe"), ("pie", "0", "pie"), ("cgo", "1", "exe")];

/// A Go program, in one of [`GO_BUILDS`].
pub fn go_program(name: &str, (build, cgo, mode): (&str, &str, &str)) -> PathBuf {
    let source = source_dir().join(format!("span/{name}.go"));
    let text = std::fs::read(&source).expect("a source");
    made_once(&format!("{name}-{build}"), &text, |output| {
        let go = Cmd::new(tool("go")).args(["build", "-buildmode", mode, "-o"]);
        let go = go.arg(output).arg(&source).env("CGO_ENABLED", cgo).env("GO111MODULE", "off");
        // Packages of Go's own library, compiled for all builds.
        go.env("GOCACHE", scratch_dir().join("go")).time_limit(LIMIT * 2).run().ok();
    })
}
