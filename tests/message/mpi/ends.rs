//! Ranks that fail: the launcher notices as it does without Nagaya, and soon. No process of the
//! ranks or of Nagaya remains.

use std::time::Duration;

use nagaya_tests::mpi::Mpi;
use nagaya_tests::remains::{MARK, Remains};
use nagaya_tests::{Output, kill, proc_status, seed};
use rustix::process::Signal;

const TIME_LIMIT: Duration = nagaya_tests::TIME_LIMIT;

/// The launcher ends as it does without Nagaya.
pub fn are_seen(mpi: Mpi) {
    let program = mpi.compile("mpi_ends.c");
    let ends = [("abort", Some(33)), ("segv", mpi.segv), ("exit", mpi.exit), ("kill", mpi.killed)];
    for (end, status) in ends {
        let plain = told(|| mpi.launch(2).arg(&program).arg(end).time_limit(TIME_LIMIT).run());
        let remains = Remains::new();
        let as_tasks = told(|| {
            let as_tasks = mpi.launch_tasks(2, &program).arg(end).time_limit(TIME_LIMIT);
            as_tasks.env(MARK, remains.mark()).run()
        });
        for output in [plain, as_tasks] {
            match status {
                Some(status) => assert_eq!(output.code(), status, "{end}: {output}"),
                None => assert_ne!(output.code(), 0, "{end}: {output}"),
            }
        }
        remains.none(end);
    }
}

/// Possible output of a launcher that does not end. Intel's sometimes writes to its helper that
/// has ended already, on a busy machine and without Nagaya.
fn told(launch: impl Fn() -> Output) -> Output {
    const PIPE: i32 = 128 + libc::SIGPIPE;
    for _ in 0..2 {
        let output = launch();
        if output.code() != PIPE {
            return output;
        }
    }
    launch()
}

/// A rank's task, or its stub, or the node server is killed while all exchange large messages.
pub fn while_messages_fly(mpi: Mpi) {
    let program = mpi.compile("mpi_ends.c");
    let mut random = seed();
    for (victim, signal) in [
        ("task", Signal::KILL),
        ("task", Signal::SEGV),
        ("stub", Signal::KILL),
        ("server", Signal::KILL),
        ("task", Signal::KILL),
    ] {
        let remains = Remains::new();
        let job = mpi.launch_tasks(3, &program).arg("fly").env(MARK, remains.mark());
        let mut job = job.time_limit(TIME_LIMIT).spawn();
        let pids = job.wait_for_pids(3);
        let task = pids[usize::try_from(random % 3).expect("small")];
        let server = parent(task);
        let pid = match victim {
            "task" => task,
            "stub" => stub_of(&remains, server, &pids),
            _ => server,
        };
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(random >> 48));
        kill(pid, signal);
        let output = job.wait();
        assert_ne!(output.code(), 0, "{victim}: {output}");
        // Wrong words would be said.
        assert!(!output.stderr.contains("not so"), "{victim}: {output}");
        remains.none(victim);
    }
}

fn parent(pid: i32) -> i32 {
    proc_status(pid, "PPid").and_then(|pid| pid.parse().ok()).expect("a parent")
}

/// A stub: runs `nagaya exec`, and is neither server nor task.
fn stub_of(remains: &Remains, server: i32, tasks: &[i32]) -> i32 {
    let name = |pid| proc_status(pid, "Name").unwrap_or_default();
    let stub = remains.processes().into_iter().find(|(pid, command)| {
        *pid != server
            && !tasks.contains(pid)
            && name(*pid) == "nagaya"
            && command.contains("nagaya exec")
    });
    stub.expect("a stub").0
}
