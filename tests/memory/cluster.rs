//! A space over several machines. They are network namespaces here that share only files. The
//! cases are in `programs/cluster.c`. This file tests the user's view: output, statuses, signals,
//! and that nothing remains when a task or a machine is lost. Some machines share memory: a file,
//! or that of a virtual machine.

use std::path::Path;
use std::time::{Duration, Instant};

use nagaya_tests::nodes::{END_MAX, NAMES, Nodes, Shares};
use nagaya_tests::vm::VirtualMachine;
use nagaya_tests::{
    Cmd, Running, chaos_rounds, is_placeholder, kill, machine_lacks, nagaya, proc_status, program,
    seed, skip, tool,
};
use rustix::process::Signal;

fn machines(count: usize) -> Option<Nodes> {
    let nodes = Nodes::of(count, Shares::Files);
    if nodes.is_none() {
        skip("only root can make network namespaces");
    }
    nodes
}

/// `nagaya run` on the first machine.
fn run(nodes: &Nodes, domains: &str, options: &[&str], program: impl AsRef<Path>) -> Cmd {
    let run = nagaya("run").args(["--domains", domains]).args(options);
    let run = run.arg(program.as_ref()).env("NAGAYA_RSH", nodes.agent());
    nodes.on(0, run).time_limit(Duration::from_secs(60))
}

fn cases(file: &str, cases: &[&str]) {
    let Some(nodes) = machines(4) else { return };
    let program = program::c_with_libraries(file, &["pvas_delegate", "pvas"]);
    let two = format!("all:1,@{}:1", NAMES[1]);
    let four = format!("all:2,@{}:2", NAMES[1]);
    let all = format!("all:1,@{}:1,@{}/0:2,@{}:1", NAMES[1], NAMES[2], NAMES[3]);
    for case in cases {
        for domains in [&two, &four, &all] {
            let output = run(&nodes, domains, &["-K"], &program).arg(case).run();
            assert!(output.status.success(), "{domains}, {case}: {output}");
        }
    }
}

/// A file that all see, as memory.
fn pool(nodes: &Nodes, bytes: u64) -> String {
    let path = nodes.dir().join("pool");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(bytes).expect("its size");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    file.set_permissions(mode).expect("its mode");
    path.to_str().expect("text").to_owned()
}

fn pooled_cases(file: &str, all_domains: [&str; 2], cases: &[&str]) {
    let Some(nodes) = machines(4) else { return };
    let program = program::c_with_libraries(file, &["pvas_delegate", "pvas"]);
    let pool = pool(&nodes, 512 << 20);
    for case in cases {
        for domains in all_domains {
            let options = ["-K", "--pool", &pool];
            let output = run(&nodes, domains, &options, &program).arg(case).run();
            assert!(output.status.success(), "{domains}, {case}: {output}");
        }
    }
    nodes.all_is_gone();
}

/// All machines place the space at the address that the first has chosen at random.
#[test]
fn machines_have_one_random_window() {
    let Some(nodes) = machines(2) else { return };
    let program = program::c_with_libraries("addresses.c", &["pvas"]);
    let domains = format!("all:1,@{}:2", NAMES[1]);
    let bases = |options: &[&str]| -> Vec<String> {
        let output = run(&nodes, &domains, options, &program).run().ok();
        let base = |line: &str| line.split(' ').nth(1).expect("a base").to_owned();
        let bases: Vec<String> = output.lines().map(base).collect();
        assert!(bases.len() == 3 && bases.iter().all(|base| *base == bases[0]), "{output}");
        bases
    };
    let jobs: Vec<_> = (0..3).map(|_| bases(&[])).collect();
    assert!(jobs.iter().any(|job| *job != jobs[0]), "{jobs:?}");
    assert_eq!(bases(&["--fixed-addresses"])[0], "10040000000");
}

/// With `NAGAYA_LOG`, the agent of each machine logs its start and its end.
#[test]
fn agents_log_their_start_and_their_end() {
    let Some(nodes) = machines(2) else { return };
    let file = nodes.dir().join("log");
    let domains = format!("all:1,@{}:1", NAMES[1]);
    let job = || run(&nodes, &domains, &[], "true");
    let logged = job().env("NAGAYA_LOG", "warn,cluster=info").env("NAGAYA_LOG_FILE", &file);
    logged.run().ok();
    let log = std::fs::read_to_string(&file).expect("a log");
    for (node, name) in NAMES[..2].iter().enumerate() {
        let line = |text: &str| {
            let words = format!("nagaya: info: cluster: node {node} ({name}) {text}");
            let found = log.lines().position(|line| line.contains(&words));
            found.unwrap_or_else(|| panic!("{words}: {log}"))
        };
        let (ready, ends) = (line("is ready: PID "), line("ends"));
        assert!(ready < ends, "{log}");
    }
    assert_eq!(job().run().stderr, "", "the default is warn");
}

/// Cases for machines that have memory in common.
const POOLED: [&str; 12] = [
    "who", "order", "locks", "calls", "maps", "churn", "forks", "ends", "sleeps", "works", "grows",
    "streams",
];

/// Machines that share memory behave as those that do not.
#[test]
fn machines_that_share_memory_are_one_space() {
    let domains = ["all:2,@node2:2", "all:1,@node2:1,@node3/0:2,@node4:1"];
    pooled_cases("cluster.c", domains, &POOLED);
    pooled_cases("domains.c", domains, &["pointers", "unmaps"]);
    pooled_cases("delegate.c", ["all:1,@node2:2", "all:2,@node2:1"], &["calls", "later"]);
}

/// A virtual machine's memory begins behind the start of this machine's, and has no holes.
#[test]
fn a_virtual_machine_and_its_host_are_one_space() {
    let Some(nodes) = machines(3) else { return };
    let pool = pool(&nodes, 256 << 20);
    let vm = match VirtualMachine::new(&nodes, Path::new(&pool)) {
        Ok(vm) => vm,
        Err(lacking) => return machine_lacks(&lacking),
    };
    let program = program::c_with_libraries("cluster.c", &["pvas"]);
    let pools = format!("{pool},vm=/dev/dax0.0");
    // An emulated processor, on a machine that has other work, may take longer than 20 s to begin.
    let options = ["-K", "--timeout", "120", "--pool", &pools];
    for case in POOLED {
        let command = run(&nodes, "all:2,@vm:2", &options, &program).arg(case);
        let output = command.env("NAGAYA_RSH", vm.agent()).run();
        assert!(output.status.success(), "{case}: {output}");
    }
    // All of these: the host, a node beside it that maps the same file, and the virtual machine.
    let command = run(&nodes, "all:1,@node2:1,@vm:2", &options, &program);
    let output = command.arg("works").env("NAGAYA_RSH", vm.agent()).run();
    assert!(output.status.success(), "{output}");
}

#[test]
fn a_pool_that_is_none_is_said_in_a_line() {
    let Some(nodes) = machines(2) else { return };
    let pool = pool(&nodes, 64 << 20);
    let refused = |domains: &str, pools: &str, words: &[&str]| {
        let words = [&["--pool"], words].concat();
        run(&nodes, domains, &["--pool", pools], "true").run().refused(125, &words);
    };
    let both = "all:1,@node2:1";
    refused("all:1", &pool, &["@HOST"]);
    refused(both, &format!("{pool},node3={pool}"), &["node3", "not a machine of this job"]);
    refused(both, "/nowhere/pool", &["/nowhere/pool"]);
    refused(both, &format!("{pool},node2=/dev/null"), &["node 1 (node2)", "/dev/null"]);
    std::fs::write(nodes.dir().join("open"), [0; 8192]).expect("a file");
    refused(both, &nodes.dir().join("open").display().to_string(), &["open"]);
    let refused = |pools: &str, words: &[&str]| {
        run(&nodes, both, &["--pool", pools], "true").run().refused(125, words);
    };
    // Two files are not one memory.
    let other = nodes.dir().join("other");
    std::fs::copy(&pool, &other).expect("a copy");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&other, mode).expect("its mode");
    refused(&format!("{pool},node2={}", other.display()), &["is not the memory that node"]);
    std::fs::File::options()
        .write(true)
        .open(&other)
        .and_then(|it| it.set_len(1 << 20))
        .expect("a size");
    refused(&other.display().to_string(), &["too small"]);
    // One job at a time.
    let program = program::c_with_libraries("cluster.c", &["pvas"]);
    let mut running = run(&nodes, both, &["--pool", &pool], program).arg("stays").spawn();
    running.wait_for_word("stays");
    refused(&pool, &["in use by another job"]);
    drop(running);
    nodes.all_is_gone();
}

/// More than the pool has room for.
#[test]
fn a_pool_that_is_full_ends_the_job_with_a_line() {
    let Some(nodes) = machines(2) else { return };
    let pool = pool(&nodes, 10 << 20);
    let program = program::c_with_libraries("cluster.c", &["pvas"]);
    let output = run(&nodes, "all:1,@node2:1", &["--pool", &pool], program).arg("works").run();
    assert!(!output.status.success(), "{output}");
    assert!(output.stderr.contains("is full: take a larger pool"), "{output}");
    nodes.all_is_gone();
}

#[test]
fn domains_of_machines_have_the_same_numbers_everywhere() {
    cases("cluster.c", &["who"]);
}

#[test]
fn a_pointer_means_the_same_on_all_machines() {
    cases("domains.c", &["pointers", "unmaps"]);
}

#[test]
fn every_read_sees_the_last_write() {
    cases("cluster.c", &["order", "locks"]);
}

#[test]
fn system_calls_use_memory_of_other_machines() {
    cases("cluster.c", &["calls", "sleeps", "works", "grows"]);
}

/// Pages that lie behind each other come together: one after the other they are 16,700 packets.
#[test]
fn sequentially_used_pages_are_prefetched() {
    cases("cluster.c", &["streams"]);
    let Some(nodes) = machines(2) else { return };
    let program = program::c_with_libraries("cluster.c", &["pvas_delegate", "pvas"]);
    run(&nodes, "all:1,@node2:1", &["-K"], program).arg("streams").run().ok();
    let [here, there] = [0, 1].map(|node| nodes.received(node).1);
    assert!(here < 12_000 && there < 12_000, "{here} and {there} packets");
}

/// The request for a page carries the lookup of its block. So the first touch of a block takes as
/// many round trips as a touch of another page there: one.
#[test]
fn the_first_touch_of_a_block_takes_one_round_trip() {
    let Some(nodes) = machines(2) else { return };
    let program = program::c_with_libraries("cluster.c", &["pvas_delegate", "pvas"]);
    // What the other node sends to the home.
    let segments = |case: &str| {
        let before = nodes.sent_segments(1);
        run(&nodes, "all:1,@node2:1", &["-K"], &program).arg(case).run().ok();
        nodes.sent_segments(1) - before
    };
    let [none, first, again] = ["touch_nothing", "touch_first", "touch_again"].map(segments);
    println!("segments without touches: {none}, with one per block: {first}, with two: {again}");
    let (first_touch, later_touch) = (first.saturating_sub(none), again.saturating_sub(first));
    // Of 128 requests, some go together or instead of an idle node's message.
    assert!(later_touch >= 96, "{none}, {first} and {again} segments");
    assert!(4 * first_touch < 5 * later_touch, "{none}, {first} and {again} segments");
}

#[test]
fn mappings_of_owners_change_for_all() {
    cases("cluster.c", &["maps", "churn"]);
}

#[test]
fn a_fork_has_its_parents_memory_from_any_node() {
    cases("cluster.c", &["forks"]);
}

#[test]
fn an_ending_task_frees_its_memory() {
    cases("cluster.c", &["ends"]);
}

/// By memory that is fetched and futexes that are passed on.
#[test]
fn work_is_delegated_to_tasks_of_other_machines() {
    let Some(nodes) = machines(2) else { return };
    let program = program::c_with_libraries("delegate.c", &["pvas_delegate", "pvas"]);
    for case in ["calls", "asynchronous", "later", "share"] {
        for domains in ["all:1,@node2:2", "all:2,@node2:1"] {
            let output = run(&nodes, domains, &["-K"], &program).arg(case).run();
            assert!(output.status.success(), "{domains}, {case}: {output}");
        }
    }
}

#[test]
fn output_status_and_surroundings_are_those_of_one_run() {
    let Some(nodes) = machines(2) else { return };
    let domains = "all:1,@node2:2";
    let sh = |script: &str, options: &[&str]| {
        run(&nodes, domains, options, tool("sh")).args(["-c", script])
    };
    let lines = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join(" ")
    };
    let who = "echo $NAGAYA_TASK_ID of $NAGAYA_TASKS on $(hostname); echo $X >&2";
    let output = sh(who, &["-x", "X=there"]).run();
    assert!(output.status.success(), "{output}");
    assert_eq!(lines(&output.stdout), "0 of 3 on node1 1 of 3 on node2 2 of 3 on node2");
    assert_eq!(lines(&output.stderr), "there there there");
    let labelled = sh("printf '%s' a; echo b", &["--label"]).run().ok();
    assert_eq!(lines(&labelled), "[0] ab [1] ab [2] ab");
    let directory = sh("pwd", &["--chdir", "/usr"]).run().ok();
    assert_eq!(lines(&directory), "/usr /usr /usr");
    let input = sh("cat", &[]).stdin("text\n").run().ok();
    assert_eq!(input, "text\n", "only the first task has any");
    // Long output comes whole, even if the reader is slower than the job.
    let slowly = Cmd::new("bash").args(["-c", "\"$@\" | (sleep 2; cat)", "bash"]);
    let long = slowly.command(sh("head -c 3000000 /dev/zero", &[])).run().ok();
    assert_eq!(long.len(), 9_000_000);
    let status = |script: &str, options: &[&str]| sh(script, options).run().code();
    assert_eq!(status("exit 0", &[]), 0);
    assert_eq!(status("[ $NAGAYA_TASK_ID != 2 ] || exit 7", &[]), 7);
    let begin = Instant::now();
    assert_eq!(status("[ $NAGAYA_TASK_ID = 2 ] && exit 7; exec sleep 50", &["-K"]), 7);
    assert!(begin.elapsed() < Duration::from_secs(25), "{:?}", begin.elapsed());
    let killed = sh("[ $NAGAYA_TASK_ID != 2 ] || kill -9 $$", &[]).run();
    assert_eq!(killed.code(), 128 + 9);
    assert!(killed.stderr.contains("nagaya: task 2 (PID "), "{killed}");
    nodes.all_is_gone();
}

#[test]
fn impossible_requests_get_one_line() {
    let Some(nodes) = machines(2) else { return };
    let refused = |domains: &str, options: &[&str], program: &str, status, words: &[&str]| {
        run(&nodes, domains, options, program).run().refused(status, words);
    };
    let both = "all:1,@node2:1";
    refused(both, &[], "/nowhere", 127, &["/nowhere"]);
    refused(both, &[], "/etc/passwd", 126, &["/etc/passwd"]);
    refused("@node2:1", &[], "true", 125, &["--domains", "first domain"]);
    refused("all:1,@node2:1,@node2:1", &[], "true", 125, &["@node2", "twice"]);
    refused("all:1,@node2/77:1", &[], "true", 125, &["node 1 (node2)", "77"]);
    refused(both, &["--stdin", "all"], "true", 125, &["--stdin all"]);
    refused(both, &["--stdin", "1"], "true", 125, &["--stdin 1"]);
    refused(both, &["--nagaya", "/nowhere/nagaya"], "true", 125, &["/nowhere/nagaya"]);
    refused("all:1,@away:1", &[], "true", 125, &["node 1 (away)"]);
    let fixed = program::c_with("span/ends.c", &["-no-pie", "-pthread"]);
    refused(both, &[], fixed.to_str().expect("text"), 125, &["position-independent"]);
    nodes.all_is_gone();
}

/// Tasks that stay, on each of these machines.
struct Job {
    running: Running,
    nodes: Nodes,
}

impl Job {
    fn new(count: usize, options: &[&str]) -> Option<Self> {
        let nodes = machines(count)?;
        let others = NAMES[1..count].iter().map(|name| format!(",@{name}:2"));
        let domains = format!("all:2{}", others.collect::<String>());
        let program = program::c_with_libraries("cluster.c", &["pvas"]);
        let mut running = run(&nodes, &domains, options, program).arg("stays").spawn();
        for _ in 0..2 * count {
            running.wait_for_word("stays");
        }
        Some(Self { running, nodes })
    }

    /// Processes of nagaya on a machine, but shells.
    fn nagayas(&self, node: usize) -> Vec<i32> {
        let is_ours = |&pid: &i32| proc_status(pid, "Name").is_some_and(|name| name == "nagaya");
        self.nodes.processes(node).into_iter().filter(is_ours).collect()
    }

    fn tasks(&self, node: usize) -> Vec<i32> {
        let is_task = |&pid: &i32| {
            proc_status(pid, "Name").is_some_and(|name| name == "cluster") && !is_placeholder(pid)
        };
        self.nodes.processes(node).into_iter().filter(is_task).collect()
    }
}

#[test]
fn a_machine_that_is_lost_is_named_and_all_end() {
    let Some(job) = Job::new(3, &[]) else { return };
    assert_eq!(job.tasks(2).len(), 2);
    kill(job.nagayas(2)[0], Signal::KILL);
    let Job { running, nodes } = job;
    let output = running.wait();
    assert_eq!(output.code(), 1, "{output}");
    let lines: Vec<&str> = output.stderr.lines().filter(|it| it.contains("is lost")).collect();
    assert!(lines.len() == 1 && lines[0].contains("node 2 (node3)"), "{output}");
    nodes.all_is_gone();
}

#[test]
fn a_machine_that_is_cut_off_is_named_and_ends_by_itself() {
    let Some(job) = Job::new(2, &["--timeout", "2"]) else { return };
    job.nodes.cut(1);
    let Job { running, nodes } = job;
    let begin = Instant::now();
    let output = running.wait();
    assert!(begin.elapsed() < END_MAX, "{:?}", begin.elapsed());
    assert_eq!(output.code(), 1, "{output}");
    assert!(output.stderr.contains("node 1 (node2) is lost"), "{output}");
    nodes.all_is_gone();
}

#[test]
fn nothing_is_left_when_any_starting_process_is_killed() {
    for who in ["starter", "first machine"] {
        let Some(job) = Job::new(2, &[]) else { return };
        let children = format!("/proc/{0}/task/{0}/children", job.running.pid());
        let children = std::fs::read_to_string(children).expect("children");
        let first = children.split_whitespace().next().expect("a child").parse().expect("a PID");
        match who {
            "starter" => job.running.signal(Signal::KILL),
            _ => kill(first, Signal::KILL),
        }
        job.nodes.all_is_gone();
        let output = job.running.wait();
        assert_eq!(output.signal(), Some(libc::SIGKILL), "{who}: {output}");
    }
}

#[test]
fn signals_reach_all_tasks() {
    for (signal, status) in [(Signal::TERM, 128 + 15), (Signal::INT, 128 + 2)] {
        let Some(job) = Job::new(2, &[]) else { return };
        job.running.signal(signal);
        let Job { running, nodes } = job;
        let output = running.wait();
        assert_eq!(output.code(), status, "{output}");
        nodes.all_is_gone();
    }
}

/// If any task or machine is killed, at any instant, the job ends and nothing remains.
#[test]
fn a_death_at_any_instant_ends_the_job() {
    let mut random = seed();
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (random >> 33) % bound
    };
    let Some(nodes) = machines(2) else { return };
    let program = program::c_with_libraries("cluster.c", &["pvas"]);
    let pool = pool(&nodes, 64 << 20);
    for round in 0..chaos_rounds(10) {
        let options = ["-K", "--pool", &pool];
        // With and without memory in common.
        let options = if round % 2 == 0 { &options } else { &options[..1] };
        let running = run(&nodes, "all:2,@node2:2", options, &program).arg("stays").spawn();
        std::thread::sleep(Duration::from_millis(below(250)));
        let node = below(2) as usize;
        let pids = nodes.processes(node);
        let counts = |&pid: &i32| {
            proc_status(pid, "Name").is_none_or(|name| name != "sh") && !is_placeholder(pid)
        };
        let pids: Vec<i32> = pids.into_iter().filter(counts).collect();
        if pids.is_empty() {
            running.signal(Signal::TERM);
        } else {
            kill(pids[below(pids.len() as u64) as usize], Signal::KILL);
        }
        nodes.all_is_gone();
        let output = running.wait();
        assert!(!output.status.success(), "round {round}: {output}");
    }
}
