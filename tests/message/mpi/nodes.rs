//! One job on two nodes: messages within a node go through its space, others through the MPI's own
//! network.

use std::time::{Duration, Instant};

use nagaya_tests::mpi::{Mpi, OPEN_MPI_4};
use nagaya_tests::nodes::{NAMES, Nodes, Shares};
use nagaya_tests::remains::{MARK, Remains};
use nagaya_tests::{Cmd, Running, Task, kill, nagaya, skip, wait_until};
use rustix::process::Signal;

const NEEDS_ROOT: &str = "only root can make network namespaces";

fn launch(nodes: &Nodes, mpi: Mpi, program: Cmd) -> Cmd {
    let launcher = mpi.launch_on([NAMES[0], NAMES[1]], &nodes.agent());
    nodes.on(0, launcher.command(nagaya("exec").command(program)))
}

/// Runs the messages of `mpi_messages.c` round a ring of four ranks, two a node, and returns
/// the tasks of each node as they were at the end.
fn messages(nodes: &Nodes, mpi: Mpi) -> [Vec<Task>; 2] {
    let done = nodes.dir().join("done");
    let program = Cmd::new(mpi.compile("mpi_messages.c")).arg(&done);
    let mut job = launch(nodes, mpi, program).time_limit(Duration::from_secs(300)).spawn();
    job.wait_for("`ready` four times", |text| text.matches("ready").count() == 4);
    // Nodes that share the runtime directory see other tests' jobs, too.
    let ours = |task: &Task| task.command.ends_with(done.to_str().expect("UTF-8"));
    let tasks = [0, 1].map(|node| nodes.tasks(node).into_iter().filter(ours).collect());
    std::fs::write(&done, "").expect("write");
    assert_eq!(job.wait().ok().matches("messages arrived").count(), 1);
    tasks
}

/// On each node one rank of the ring sends to the other: 20 fresh buffers of 4 MiB, and more.
#[track_caller]
fn assert_copies_within(tasks: &[Task]) {
    let bytes: u64 = tasks.iter().map(|task| task.copied_bytes).sum();
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    assert!(bytes > 20 * (4 << 20), "{tasks:?}");
}

/// Two ranks on each of two nodes.
pub fn messages_and_collectives(mpi: Mpi) {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    for tasks in messages(&nodes, mpi) {
        assert_copies_within(&tasks);
    }
    for (source, prints) in
        [("mpi_collectives.c", "collectives agree\n"), ("mpi_modes.c", "all modes work\n")]
    {
        let program = Cmd::new(mpi.compile(source));
        launch(&nodes, mpi, program).time_limit(Duration::from_secs(300)).run().prints(prints);
    }
}

/// Ranks that may use only Nagaya's provider, and are not all in one space, end and report the
/// reason.
pub fn out_of_reach(mpi: Mpi) {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    let program = Cmd::new(mpi.compile("mpi_messages.c"));
    let remains = Remains::new();
    let job = launch(&nodes, mpi.over_provider(), program).env("FI_LOG_LEVEL", "warn");
    let job = job.env(MARK, remains.mark());
    let mut job = job.time_limit(Duration::from_secs(120)).spawn();
    let line = "it is not in this space";
    let said = |job: &Running| [job.stdout(), job.stderr()].iter().any(|it| it.contains(line));
    wait_until("our line is there", nagaya_tests::TIME_LIMIT, || said(&job) || !job.is_running());
    // The last output of a launcher that has ended may still be on its way.
    wait_until("our line is there", Duration::from_secs(5), || said(&job));
    fails(job, &remains);
}

/// The job ends with a status that shows this. Open MPI 5's launcher sometimes does not end if a
/// rank has given up or was killed. It then does not wait for any process of Nagaya.
fn fails(mut job: Running, remains: &Remains) {
    let begin = Instant::now();
    while job.is_running() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    if job.is_running() {
        // Tasks have their server's command line.
        let ours = ["/nagaya", "/proc/self/exe"];
        let is_ours = |path: &str| ours.iter().any(|it| path.ends_with(it));
        return remains.none_of("a launcher that does not end", is_ours);
    }
    let output = job.wait();
    assert_ne!(output.code(), 0, "{output}");
}

/// Two ranks on each of two nodes, joined by libfabric's `lnx`: our provider within a node, and
/// TCP between them.
pub fn linked(mpi: Mpi) {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    let mpi = mpi.over_lnx("nagaya+tcp;ofi_rxm:eth0");
    for tasks in messages(&nodes, mpi) {
        assert_copies_within(&tasks);
    }
    // Each node has sent one rank's messages by the network, and none to itself.
    for node in [0, 1] {
        let [between, within] = ["eth0", "lo"].map(|device| nodes.sent(node, device));
        assert!(between > 20 * (4 << 20), "{between} bytes");
        assert!(within < 4 << 20, "{within} bytes");
    }
    let program = Cmd::new(mpi.compile("mpi_collectives.c"));
    let job = launch(&nodes, mpi, program).time_limit(Duration::from_secs(300));
    job.run().prints("collectives agree\n");
}

/// The launcher ends, and no process remains on either node.
pub fn a_rank_is_killed(mpi: Mpi) {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip(NEEDS_ROOT);
    };
    let remains = Remains::new();
    let program = Cmd::new(mpi.compile("mpi_ends.c")).arg("fly");
    let job = launch(&nodes, mpi, program).env(MARK, remains.mark());
    let mut job = job.time_limit(Duration::from_secs(60)).spawn();
    job.wait_for("`flying` four times", |text| text.matches("flying").count() == 4);
    let tasks = nodes.tasks(1);
    let victim =
        tasks.first().unwrap_or_else(|| panic!("no task: {}{}", job.stdout(), job.stderr()));
    kill(victim.pid, Signal::KILL);
    fails(job, &remains);
    remains.none("a rank on the other node");
}

/// Two nodes that see each other's sockets, and whose jobs have one name, keep apart.
#[test]
fn nodes_that_share_a_runtime_directory_have_spaces_of_their_own() {
    let Some(nodes) = Nodes::new(Shares::Memory) else {
        return skip(NEEDS_ROOT);
    };
    let tasks = messages(&nodes, OPEN_MPI_4);
    // Each sees all.
    assert_eq!(tasks.each_ref().map(Vec::len), [4, 4], "{tasks:?}");
    let bytes: u64 = tasks[0].iter().map(|task| task.copied_bytes).sum();
    assert!(bytes > 2 * 20 * (4 << 20), "{tasks:?}");
    for id in [0, 1] {
        assert_eq!(tasks[0].iter().filter(|task| task.id == id).count(), 2, "{tasks:?}");
    }
}
