//! The harness of Nagaya's end-to-end tests.
//!
//! Every test in `tests/` runs real programs: Debian's, or small ones from `programs/`
//! that the harness compiles once. Most tests make a *differential* statement: a program
//! run as a task prints what it prints as an ordinary process ([`same_as_plain`]).
//!
//! - [`Cmd`] runs a command with a time limit and captures what it prints ([`Output`]).
//! - [`nagaya`], [`task`], [`tasks`] and [`exec`] are commands that begin with `nagaya`.
//! - [`mpi`] is the table of MPI implementations, with their compilers and launchers.
//! - [`pvm`] starts virtual machines of PVM, [`slurm`] a cluster of Slurm's.
//! - [`program`] holds the compiler front ends, [`python`] a position-independent CPython.
//!
//! `nagaya` and its libraries are looked for in the target directory that the test
//! executable lies in, or in `NAGAYA_BIN_DIR`. Where something that the tests need is
//! missing they fail and name `scripts/deps`. They skip only what this *kernel or user*
//! cannot do, and report it (see the crate `skip`).

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

mod command;
pub mod messages;
pub mod mpi;
pub mod nodes;
pub mod program;
pub mod pvm;
pub mod python;
mod random;
pub mod slurm;
pub mod span;
pub mod user;
pub mod vm;

pub use command::{Cmd, Output, Running};
pub use random::Random;
pub use skip::{because as skip, machine_lacks};

/// Time limit of a command and of [`wait_until`] for whatever nobody promises a time for. Generous,
/// since the machine may be busy, and what hangs hangs for ever.
pub const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The directory with `nagaya` and its libraries.
pub fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| match std::env::var_os("NAGAYA_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => profile_dir(),
    })
}

/// `target/debug` or `target/release`: two above the test executable in `deps/`.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    exe.ancestors().nth(2).expect("test executables lie in target/PROFILE/deps").to_path_buf()
}

/// Where the harness keeps what it makes: beside the profile directories, so that
/// `cargo clean` removes it.
pub fn scratch_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let target = profile_dir()
            .parent()
            .expect("a profile directory lies in a target directory")
            .to_path_buf();
        let dir = target.join("tmp").join("nagaya-tests");
        fs::create_dir_all(&dir).expect("make the scratch directory");
        dir
    })
}

/// The path of the `nagaya` executable.
pub fn nagaya_path() -> PathBuf {
    let path = bin_dir().join("nagaya");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --workspace` first, or set NAGAYA_BIN_DIR",
        path.display()
    );
    path
}

/// Makes a directory that only we can enter, or accepts ours.
fn private_dir(path: &Path) {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let owner = fs::symlink_metadata(path).expect("stat").uid();
            assert_eq!(
                owner,
                rustix::process::geteuid().as_raw(),
                "{} belongs to somebody else",
                path.display()
            );
        }
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// The runtime directory (`XDG_RUNTIME_DIR`) that the tests' commands see. It is not the
/// user's own, and short, since socket paths end at 107 bytes.
pub fn runtime_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let uid = rustix::process::geteuid().as_raw();
        let dir = PathBuf::from(format!("/tmp/nagaya-tests-{uid}"));
        private_dir(&dir);
        dir
    })
}

/// A number that no other call in this process gets.
fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A job name that nothing else on this machine uses.
pub fn job() -> String {
    format!("t{}-{}", std::process::id(), unique())
}

/// A directory of its own for one test, removed at the end.
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// In the scratch directory: programs may be run from here.
    pub fn new() -> Self {
        Self::at(scratch_dir().join(format!("work-{}-{}", std::process::id(), unique())))
    }

    /// Directly in /tmp, for socket directories, whose paths must be short.
    pub fn short() -> Self {
        Self::at(PathBuf::from(format!("/tmp/nagaya-t-{}-{}", std::process::id(), unique())))
    }

    fn at(path: PathBuf) -> Self {
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Writes an executable file in it.
    pub fn write_executable(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        write_program(&path, content);
        path
    }
}

impl Default for WorkDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

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

/// Writes a script that is to be run, with no descriptor of it among ours: see [`copy_program`].
pub fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    use std::os::unix::fs::PermissionsExt as _;
    let draft = path.with_extension("draft");
    fs::write(&draft, content).unwrap_or_else(|error| panic!("{}: {error}", draft.display()));
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).expect("chmod");
    copy_program(&draft, path);
    fs::remove_file(&draft).expect("remove a file");
}

/// Copies a program that is to be run. Another process does it: what a thread of ours has open to
/// write, children that other threads start just then have, too, and nobody can run it (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    Cmd::new("cp").args(["-p", "--"]).arg(from).arg(to).run().ok();
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
        // Administrators' tools, such as setcap, are not in everybody's PATH.
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("`{name}` is not installed: run scripts/deps"))
}

/// A random seed, printed so that a failure can be replayed: set `SEED` to repeat it.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let seed = match std::env::var("SEED") {
        Ok(text) => text.parse().expect("SEED is a number"),
        Err(_) => std::collections::hash_map::RandomState::new().build_hasher().finish() >> 32,
    };
    println!("SEED={seed}");
    seed
}

/// A file of the kernel's, if it is there. Names in it are others' and may be any bytes.
pub fn kernel_text(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// What `/proc/PID/status` says about `field`, if the process is there.
pub fn proc_status(pid: i32, field: &str) -> Option<String> {
    let status = kernel_text(format!("/proc/{pid}/status"))?;
    status.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name == field).then(|| value.trim().to_owned())
    })
}

/// Whether the process runs (a zombie does not).
pub fn is_alive(pid: i32) -> bool {
    proc_status(pid, "State")
        .is_some_and(|state| !state.starts_with('Z') && !state.starts_with('X'))
}

/// Sends a signal to one process; it may be gone already.
pub fn kill(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a PID");
    let _ = rustix::process::kill_process(pid, signal);
}

/// What `nagaya ps --parsable` says about one task.
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
