//! Software distributed shared memory (libjia) in programs: processes under launchers, with known
//! results; invalid calls; and lost nodes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coherence::record;
use nagaya_tests::mpi::OPEN_MPI_4;
use nagaya_tests::nodes::{NAMES, Nodes, Shares};
use nagaya_tests::program::{c_with_libraries, libraries};
use nagaya_tests::user::User;
use nagaya_tests::{Cmd, Output, Running, WorkDir, kill, nagaya, skip, tool, wait_until};
use rustix::process::Signal;

/// Time limit of a job.
const LIMIT: Duration = Duration::from_secs(120);
/// Until all nodes have ended when one is lost, without hosts that vanish.
const LOST_MAX: Duration = Duration::from_secs(10);

fn program(name: &str) -> PathBuf {
    c_with_libraries(&format!("dsm/{name}.c"), &["jia"])
}

fn mpirun(tasks: usize) -> Cmd {
    let launcher = Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n"]);
    launcher.arg(tasks.to_string()).time_limit(LIMIT)
}

fn job(tasks: usize, name: &str) -> Cmd {
    mpirun(tasks).arg(program(name))
}

/// All litmus programs say that they are right.
fn is_right(output: Output) {
    let said = output.ok();
    assert_eq!(said.matches(" is right\n").count(), 15, "{said}");
}

#[test]
fn one_task_needs_no_launcher() {
    is_right(Cmd::new(program("litmus")).args(["all", "30"]).time_limit(LIMIT).run());
}

#[test]
fn agents_log_their_start_on_request() {
    let output = job(2, "litmus").args(["all", "1"]).env("NAGAYA_LOG", "warn,dsm=info").run();
    let said = output.stderr.matches("nagaya: info: dsm: a node's agent starts: PID ").count();
    assert_eq!(said, 2, "{output}");
}

#[test]
fn programs_are_right_on_two_to_eight_nodes() {
    for tasks in [2, 3, 5, 8] {
        is_right(job(tasks, "litmus").args(["all", "30"]).run());
    }
}

#[test]
fn programs_are_right_with_all_options_and_pages() {
    for (tasks, page, migrate, alone) in
        [(2, "4K", "1", "0"), (3, "64K", "1", "1"), (4, "12K", "0", "0")]
    {
        let job = job(tasks, "litmus").args(["all", "30"]).env("NAGAYA_DSM_PAGE", page);
        is_right(job.env("NAGAYA_DSM_MIGRATE", migrate).env("NAGAYA_DSM_ALONE", alone).run());
    }
}

#[test]
fn random_walks_are_right() {
    let seed = nagaya_tests::seed();
    for (tasks, rides) in [
        (2, "normal"),
        (4, "normal"),
        (6, "normal"),
        (2, "ainori3"),
        (5, "ainori3"),
        (3, "auto"),
        (6, "auto"),
    ] {
        let job = job(tasks, "litmus").args(["walk", "400"]).env("NAGAYA_DSM_RIDES", rides);
        let said = job.env("NAGAYA_SEED", seed.to_string()).run().ok();
        assert!(said.contains("walk is right"), "NAGAYA_SEED={seed}: {said}");
    }
}

/// A job of `nagaya run`, over this many nodes.
fn run(nodes: usize, tasks: usize, name: &str) -> Cmd {
    let run = nagaya("run").args(["--nodes", &nodes.to_string(), "-n", &tasks.to_string()]);
    run.arg(program(name)).time_limit(LIMIT)
}

#[test]
fn tasks_of_one_space_are_one_node() {
    for tasks in [1, 2, 4, 7] {
        is_right(run(1, tasks, "litmus").args(["all", "20"]).run());
    }
}

#[test]
fn nagaya_run_needs_no_launcher_for_several_nodes() {
    for (nodes, tasks) in [(2, 2), (2, 5), (3, 6), (4, 4)] {
        is_right(run(nodes, tasks, "litmus").args(["all", "20"]).run());
    }
}

#[test]
fn tasks_that_a_launcher_starts_in_a_space_are_one_node() {
    let exec = mpirun(4).arg(nagaya_tests::nagaya_path()).arg("exec").arg(program("litmus"));
    is_right(exec.args(["all", "20"]).run());
}

#[test]
fn ordinary_users_are_told_what_they_lack_and_can_do_without() {
    let user = User::ordinary();
    let library = user.bring(&libraries().join("libjia.so.0"));
    let litmus = user.bring(&program("litmus"));
    let as_user = |command: Cmd| {
        let directory = library.parent().expect("it has one");
        user.command(command).env("LD_LIBRARY_PATH", directory).time_limit(LIMIT)
    };
    let alone = || Cmd::new(&litmus).args(["all", "20"]);
    let run = || user.nagaya("run").args(["--nodes", "2", "-n", "4"]).command(alone());
    let may = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").expect("a number");
    if may.trim() == "0" {
        let output = as_user(alone()).run().ends_with(2);
        assert_eq!(output.stderr.lines().count(), 1, "{output}");
        for remedy in ["sysctl vm.unprivileged_userfaultfd=1", "or set NAGAYA_DSM_CALLS=0"] {
            assert!(output.stderr.contains(remedy), "{output}");
        }
        // The other tasks of a node do not report the consequence.
        let output = as_user(run()).run();
        let says = |words: &str| output.stderr.contains(words);
        assert!(!output.status.success() && says("userfaultfd"), "{output}");
        assert!(!says("a task of this address space"), "{output}");
    }
    is_right(as_user(alone()).env("NAGAYA_DSM_CALLS", "0").run());
    is_right(as_user(run()).env("NAGAYA_DSM_CALLS", "0").run());
}

#[test]
fn a_page_is_fetched_once_for_all_tasks_of_a_node() {
    let work = WorkDir::new();
    let files = work.join("stat");
    let job = run(2, 6, "litmus").args(["phases", "3"]).env("NAGAYA_DSM_STATISTICS", &files);
    assert!(job.run().ok().contains("phases is right"));
    let text = std::fs::read_to_string(work.join("stat.1.json")).expect("JSON");
    let (_, pages) = text.split_once("\"pages\":").expect("pages");
    // Each task reads each page at the end; three rounds before drop some once more.
    let fetched = pages.split("\"fetched\":").skip(1);
    let most = fetched.map(|it| it.split(',').next().expect("a number").parse::<u32>().unwrap());
    assert!(most.max().expect("some are fetched") <= 4, "{text}");
}

#[test]
fn when_a_task_of_a_space_is_killed_at_any_moment_all_end() {
    for (round, (nodes, victim)) in
        [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 3)].into_iter().enumerate()
    {
        let mut job = run(nodes, 4, "endless").spawn();
        let pids = pids(&mut job, 4);
        std::thread::sleep(Duration::from_millis(37 * round as u64));
        all_end_without(victim, job, &pids);
    }
}

#[test]
fn other_launchers_with_pmix_will_do() {
    let own = nagaya_tests::bin_dir().join("../mpi/openmpi/bin");
    for launcher in ["prterun", "mpirun"] {
        let path = own.join(launcher);
        if !path.exists() {
            nagaya_tests::machine_lacks(&format!("{}: run scripts/deps", path.display()));
            continue;
        }
        let job = Cmd::new(path).args(["--map-by", ":OVERSUBSCRIBE", "-n", "3"]);
        is_right(job.arg(program("litmus")).args(["all", "20"]).time_limit(LIMIT).run());
    }
}

#[test]
fn memory_can_stand_elsewhere() {
    let job = job(2, "litmus").args(["sharing", "5"]).env("NAGAYA_DSM_START", "0x5a0000000000");
    assert!(job.run().ok().contains("sharing is right"));
}

#[test]
fn invalid_settings_are_refused_in_one_line() {
    let litmus = || Cmd::new(program("litmus"));
    for (name, value, words) in [
        ("NAGAYA_DSM_PAGE", "5000", "NAGAYA_DSM_PAGE=5000: give a multiple of 4K"),
        ("NAGAYA_DSM_START", "0x12", "NAGAYA_DSM_START=0x12: give an address"),
        ("NAGAYA_DSM_RECORD", "/nonexistent", "NAGAYA_DSM_RECORD: /nonexistent/node-0.record"),
    ] {
        let output = litmus().arg("counter").env(name, value).run().ends_with(2);
        assert_eq!(output.stderr.lines().count(), 1, "{output}");
        assert!(output.stderr.contains(words), "{output}");
    }
    let output = litmus().arg("counter").env("NAGAYA_DSM_PAEG", "1").run();
    assert!(output.stderr.contains("NAGAYA_DSM_PAEG is no setting"), "{output}");
    assert!(output.ok().contains("counter is right"));
}

#[test]
fn misuse_ends_the_job_with_one_line() {
    for (name, words) in [
        ("unlock", "jia_unlock: lock 3: the task does not hold it"),
        ("twice", "the task holds it already"),
        ("barrier", "jia_barrier: the task is at a barrier and holds lock"),
        ("negative", "jia_lock: lock -1 is negative"),
        ("host", "jia_alloc2p: task 3: there are 3, from 0 to 2"),
        ("option", "jia_config: 17 is no option"),
        ("again", "jia_init: a process joins its job once"),
        ("error", "task 2: cell 7 of a kind"),
        ("exit", "task 2 has ended without jia_exit"),
        ("sizes", "allocation number 2 is "),
        ("homes", "allocation number 2 is "),
        ("count", "allocations at this barrier: 2 in node 2 (task 2, host "),
        ("lacking", "node 0 (task 0, host "),
        ("leaving", "node 0 (task 0, host "),
        ("late", "jia_barrier: this task has left its job"),
        ("early", "jia_barrier: this process is no task yet"),
    ] {
        let begin = Instant::now();
        let output = job(3, "misuse").arg(name).run();
        assert_ne!(output.code(), 0, "{name}: {output}");
        assert!(
            output.stderr.contains(&format!("nagaya: {words}")) || output.stderr.contains(words),
            "{name}: {output}"
        );
        assert!(begin.elapsed() < LOST_MAX, "{name}");
        if ["sizes", "homes", "count", "lacking", "leaving"].contains(&name) {
            let rule = "all tasks must make the same calls of jia_alloc*";
            let lines: Vec<_> =
                output.stderr.lines().filter(|it| it.contains("nagaya: ")).collect();
            assert!(lines.iter().all(|line| line.contains(rule)), "{name}: {output}");
        }
    }
}

#[test]
fn tasks_of_one_node_that_allocate_differently_end_the_job_with_one_line() {
    for (name, words) in [
        ("sizes", "jia_alloc: this task's allocation number 2 is "),
        ("homes", "jia_alloc2p: this task's allocation number 2 is "),
        ("count", "allocations at this barrier: 1 of task "),
    ] {
        let output = run(1, 3, "misuse").arg(name).run();
        assert_ne!(output.code(), 0, "{name}: {output}");
        assert!(output.stderr.contains(words), "{name}: {output}");
        assert!(output.stderr.contains("all tasks must make the same calls"), "{name}: {output}");
    }
}

#[test]
fn a_task_that_never_joins_is_named_and_the_job_ends() {
    for job in [job(3, "misuse"), run(2, 3, "misuse"), run(1, 3, "misuse")] {
        let begin = Instant::now();
        let output = job.arg("absent").env("NAGAYA_DSM_JOIN", "2").run();
        assert_ne!(output.code(), 0, "{output}");
        let words = "jia_init: task 1 has not called jia_init within 2 s";
        assert_eq!(output.stderr.matches(words).count(), 1, "{output}");
        assert!(begin.elapsed() < LOST_MAX, "{output}");
    }
}

/// The process that would start its tasks, and end them, is stopped itself.
#[test]
fn a_stopped_node_ends_with_a_job_that_has_never_begun() {
    let output = run(2, 2, "misuse").arg("stopped").env("NAGAYA_DSM_JOIN", "1").run();
    assert_ne!(output.code(), 0, "{output}");
    let words = "jia_init: task 1 has not called jia_init within 1 s";
    assert_eq!(output.stderr.matches(words).count(), 1, "{output}");
    assert!(output.stderr.contains("nagaya: node 1 (PID "), "{output}");
}

#[test]
fn messages_that_nobody_receives_make_their_sender_wait() {
    for change in [|| job(2, "misuse"), || run(1, 2, "misuse")] {
        let mut job = change().arg("flood").env("NAGAYA_DSM_MESSAGES", "20M").spawn();
        job.wait_for_lines(20);
        std::thread::sleep(Duration::from_millis(300));
        job.signal(Signal::TERM);
        let output = job.wait();
        let sent = output.stdout.matches("sent").count();
        assert!((20..=21).contains(&sent), "{sent}: {output}");
    }
}

#[test]
fn a_waiter_for_room_continues_when_there_is_room() {
    for job in [job(3, "litmus"), run(2, 4, "litmus")] {
        for bytes in ["0", "5000", "100K"] {
            let job = job.clone().args(["flood", "1"]).env("NAGAYA_DSM_MESSAGES", bytes);
            assert!(job.run().ok().contains("flood is right"));
        }
    }
}

#[test]
fn an_access_beyond_what_was_allocated_is_a_segmentation_fault() {
    // One node: another would end the job too, and mpirun reports the first one.
    let output = job(1, "misuse").arg("beyond").run();
    assert_ne!(output.code(), 0);
    assert!(output.stderr.contains("Segmentation fault"), "{output}");
}

/// A job that works on, and the PIDs of its tasks.
fn endless(tasks: usize, change: impl Fn(Cmd) -> Cmd) -> (Running, Vec<i32>) {
    let mut job = change(job(tasks, "endless")).spawn();
    let pids = pids(&mut job, tasks);
    (job, pids)
}

fn pids(job: &mut Running, tasks: usize) -> Vec<i32> {
    let lines = job.wait_for_lines(tasks);
    let pids = (0..tasks).map(|task| {
        let begin = format!("task {task} is ");
        let line = lines.iter().find_map(|line| line.strip_prefix(&begin));
        line.expect("every task says so").parse().expect("a PID")
    });
    pids.collect()
}

fn all_are_gone(pids: &[i32]) {
    wait_until("all tasks are gone", LOST_MAX, || {
        !pids.iter().any(|&pid| nagaya_tests::is_alive(pid))
    });
}

/// This one is killed.
fn all_end_without(victim: usize, job: Running, pids: &[i32]) {
    kill(pids[victim], Signal::KILL);
    let begin = Instant::now();
    let output = job.wait();
    assert_ne!(output.code(), 0, "{output}");
    assert!(begin.elapsed() < LOST_MAX, "{output}");
    all_are_gone(pids);
    // The launcher names it, and so does a node that lives long enough to.
    assert!(output.stderr.contains(&pids[victim].to_string()), "{output}");
}

#[test]
fn when_a_node_is_killed_at_any_moment_all_end() {
    for (round, victim) in [0, 2, 1, 3, 0, 1].into_iter().enumerate() {
        let (job, pids) = endless(4, |job| job);
        std::thread::sleep(Duration::from_millis(37 * round as u64));
        all_end_without(victim, job, &pids);
    }
}

#[test]
fn a_node_that_hangs_is_named_and_the_job_ends() {
    for victim in [0, 1, 2] {
        let (job, pids) = endless(3, |job| job.env("NAGAYA_DSM_TIMEOUT", "2"));
        kill(pids[victim], Signal::STOP);
        let words = "has not answered for ";
        wait_until("it is named", LOST_MAX, || {
            let named = format!("nagaya: node {victim} (task {victim}, host ");
            job.stderr().contains(&named) && job.stderr().contains(words)
        });
        // Since its last sign of life, which came before it was stopped.
        let said = job.stderr();
        let seconds = said.split(words).nth(1).and_then(|rest| rest.split(' ').next());
        let seconds: Option<f64> = seconds.and_then(|text| text.parse().ok());
        assert!(seconds.is_some_and(|seconds| seconds >= 2.0), "{said}");
        kill(pids[victim], Signal::CONT);
        let output = job.wait();
        assert_ne!(output.code(), 0, "{output}");
        assert_eq!(output.stderr.matches("has not answered").count(), 1, "{output}");
        all_are_gone(&pids);
    }
}

/// Until a machine that vanishes is found out by those that wait for it, and all have ended.
const VANISHED_MAX: Duration = Duration::from_secs(40);

#[test]
fn two_machines_share_memory_and_one_that_is_cut_off_is_named() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return skip("only root can make network namespaces");
    };
    let launch = |program: Cmd| {
        let launcher = OPEN_MPI_4.launch_on([NAMES[0], NAMES[1]], &nodes.agent());
        nodes.on(0, launcher.command(program)).time_limit(LIMIT)
    };
    is_right(launch(Cmd::new(program("litmus")).args(["all", "20"])).run());
    let tasks = 4;
    let mut job = launch(Cmd::new(program("endless"))).spawn();
    let pids = pids(&mut job, tasks);
    nodes.on(0, Cmd::new(tool("ip")).args(["link", "set", "eth0", "down"])).run().ok();
    wait_until("the other machine's tasks are named", VANISHED_MAX, || {
        job.stderr().contains("nagaya: node ") || !job.is_running()
    });
    wait_until("all tasks are gone", VANISHED_MAX, || {
        !pids.iter().any(|&pid| nagaya_tests::is_alive(pid))
    });
    let said = job.stderr();
    assert!(said.contains("is lost: ") || said.contains("has not answered for "), "{said}");
}

#[test]
fn a_task_that_waits_takes_signals_whose_handler_may_touch_pages() {
    // If the page came only when it is looked for anyway, once a second, it would take longer.
    let begin = Instant::now();
    let output = job(2, "signals").arg("60").run();
    assert!(output.ok().contains("signals is right"));
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
}

#[test]
fn a_handler_that_computes_while_its_task_waits_delays_no_other_node() {
    // The handler takes 900 ms, and the other node asks 100 ms after its beginning.
    let most = job(2, "handler").time_limit(LIMIT).run().ok();
    assert!(most.trim().parse::<u32>().expect("a number") < 400, "{most} ms");
}

#[test]
fn statistics_count_actions() {
    let work = WorkDir::new();
    let files = work.join("stat");
    let run = job(2, "litmus").args(["counter", "50"]).env("NAGAYA_DSM_STATISTICS", &files);
    run.run().ok();
    for node in 0..2 {
        let text = std::fs::read_to_string(work.join(&format!("stat.{node}.json"))).expect("JSON");
        for word in ["\"read_faults\":", "\"lock_waits\":50", "\"barriers\":3", "OP_ACQ"] {
            // The manager of a lock asks itself without a message.
            assert!(text.contains(word) || word == "OP_ACQ" && node == 0, "{word}: {text}");
        }
    }
    let run = job(2, "litmus").args(["counter", "50"]).env("NAGAYA_DSM_STATISTICS", "1");
    let output = run.run();
    for words in ["node 0: ", "node 1: ", "lock 0: asked for", "page 0: home 0"] {
        assert!(output.stderr.contains(words), "{words}: {output}");
    }
}

#[test]
fn recorded_runs_replay() {
    let work = WorkDir::new();
    let run = job(3, "litmus").args(["all", "15"]).env("NAGAYA_DSM_RECORD", work.path());
    is_right(run.run());
    for node in 0..3 {
        let bytes = std::fs::read(work.join(&record::file_name(node))).expect("a recording");
        let steps = record::replay(&bytes).unwrap_or_else(|error| panic!("node {node}: {error:?}"));
        println!("node {node}: {steps} steps");
        assert!(steps > 1000);
    }
}

#[test]
fn the_library_exports_what_the_headers_declare() {
    let headers = ["jia.h", "nagaya_dsm.h"].map(|header| {
        let path = nagaya_tests::program::include_dir().join(header);
        std::fs::read_to_string(path).expect("a header")
    });
    let exported = Cmd::new("nm").args(["-D", "--defined-only"]);
    let exported = exported.arg(libraries().join("libjia.so")).run().ok();
    let mut exported: Vec<_> =
        exported.lines().filter_map(|line| line.split(" T ").nth(1)).collect();
    exported.retain(|name| *name != "nagaya_jia_end");
    let (mut fortran, mut exported): (Vec<_>, Vec<_>) =
        exported.into_iter().partition(|name| name.ends_with('_'));
    let header = nagaya_tests::program::include_dir().join("jiaf.h");
    let header = std::fs::read_to_string(header).expect("a header");
    let external = header.lines().filter_map(|line| line.trim().strip_prefix("external "));
    let mut external: Vec<_> = external
        .flat_map(|names| names.split(','))
        .map(|name| format!("{}_", name.trim()))
        .collect();
    fortran.sort_unstable();
    external.sort_unstable();
    assert_eq!(fortran, external);
    let mut declared = Vec::new();
    for text in &headers {
        // Declarations begin a line; macros and comments do not.
        let code = text.lines().filter(|line| !line.starts_with([' ', '#', '\t', '/']));
        for line in code {
            if let Some((before, _)) = line.split_once('(')
                && let Some(name) = before.rsplit([' ', '*']).next()
                && !name.is_empty()
            {
                declared.push(name);
            }
        }
    }
    exported.sort_unstable();
    declared.sort_unstable();
    assert_eq!(exported, declared);
}
