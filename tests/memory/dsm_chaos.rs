//! Jobs that share memory, of which a process is killed or stopped at a random instant: it is
//! named, all end within the bound, and nothing is left.
//! `NAGAYA_CHAOS_ROUNDS=n` does n rounds, `NAGAYA_SEED=n` the same again.

use std::time::{Duration, Instant};

use fastrand::Rng;
use nagaya_tests::mpi::MPICH_4;
use nagaya_tests::program::c_with_libraries;
use nagaya_tests::{
    Cmd, Output, Running, WorkDir, chaos_rounds, is_alive, is_placeholder, kernel_text, kill,
    nagaya, proc_status, tool, wait_until,
};
use rustix::process::Signal;

/// Time limit for a stopped node, and for tasks that do not join.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Above these, on a machine with other work.
const BUSY_MAX: Duration = Duration::from_secs(12);
/// Time that `nagaya run` gives tasks to end with their job, before it kills them.
const KILL_AFTER: Duration = Duration::from_secs(11);
/// Until the instant, at most.
const INSTANT_MAX_MS: usize = 1500;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Launcher {
    NagayaRun,
    /// Its mpirun sometimes ends by SIGPIPE, without a word, if a process is killed while they
    /// start (4.0.2). So processes are killed once all have begun.
    Mpich,
    /// Its mpirun sometimes waits for ever at its end if a process is killed while it connects to
    /// it: the lock of that connection is never released (4.1.4 with PMIx 4.2.2, in
    /// `PMIx_server_finalize`). Programs that only call `PMIx_Init` show the same. So its processes
    /// are killed and stopped once all have connected.
    OpenMpi,
}

impl Launcher {
    fn command(self, nodes: usize, count: usize) -> Cmd {
        match self {
            Self::NagayaRun => {
                let nodes = nodes.to_string();
                nagaya("run").args(["--nodes", &nodes, "-n", &count.to_string()])
            }
            Self::Mpich => MPICH_4.launch(count),
            Self::OpenMpi => {
                Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n", &count.to_string()])
            }
        }
    }

    /// The name of the processes between the launcher and the tasks, and of tasks that have not
    /// executed their program.
    fn helper(self) -> &'static str {
        match self {
            Self::NagayaRun => "(none)",
            Self::Mpich => "hydra_pmi_proxy",
            Self::OpenMpi => "mpirun.openmpi",
        }
    }
}

/// Children of a process.
fn children(pid: i32) -> Vec<i32> {
    let mut all = Vec::new();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().map(|child| child.parse::<i32>().expect("a PID")));
    }
    all
}

/// Processes below this one, children first.
fn below(pid: i32) -> Vec<i32> {
    let mut all = children(pid);
    let next: Vec<i32> = all.iter().flat_map(|&child| below(child)).collect();
    all.extend(next);
    all
}

/// Processes that have begun as tasks: those without children that are not the launcher's. (A
/// launcher waits for ever for a child that is stopped before it executes the program.)
fn tasks(job: &Running, launcher: Launcher) -> Vec<i32> {
    let is_task = |&pid: &i32| {
        below(pid).is_empty()
            && !is_placeholder(pid)
            && proc_status(pid, "Name").is_some_and(|name| name != launcher.helper())
    };
    below(job.pid()).into_iter().filter(is_task).collect()
}

/// The rank of a task that is its node's only one.
fn rank(job: &Running, launcher: Launcher, pid: i32) -> Option<usize> {
    let variable = match launcher {
        // The nodes' processes are started in order.
        Launcher::NagayaRun => {
            let mut nodes = children(job.pid());
            nodes.sort_unstable();
            return nodes.iter().position(|&node| node == pid || below(node).contains(&pid));
        }
        Launcher::Mpich => "PMI_RANK=",
        Launcher::OpenMpi => "OMPI_COMM_WORLD_RANK=",
    };
    let environment = kernel_text(format!("/proc/{pid}/environ"))?;
    environment.split('\0').find_map(|it| it.strip_prefix(variable)?.parse().ok())
}

/// The process at which a signal was sent.
#[derive(Clone, Debug)]
struct Victim {
    pid: i32,
    /// All processes of the job.
    all: Vec<i32>,
    rank: Option<usize>,
    signal: Signal,
    /// True if the job had begun.
    at_work: bool,
}

/// Returns true if the line reports this victim.
fn is_report(line: &str, launcher: Launcher, victim: &Victim) -> bool {
    let Victim { pid, rank, ref all, .. } = *victim;
    let is_node = |why: &str| {
        line.starts_with("nagaya: node ") && line.ends_with(&format!(", PID {pid}) is lost: {why}"))
    };
    let is_rank = |before: &str, after: &str| {
        rank.is_some_and(|rank| line.contains(&format!("{before}{rank}{after}")))
    };
    match (victim.signal, launcher) {
        (Signal::STOP, _) => {
            // PMI-1's barrier does not tell which ranks are missing.
            let unknown = "nagaya: jia_init: some tasks have not called jia_init within 2 s; ";
            let is_late = !victim.at_work
                && (launcher == Launcher::Mpich && line.starts_with(unknown)
                    || line.starts_with("nagaya: jia_init: task")
                        && (is_rank(" ", " ha") || is_rank(" ", ", ")));
            is_late
                || line.starts_with("nagaya: node ")
                    && line.contains(&format!(", PID {pid}) is lost: it has not answered "))
        }
        (_, Launcher::NagayaRun) => {
            line.starts_with("nagaya: ")
                && (line.ends_with(&format!("(PID {pid}) was killed by signal 9"))
                    || line
                        == format!(
                            "nagaya: the new task (PID {pid}) was killed before its program started"
                        ))
        }
        // The launchers may kill the others before they report it. MPICH's names one of those that
        // it has killed, at times.
        (_, Launcher::Mpich) => {
            all.iter().any(|pid| line.contains(&format!(" PID {pid} RUNNING AT ")))
                || is_node("the connection broke: its process has ended")
        }
        (_, Launcher::OpenMpi) => {
            is_rank("noticed that process rank ", " with PID ")
                || is_node("the connection broke: its process has ended")
        }
    }
}

/// Starts a job, and kills or stops a process of it.
fn round(random: &mut Rng, launcher: Launcher, signal: Signal, program: &std::path::Path) {
    let nodes = 2 + random.usize(..3);
    let stops = signal == Signal::STOP;
    // A node whose agent is stopped does not answer. A stopped task beside it seems to compute.
    let count = if stops { nodes } else { nodes + random.usize(..2) };
    let work = WorkDir::short();
    let seconds = TIMEOUT.as_secs().to_string();
    let job = launcher.command(nodes, count).arg(program).env("TMPDIR", work.path());
    let job = job.env("NAGAYA_DSM_TIMEOUT", &seconds).env("NAGAYA_DSM_JOIN", &seconds);
    let mut job = job.time_limit(Duration::from_secs(100)).spawn();
    if launcher == Launcher::OpenMpi || launcher == Launcher::Mpich && !stops {
        job.wait_for_lines(count);
    }
    std::thread::sleep(Duration::from_millis(random.usize(..INSTANT_MAX_MS) as u64));
    let wanted = if launcher == Launcher::NagayaRun && !stops { 1 } else { count };
    wait_until("there are tasks", BUSY_MAX, || tasks(&job, launcher).len() >= wanted);
    let mut all = below(job.pid());
    all.retain(|&pid| !is_placeholder(pid));
    // Processes of the other launchers are not ours.
    let whole = launcher == Launcher::NagayaRun && !stops;
    let victims = if whole { all.clone() } else { tasks(&job, launcher) };
    let pid = victims[random.usize(..victims.len())];
    let at_work = job.stdout().matches("task ").count() == count;
    let rank = rank(&job, launcher, pid);
    let victim = Victim { pid, all, rank, signal, at_work };
    kill(pid, signal);
    let begin = Instant::now();
    let what = format!("{victim:?}, {launcher:?}, {count} tasks");
    wait_until(&what, 2 * TIMEOUT + KILL_AFTER + BUSY_MAX, || !job.is_running());
    let output = job.wait();
    println!("{what}: {:.1} s", begin.elapsed().as_secs_f64());
    is_told(&output, launcher, &victim, &what);
    wait_until(&what, BUSY_MAX, || !victim.all.iter().any(|&pid| is_alive(pid)));
    let left = std::fs::read_dir(work.path()).expect("a directory").flatten();
    let left = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // At times Open MPI's mpirun leaves its own.
    let left: Vec<_> = left.filter(|name| !name.starts_with("ompi.")).collect();
    assert!(left.is_empty(), "{what}: {left:?} are left");
}

fn is_told(output: &Output, launcher: Launcher, victim: &Victim, what: &str) {
    assert_ne!(output.code(), 0, "{what}: {output}");
    // MPICH's launcher writes its reports to standard output.
    let mut lines = output.stderr.lines().chain(output.stdout.lines());
    let is_told = lines.any(|line| is_report(line, launcher, victim));
    assert!(is_told, "{what}: {output}");
}

#[test]
fn a_process_killed_or_stopped_at_any_instant_is_named_and_all_end() {
    let mut random = Rng::with_seed(nagaya_tests::seed());
    let program = c_with_libraries("dsm/endless.c", &["jia"]);
    for number in 0..chaos_rounds(15) {
        let launcher = [Launcher::NagayaRun, Launcher::Mpich, Launcher::OpenMpi][number % 3];
        let signal = [Signal::KILL, Signal::STOP][number % 2];
        println!("round {number}");
        round(&mut random, launcher, signal, &program);
    }
}
