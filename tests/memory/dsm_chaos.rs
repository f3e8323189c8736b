//! Jobs that share memory, of which a process is killed or stopped at a random instant, from
//! the first on: it is named, all end within the bound, and nothing is left.
//! `NAGAYA_CHAOS_ROUNDS=n` does n rounds, `SEED=n` the same again.

use std::time::{Duration, Instant};

use fastrand::Rng;
use nagaya_tests::program::c_with_libraries;
use nagaya_tests::{
    Cmd, Running, WorkDir, is_alive, is_placeholder, kill, nagaya, proc_status, tool, wait_until,
};
use rustix::process::Signal;

/// Time limit for a stopped node, and for tasks that do not join.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Above these, on a machine with other work.
const BUSY_MAX: Duration = Duration::from_secs(12);
/// Time that `nagaya run` gives tasks to end with their job, before it kills them.
const KILL_AFTER: Duration = Duration::from_secs(11);
/// From a job's start to the instant, at most.
const START_MAX_MS: usize = 1500;
/// Time that mpirun has to end, before it counts as stuck.
const MPIRUN_MAX: Duration = Duration::from_secs(6);

/// Processes below this one, children first.
fn below(pid: i32) -> Vec<i32> {
    let mut all = Vec::new();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().map(|child| child.parse::<i32>().expect("a PID")));
    }
    let next: Vec<i32> = all.iter().flat_map(|&child| below(child)).collect();
    all.extend(next);
    all
}

/// Those without children that are no launcher's any more: tasks that have begun. (mpirun waits for
/// ever for a child that is stopped before it executes the program.)
fn tasks(job: &Running) -> Vec<i32> {
    let is_task = |&pid: &i32| {
        below(pid).is_empty()
            && !is_placeholder(pid)
            && proc_status(pid, "Name").is_some_and(|name| name != "mpirun.openmpi")
    };
    below(job.pid()).into_iter().filter(is_task).collect()
}

/// Open MPI's mpirun sometimes waits for ever at its end, if a process was killed while it was
/// connecting to it: that connection's lock is never released (4.1.4 with PMIx 4.2.2, in
/// `PMIx_server_finalize`). It has ended all other processes by then. Programs that only call
/// `PMIx_Init` show the same. So this is not Nagaya's fault if all of its processes have ended.
fn is_stuck(mpirun: &Running) -> bool {
    !below(mpirun.pid()).into_iter().any(is_alive)
}

#[test]
fn a_process_killed_or_stopped_at_any_instant_is_named_and_all_end() {
    let rounds =
        std::env::var("NAGAYA_CHAOS_ROUNDS").map_or(14, |text| text.parse().expect("a number"));
    let seed = nagaya_tests::seed();
    let mut random = Rng::with_seed(seed);
    let program = c_with_libraries("dsm/endless.c", &["jia"]);
    for round in 0..rounds {
        let nodes = 2 + random.usize(..3);
        let stops = round % 2 == 1;
        // A node whose agent is stopped does not answer. A stopped task beside it seems to
        // compute.
        let count = if stops { nodes } else { nodes + random.usize(..2) };
        let under_mpirun = round % 4 < 2;
        let work = WorkDir::short();
        let launcher = match under_mpirun {
            true => Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n"]),
            false => nagaya("run").args(["--nodes", &nodes.to_string(), "-n"]),
        };
        let job = launcher.arg(count.to_string()).arg(&program).env("TMPDIR", work.path());
        let seconds = TIMEOUT.as_secs().to_string();
        let job = job.env("NAGAYA_DSM_TIMEOUT", &seconds).env("NAGAYA_DSM_JOIN", &seconds);
        let mut job = job.time_limit(Duration::from_secs(100)).spawn();
        std::thread::sleep(Duration::from_millis(random.usize(..START_MAX_MS) as u64));
        let wanted = if under_mpirun || stops { count } else { 1 };
        wait_until("there are tasks", BUSY_MAX, || tasks(&job).len() >= wanted);
        let all = below(job.pid());
        let tasks = tasks(&job);
        let killed: Vec<i32> = all.iter().copied().filter(|&pid| !is_placeholder(pid)).collect();
        let victims = if stops { &tasks } else { &killed };
        let victim = victims[random.usize(..victims.len())];
        let signal = if stops { Signal::STOP } else { Signal::KILL };
        let what =
            format!("SEED={seed} round {round}: {signal:?} to {victim} of {all:?}, {count} tasks");
        let joined = job.stdout().matches("task ").count();
        kill(victim, signal);
        let begin = Instant::now();
        let mut stuck = false;
        wait_until(&what, 2 * TIMEOUT + KILL_AFTER + BUSY_MAX, || {
            stuck = under_mpirun && joined == 0 && begin.elapsed() > MPIRUN_MAX && is_stuck(&job);
            stuck || !job.is_running()
        });
        if stuck {
            println!("{what}: mpirun is stuck at its end");
            job.signal(Signal::KILL);
        }
        let output = job.wait();
        println!("{what}, {joined} at work: {:.1} s", begin.elapsed().as_secs_f64());
        assert_ne!(output.code(), 0, "{what}: {output}");
        let is_named = output.stderr.contains(&victim.to_string())
            || output.stderr.contains(" has not answered for ")
            || output.stderr.contains(" not called jia_init within ")
            || output.stderr.contains(" is lost: ")
            // mpirun, of one that has not joined; its PID may be 0. At times it says no more
            // than that there was one.
            || output.stderr.contains("noticed that process rank ")
            || joined == 0 && output.stderr.contains("user-direction, the job has been aborted.")
            || output.stderr.contains(" has ended before all had come")
            // Tasks that go with it, before there is a job that could miss it.
            || joined == 0 && output.stderr.contains(" was killed by signal ");
        assert!(is_named, "{what}: {output}");
        wait_until(&what, BUSY_MAX, || !all.iter().any(|&pid| is_alive(pid)));
        let left = std::fs::read_dir(work.path()).expect("a directory").flatten();
        let left = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
        // At times mpirun leaves its own.
        let left: Vec<_> = left.filter(|name| !name.starts_with("ompi.")).collect();
        assert!(left.is_empty(), "{what}: {left:?} are left");
    }
}
