//! `nagaya span -H`: a program over several machines. They are network namespaces here that share
//! only files. The tests check its output, and that nothing remains when a machine, the network or
//! a process in between is lost.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nagaya_tests::nodes::{END_MAX, NAMES, Nodes, Shares};
use nagaya_tests::program::{c, c_with};
use nagaya_tests::span::python_threads;
use nagaya_tests::{Cmd, Running, WorkDir, is_alive, kill, nagaya, skip, tool};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(100);

fn machines(count: usize) -> Option<Nodes> {
    let nodes = Nodes::of(count, Shares::Files);
    if nodes.is_none() {
        skip("only root can make network namespaces");
    }
    nodes
}

/// `nagaya span` on the first machine, reaching others by an agent. Threads go to all machines.
fn span_by(nodes: &Nodes, agent: &Path, options: &[&str], program: impl AsRef<Path>) -> Cmd {
    let span = nagaya("span").args(["--place", "spread"]).args(options).arg(program.as_ref());
    let span = span.env("NAGAYA_RSH", agent);
    // The runner of the tests may ignore the end of its terminal.
    let span = Cmd::new(tool("env")).arg("--default-signal=HUP").command(span);
    nodes.on(0, span).time_limit(LIMIT)
}

fn span(nodes: &Nodes, options: &[&str], program: impl AsRef<Path>) -> Cmd {
    span_by(nodes, &nodes.agent(), options, program)
}

/// So many machines.
fn names(count: usize) -> String {
    NAMES[..count].join(",")
}

#[test]
fn programs_print_the_same_as_on_one_machine() {
    let Some(nodes) = machines(4) else { return };
    let work = WorkDir::new();
    let litmus = c("span/litmus.c");
    for count in [2, 4] {
        span(&nodes, &["-H", &names(count)], &litmus).arg("20").run().prints("right\n");
    }
    let product = c_with("span/product.c", &["-fopenmp"]);
    let alone = Cmd::new(&product).env("OMP_NUM_THREADS", "4").run().ok();
    let ours = span(&nodes, &["-H", &names(4)], &product).env("OMP_NUM_THREADS", "4");
    ours.run().prints(&alone);
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x3f
    };
    let data = work.write("data", (0..3_000_000).map(|_| next()).collect::<Vec<u8>>());
    let file = data.to_str().expect("text");
    for command in [&["xz", "-T2", "-0", "-c", file][..], &["pigz", "-p3", "-c", file]] {
        let (program, to) = (tool(command[0]), work.join("packed"));
        let shell = |inner: Cmd| {
            let script = Cmd::new("bash").args(["-c", "exec \"$@\" >\"$0\""]).arg(&to);
            script.command(inner).time_limit(LIMIT).run().ok();
            std::fs::read(&to).expect("output")
        };
        let alone = shell(Cmd::new(&program).args(&command[1..]));
        let ours = shell(span(&nodes, &["-H", &names(3)], &program).args(&command[1..]));
        assert!(ours == alone, "{command:?} writes something else");
    }
    let (script, wanted) = python_threads(&work, 5000);
    let python = span(&nodes, &["-H", &names(3)], "/usr/bin/python3").arg(&script);
    python.run().prints(&wanted);
}

/// The other machine's counters are in the report, too.
#[test]
fn a_report_tells_of_all_machines() {
    let Some(nodes) = machines(2) else { return };
    let shares = c_with("span/shares.c", &["-pthread", "-g"]);
    let options = ["-H", &names(2), "--report"];
    let output = span(&nodes, &options, &shares).args(["apart", "150"]).run();
    assert!(output.stdout.ends_with("300\n"), "{output}");
    let report = &output.stderr;
    let away = report.lines().skip_while(|line| !line.starts_with("node 1 (node2): "));
    let calls = away.clone().take(2).any(|line| line.contains("calls at the origin: write 150"));
    assert!(calls && report.contains("node 0 (node1): "), "{report}");
    for words in ["counts, written by count_first at shares.c:", "false sharing"] {
        assert!(away.clone().any(|line| line.contains(words)), "no {words:?} in\n{report}");
    }
}

/// Processes of nagaya that ssh has started on a machine; shells stand between.
fn spans(nodes: &Nodes, node: usize) -> Vec<i32> {
    let line = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_span = |&pid: &i32| line(pid).split(|&byte| byte == 0).any(|word| word == b"--join");
    nodes.processes(node).into_iter().filter(is_span).collect()
}

/// Processes of a program that waits, with threads everywhere, on each machine.
struct Job {
    running: Running,
    nodes: Nodes,
}

impl Job {
    fn new(count: usize, options: &[&str]) -> Option<Self> {
        let nodes = machines(count)?;
        let list = names(count);
        let options = [&["-H", &list], options].concat();
        let mut running = span(&nodes, &options, c("span/ends.c")).arg("wait").spawn();
        running.wait_for_word("there");
        Some(Self { running, nodes })
    }

    /// Of a machine that is not the first.
    fn process(&self, node: usize) -> i32 {
        let all = spans(&self.nodes, node);
        assert_eq!(all.len(), 1, "on {}", NAMES[node]);
        all[0]
    }
}

#[test]
fn a_node_that_is_killed_is_named_and_all_end() {
    for victim in [1, 2] {
        let Some(job) = Job::new(3, &[]) else { return };
        kill(job.process(victim), Signal::KILL);
        let Job { running, nodes } = job;
        let output = running.wait();
        assert_eq!(output.code(), 1, "{output}");
        // The shell there says so, too.
        let lines: Vec<_> = output.stderr.lines().filter(|it| it.contains("nagaya: ")).collect();
        let name = format!("node {victim} ({}) is lost: ", NAMES[victim]);
        assert!(lines.len() == 1 && lines[0].contains(&name), "{output}");
        nodes.all_is_gone();
    }
}

#[test]
fn a_machine_that_is_cut_off_is_named_and_ends_by_itself() {
    for (timeout, most) in [("2", 12), ("20", 30)] {
        let Some(job) = Job::new(3, &["--timeout", timeout]) else { return };
        let begin = Instant::now();
        job.nodes.cut(2);
        let Job { running, nodes } = job;
        let output = running.wait();
        assert!(begin.elapsed() < Duration::from_secs(most), "{:?}", begin.elapsed());
        assert_eq!(output.code(), 1, "{output}");
        output.one_line(&["node 2 (node3)"]);
        nodes.all_is_gone();
    }
}

#[test]
fn nothing_is_left_when_any_starting_process_is_killed() {
    for what in ["starter", "origin", "terminal"] {
        let Some(job) = Job::new(3, &[]) else { return };
        let children = format!("/proc/{0}/task/{0}/children", job.running.pid());
        let children = std::fs::read_to_string(children).expect("children");
        let origin = children.split_whitespace().next().expect("a child").parse().expect("a PID");
        match what {
            "starter" => job.running.signal(Signal::KILL),
            "origin" => kill(origin, Signal::KILL),
            _ => job.running.signal_group(Signal::HUP),
        }
        job.nodes.all_is_gone();
        let output = job.running.wait();
        let signal = if what == "terminal" { libc::SIGHUP } else { libc::SIGKILL };
        assert_eq!(output.signal(), Some(signal), "{what}: {output}");
        assert!(!is_alive(origin), "{what}");
    }
}

/// An agent that starts the node in a separate process, as ssh does.
fn agent_between(nodes: &Nodes) -> PathBuf {
    let agent = nodes.agent();
    let script = format!(
        "#!/bin/sh\necho 'Welcome!'\nmkfifo \"$0.$1\"\n\
         (exec '{}' \"$@\" <\"$0.$1\") &\nexec cat >\"$0.$1\"\n",
        agent.display()
    );
    let path = nodes.dir().join("between");
    nagaya_tests::write_program(&path, script);
    path
}

#[test]
fn a_killed_ssh_takes_its_node_along_and_the_node_is_named() {
    let Some(nodes) = machines(2) else { return };
    let agent = agent_between(&nodes);
    let job = span_by(&nodes, &agent, &["-H", &names(2)], c("span/ends.c")).arg("wait");
    let mut running = job.spawn();
    running.wait_for_word("there");
    let all = nodes.processes(0);
    let is_ssh = |pid: &&i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"cat\0")
    };
    kill(*all.iter().find(is_ssh).expect("what stands for ssh"), Signal::KILL);
    let output = running.wait();
    assert_eq!(output.code(), 1, "{output}");
    output.one_line(&["node 1 (node2)", "lost", "started"]);
    nodes.all_is_gone();
}

#[test]
fn a_host_that_cannot_begin_is_named_with_the_reason() {
    let Some(nodes) = machines(2) else { return };
    let agent = |name: &str, script: &str| {
        let path = nodes.dir().join(name);
        let script = format!("#!/bin/sh\nagent='{}'\n{script}\n", nodes.agent().display());
        nagaya_tests::write_program(&path, script);
        path
    };
    let refused = |agent: &Path, options: &[&str], words: &[&str]| {
        let begin = Instant::now();
        let options = [&["-H", "node1,node2"], options].concat();
        // If secrets differ, any node detects it.
        let name = if words[0] == "secret" { "node" } else { "node 1 (node2)" };
        let words = [&[name], words].concat();
        span_by(&nodes, agent, &options, tool("true")).run().refused(125, &words);
        assert!(begin.elapsed() < END_MAX, "{words:?}: {:?}", begin.elapsed());
        nodes.all_is_gone();
    };
    let away = agent("away", "echo banner >&2; echo \"ssh: $1: No route to host\" >&2; exit 255");
    refused(&away, &[], &["node2: No route to host"]);
    let silent = agent("silent", "exec sleep 1000");
    refused(&silent, &["--timeout", "1"], &["does not begin within 1 s"]);
    let missing = ["cannot start nagaya there: /nowhere/nagaya: not found.", "--nagaya", "Install"];
    refused(&nodes.agent(), &["--nagaya", "/nowhere/nagaya"], &missing);
    // As on a machine that has no nagaya.
    let bare = agent(
        "bare",
        "eval \"$(printf '%s\\n' \"$2\" | \
         sed -e 's/ -x / ! -e /' -e 's|^sh|PATH=/nowhere /bin/sh|')\"",
    );
    refused(&bare, &[], &["cannot start nagaya there", "nagaya is not in PATH. Install nagaya"]);
    let mute = agent("mute", "exit 1");
    refused(&mute, &[], &["nagaya did not begin there", "connection was closed", "NAGAYA_RSH"]);
    let other = agent("other", "echo 'nagaya-span 7.7-77'; exec sleep 1000");
    refused(&other, &[], &["7.7-77", "here is", env!("CARGO_PKG_VERSION")]);
    // It knows another secret.
    let stranger = agent(
        "stranger",
        "exec python3 -c '\nimport os, sys, subprocess\n\
         node = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n\
         order = bytearray()\n\
         while len(order) <= 20: order += os.read(0, 65536)\n\
         order[20] ^= 1\n\
         node.stdin.write(order); node.stdin.flush()\n\
         while order: order = os.read(0, 65536); node.stdin.write(order); node.stdin.flush()\n\
         ' \"$agent\" \"$@\"",
    );
    refused(&stranger, &[], &["secret"]);
    // Its processors can do less.
    let flags = std::fs::read_to_string("/proc/cpuinfo").expect("processors");
    let less = nodes.dir().join("cpuinfo");
    std::fs::write(&less, flags.replace(" sse2 ", " ")).expect("a file");
    let mount = Cmd::new(tool("mount")).arg("--bind").arg(&less).arg("/proc/cpuinfo");
    nodes.on(1, mount).run().ok();
    refused(&nodes.agent(), &[], &["sse2"]);
}

#[test]
fn hosts_are_named_in_a_list_or_a_file() {
    let Some(nodes) = machines(3) else { return };
    let work = WorkDir::new();
    let file = work.write("hosts", "# ours\nnode2 slots=2\nnode1\n");
    let file = file.to_str().expect("text");
    // This machine is the first node, wherever it is named, and if it is not.
    for options in
        [&["-H", "node3:2,node2"][..], &["-H", "node2,10.250.0.1"], &["--hostfile", file]]
    {
        let mut job = span(&nodes, options, c("span/ends.c")).arg("wait").spawn();
        job.wait_for_word("there");
        let there = [1, 2].map(|node| spans(&nodes, node).len());
        assert_eq!(there, if options[1].contains("node3") { [1, 1] } else { [1, 0] });
        job.signal(Signal::TERM);
        assert_eq!(job.wait().signal(), Some(libc::SIGTERM));
    }
    let bad = work.write("bad", "node1\nnode2 max=3\n");
    let bad = bad.to_str().expect("text");
    for (options, word) in [
        (&["-H", "node1,node1"][..], "node1"),
        (&["-H", "node2:x"], "'x'"),
        (&["-H", "node2", "--nodes", "2"], "--nodes"),
        (&["--hostfile", bad], "bad:2: "),
        (&["--hostfile", "/nowhere"], "/nowhere"),
    ] {
        span(&nodes, options, tool("true")).run().refused(125, &[word]);
    }
}

/// The program has 8 MiB of text that a thread on the other machine reads; and writes, later.
#[test]
fn text_is_read_from_the_same_file_and_fetched_where_there_is_another() {
    let Some(nodes) = machines(2) else { return };
    let flags = |value: &str| ["-Wl,--build-id".to_owned(), format!("-DVALUE={value}")];
    let program = |value: &str| {
        let flags = flags(value);
        c_with("span/text.c", &flags.each_ref().map(String::as_str))
    };
    let (ours, other) = (program("1"), program("2"));
    let right = format!("{} 8 7 18\n", 1 << 20);
    let fetched = || {
        let before = nodes.received(1).0;
        span(&nodes, &["-H", "node1:1,node2"], &ours).run().prints(&right);
        nodes.received(1).0 - before
    };
    let same = fetched();
    assert!(same < 3 << 20, "{same} bytes came where the file is the same");
    let mount = Cmd::new(tool("mount")).arg("--bind").arg(&other).arg(&ours);
    nodes.on(1, mount).run().ok();
    let another = fetched();
    assert!(another > 8 << 20, "{another} bytes came where the file is another");
}
