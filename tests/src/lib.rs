//! The harness of Nagaya's end-to-end tests.
//!
//! Every test in `tests/` runs real programs: Debian's, or small ones from `programs/`
//! that the harness compiles once. Most tests are *differential*: a program prints the same as a
//! task and as an ordinary process ([`same_as_plain`]).
//!
//! - [`Cmd`] runs a command with a time limit and captures what it prints ([`Output`]).
//! - [`nagaya`], [`task`], [`tasks`] and [`exec`] are commands that begin with `nagaya`.
//! - [`mpi`] is the table of MPI implementations, with their compilers and launchers.
//! - [`pvm`] starts virtual machines of PVM, [`slurm`] a cluster of Slurm's.
//! - [`program`] holds the compiler front ends, [`python`] a position-independent CPython.
//!
//! `nagaya` and its libraries come from the target directory of the test executable, or from
//! `NAGAYA_BIN_DIR`. If a program that a test needs is missing, the test fails and names
//! `scripts/deps`. A test is skipped only if this *kernel or user* cannot run it, and then reports
//! that (see the crate `skip`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

mod chaos;
mod command;
mod directories;
pub mod messages;
pub mod mpi;
pub mod nodes;
mod processes;
pub mod program;
pub mod pvm;
pub mod python;
mod random;
pub mod remains;
pub mod slurm;
pub mod span;
pub mod user;
pub mod vm;
mod work_dir;

pub use chaos::{chaos_rounds, random_signal, strike};
pub use command::{Cmd, Output, Running, TIME_LIMIT};
pub use directories::{bin_dir, job, nagaya_path, runtime_dir, scratch_dir};
pub use processes::{is_alive, is_placeholder, kernel_text, kill, proc_status};
pub use random::seed;
pub use skip::{because as skip, machine_lacks};
pub use work_dir::{WorkDir, copy_program, write_program};

/// `nagaya SUBCOMMAND`.
pub fn nagaya(subcommand: &str) -> Cmd {
    Cmd::new(nagaya_path()).arg(subcommand)
}

/// The program as the only task of `nagaya run`.
pub fn task(program: impl AsRef<std::ffi::OsStr>) -> Cmd {
    nagaya("run").arg(program)
}

/// The program as `n` tasks of `nagaya run`.
pub fn tasks(n: usize, program: impl AsRef<std::ffi::OsStr>) -> Cmd {
    nagaya("run").args(["-n", &n.to_string()]).arg(program)
}

/// The program under `nagaya exec` in the named job.
pub fn exec(job: &str, program: impl AsRef<std::ffi::OsStr>) -> Cmd {
    nagaya("exec").args(["--job", job]).arg(program)
}

/// Runs the command line as an ordinary process and as a task: both must print the same
/// and end with the same status. Returns what the task printed.
#[track_caller]
pub fn same_as_plain(argv: &[&str]) -> Output {
    let plain = Cmd::new(argv[0]).args(&argv[1..]).run();
    let as_task = task(argv[0]).args(&argv[1..]).run();
    assert_eq!(
        plain.code(),
        as_task.code(),
        "status as a process and as a task differ\n{plain}\n{as_task}"
    );
    assert_eq!(
        plain.stdout, as_task.stdout,
        "output as a process and as a task differs\n{plain}\n{as_task}"
    );
    as_task
}

/// Asserts that two texts are the same, and shows the lines that are not.
#[track_caller]
pub fn same_lines(what: &str, ours: &str, theirs: &str) {
    if ours == theirs {
        return;
    }
    let work = WorkDir::new();
    let (a, b) = (work.write("theirs", theirs), work.write("ours", ours));
    let diff = Cmd::new("diff").args(["-U3"]).arg(a).arg(b).run().stdout;
    panic!("{what}: ours differs\n{diff}");
}

/// Polls `condition` until it holds; panics with `what` after `limit`.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "after {} s still not: {what}", limit.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The path of a tool that the tests need.
///
/// # Panics
/// If it is not in `PATH`; the message names `scripts/deps`.
pub fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // Administrators' tools, such as setcap, may be missing in PATH.
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("`{name}` is not installed: run scripts/deps"))
}

/// The data of `nagaya ps --parsable` about one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The job's name.
    pub job: String,
    /// The task's ID.
    pub id: i32,
    /// Its PID.
    pub pid: i32,
    /// Its state, a letter as in ps(1).
    pub state: String,
    /// Resident bytes of its segment.
    pub rss: u64,
    /// Copies between tasks that it made in user space.
    pub copies: u64,
    /// The bytes in these.
    pub copied_bytes: u64,
    /// Its command.
    pub command: String,
}

/// The tasks that `nagaya ps --parsable` lists, with more arguments or variables.
///
/// # Panics
/// If it fails or prints something else.
#[track_caller]
pub fn ps(more: impl FnOnce(Cmd) -> Cmd) -> Vec<Task> {
    let output = more(nagaya("ps").arg("--parsable")).run();
    let text = output.clone().ok();
    let parse = |line: &str| -> Option<Task> {
        let mut fields = line.splitn(8, '\t');
        let mut next = || fields.next();
        Some(Task {
            job: next()?.to_owned(),
            id: next()?.parse().ok()?,
            pid: next()?.parse().ok()?,
            state: next()?.to_owned(),
            rss: next()?.parse().ok()?,
            copies: next()?.parse().ok()?,
            copied_bytes: next()?.parse().ok()?,
            command: next()?.to_owned(),
        })
    };
    let tasks =
        text.lines().map(|line| parse(line).unwrap_or_else(|| panic!("`{line}`: {output}")));
    tasks.collect()
}

/// The tasks of one job.
#[track_caller]
pub fn tasks_of(job: &str) -> Vec<Task> {
    ps(|command| command.args(["--job", job]))
}
