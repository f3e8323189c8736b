//! Jobs of all kinds of which a process is killed, or stopped for a while, at a random instant,
//! from the first on. The job ends within a limit, by itself; its output is right or its status
//! says that something failed; the others go on; and no process, socket or file is left.
//! (`dsm_chaos` has the jobs that share memory by libjia.)
//!
//! `NAGAYA_CHAOS_ROUNDS=n` does n rounds of each kind, `NAGAYA_SEED=n` the same choices.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nagaya_tests::mpi::{MPICH_4, MPICH_5};
use nagaya_tests::program::{c, c_with_libraries};
use nagaya_tests::remains::{MARK, Remains};
use nagaya_tests::{
    Cmd, Running, chaos_rounds, exec, is_placeholder, nagaya, ps, random_signal, seed, span,
    strike, tool, wait_until,
};
use rustix::process::Signal;

/// Time limit for a job, most of which is for a busy machine. Without a kill, each takes a second.
const END_MAX: Duration = Duration::from_secs(60);
/// Time until the instant, at most.
const INSTANT_MAX_US: u64 = 700_000;
/// A shell's work.
const SLEEPS: &str = "sleep 0.3; echo $((6 * 7)); sleep 0.3";
/// In the command of the job beside the one whose process is killed.
const BESIDE: &str = "echo beside";

/// A kind of job.
struct Kind {
    name: &'static str,
    command: Cmd,
    /// The output, in whatever order of lines.
    prints: Vec<&'static str>,
    /// The output before the instant. Hydra loops without end if a rank ends before it has called
    /// MPI_Init (4.0.2 and 5.0).
    begins: Option<&'static str>,
    /// Processes whose command has this word may be victims: others are another project's.
    ours: PathBuf,
}

/// A job that runs.
struct Job {
    running: Running,
    prints: Vec<&'static str>,
}

impl Job {
    fn start(kind: Kind, directory: &Remains, mark: &Remains) -> Self {
        let Kind { command, prints, .. } = kind;
        let command = within(command, directory).env(MARK, mark.mark());
        Self { running: command.time_limit(END_MAX).spawn(), prints }
    }

    /// Waits for its end. Returns false if it failed, or panics if its status hides that.
    fn ends_right(self, what: &str) -> bool {
        let output = self.running.wait();
        let mut lines: Vec<&str> = output.stdout.lines().collect();
        lines.sort_unstable();
        let is_right = lines == self.prints;
        assert!(is_right || output.code() != 0, "{what}: {output}");
        is_right && output.code() == 0
    }
}

/// The command with its files and sockets in a directory.
fn within(command: Cmd, directory: &Remains) -> Cmd {
    command.env("TMPDIR", directory.mark()).env("XDG_RUNTIME_DIR", directory.mark())
}

/// A process that may be killed.
#[derive(Debug)]
struct Victim {
    pid: i32,
    is_server: bool,
    /// A task of the job beside.
    is_beside: bool,
}

fn victims(directory: &Remains, ours: &Path) -> Vec<Victim> {
    let ours = ours.to_str().expect("a path of ours");
    let tasks = ps(|command| within(command, directory));
    let is_ours = |(pid, command): &(i32, String)| {
        let program = command.split(' ').next().unwrap_or_default();
        ["nagaya", "/proc/self/exe", ours].iter().any(|it| program.contains(it))
            && !is_placeholder(*pid)
    };
    let all = directory.processes().into_iter().filter(is_ours);
    let victim = |(pid, command): (i32, String)| {
        let task = tasks.iter().find(|task| task.pid == pid);
        Victim {
            pid,
            // A task has the server's command line.
            is_server: command.contains(" server --job ") && task.is_none(),
            is_beside: task.is_some_and(|task| task.command.contains(BESIDE)),
        }
    };
    all.map(victim).collect()
}

/// One round: a process of the job is killed or stopped.
fn round(random: &mut Rng, kind: Kind, beside: Option<Kind>) {
    let (directory, others) = (Remains::new(), Remains::new());
    let (name, begins, ours) = (kind.name, kind.begins, kind.ours.clone());
    let other = beside.map(|kind| Job::start(kind, &directory, &others));
    let mut job = Job::start(kind, &directory, &directory);
    if let Some(word) = begins {
        job.running.wait_for_word(word);
    }
    std::thread::sleep(Duration::from_micros(random.u64(..INSTANT_MAX_US)));
    let all = victims(&directory, &ours);
    let signal = random_signal(random);
    let victim = random.choice(&all);
    let what = format!("{name}: {signal:?} to {victim:?} of {}", all.len());
    let begin = Instant::now();
    if let Some(&Victim { pid, .. }) = victim {
        strike(pid, signal);
    }
    println!("{what}");
    let is_right = job.ends_right(&what);
    println!("ended after {:.1} s", begin.elapsed().as_secs_f64());
    // Nothing is lost by a stop.
    assert!(is_right || signal == Signal::KILL, "{what}");
    if let Some(other) = other {
        let is_right = other.ends_right(&what);
        let may_fail = victim.is_some_and(|it| it.is_server || it.is_beside);
        assert!(is_right || may_fail && signal == Signal::KILL, "{what}: the other one failed");
    }
    others.none(&what);
    directory.none(&what);
    is_swept(&directory, &what);
}

/// A killed server cannot remove its socket: the next one does. Then nothing is left.
fn is_swept(directory: &Remains, what: &str) {
    within(exec("next", tool("true")), directory).run().ok();
    let mut left = Vec::new();
    wait_until(&format!("{what}: the directory is empty"), END_MAX, || {
        left = files(&directory.mark());
        left.is_empty()
    });
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.file_type().is_ok_and(|it| it.is_dir()) {
        true => files(&entry.path()),
        false => vec![entry.path()],
    };
    entries.flat_map(of).collect()
}

#[track_caller]
fn rounds(kind: impl Fn() -> (Kind, Option<Kind>)) {
    let mut random = Rng::with_seed(seed());
    for _ in 0..chaos_rounds(6) {
        let (kind, beside) = kind();
        round(&mut random, kind, beside);
    }
}

#[test]
fn jobs_of_run() {
    rounds(|| {
        let command = nagaya("run").args(["-n", "3", "sh", "-c", SLEEPS]);
        let ours = PathBuf::from("sh");
        (Kind { name: "run", command, prints: vec!["42"; 3], begins: None, ours }, None)
    });
}

#[test]
fn jobs_of_several_nodes() {
    rounds(|| {
        let command = nagaya("run").args(["--nodes", "2", "-n", "3", "sh", "-c", SLEEPS]);
        let ours = PathBuf::from("sh");
        (Kind { name: "run --nodes", command, prints: vec!["42"; 3], begins: None, ours }, None)
    });
}

#[test]
fn programs_of_exec() {
    rounds(|| {
        let kind = |name, script, prints| Kind {
            name,
            command: exec("shared", "sh").args(["-c", script]),
            prints: vec![prints],
            begins: None,
            ours: PathBuf::from("sh"),
        };
        let beside = "sleep 0.3; echo beside; sleep 0.3";
        (kind("exec", SLEEPS, "42"), Some(kind("beside", beside, "beside")))
    });
}

#[test]
fn programs_under_span() {
    let program = c("span/ends.c");
    rounds(|| {
        let command = span::span(2, &program).arg("last");
        let (prints, ours) = (vec!["all are there"], program.clone());
        (Kind { name: "span", command, prints, begins: None, ours }, None)
    });
}

#[test]
fn requesters_and_their_delegatee() {
    let program = c_with_libraries("delegate_rounds.c", &["pvas_delegate", "pvas"]);
    rounds(|| {
        let command = nagaya("run").args(["-n", "3"]).arg(&program);
        let prints = vec!["calls answered", "calls answered", "served"];
        (Kind { name: "delegate", command, prints, begins: None, ours: program.clone() }, None)
    });
}

#[test]
fn ranks_of_mpi() {
    let program = MPICH_4.compile("mpi_rounds.c");
    rounds(|| {
        let command = MPICH_4.launch_tasks(3, &program);
        let (prints, ours) = (vec!["begun", "messages arrived"], program.clone());
        (Kind { name: "MPICH 4", command, prints, begins: Some("begun"), ours }, None)
    });
}

#[test]
fn ranks_over_the_provider() {
    let mpi = MPICH_5.over_provider();
    let program = mpi.compile("mpi_rounds.c");
    rounds(|| {
        let command = mpi.launch_tasks(3, &program);
        let (prints, ours) = (vec!["begun", "messages arrived"], program.clone());
        (Kind { name: "provider", command, prints, begins: Some("begun"), ours }, None)
    });
}
