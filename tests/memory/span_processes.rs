//! `nagaya span`: processes that threads of all nodes start and fork, which then are as any other.

use nagaya_tests::span::{LIMIT, packing as span, program};
use nagaya_tests::{Cmd, WorkDir, tool, wait_until};

#[test]
fn threads_of_all_nodes_start_processes() {
    let children = program("children", &[]);
    Cmd::new(&children).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &children).run().prints("right\n");
    }
}

#[test]
fn a_forked_child_has_a_copy_of_all_and_is_a_process_like_any_other() {
    let forks = program("forks", &[]);
    Cmd::new(&forks).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &forks).run().prints("right\n");
    }
}

#[test]
fn a_daemon_lives_on_when_all_nodes_have_ended() {
    let work = WorkDir::new();
    let forks = program("forks", &[]);
    for nodes in [1, 2] {
        let file = work.join(&format!("said by {nodes}"));
        span(nodes, &forks).arg(&file).run().prints("");
        wait_until("the daemon has said something", nagaya_tests::TIME_LIMIT, || {
            std::fs::read_to_string(&file).is_ok_and(|said| said == "still there\n")
        });
    }
}

/// They print the same, and end so.
#[track_caller]
fn does_the_same(command: &[&str]) {
    let program = tool(command[0]);
    let alone = Cmd::new(&program).args(&command[1..]).time_limit(LIMIT).run();
    for nodes in [1, 2] {
        let ours = span(nodes, &program).args(&command[1..]).run();
        let both = |output: &nagaya_tests::Output| (output.stdout.clone(), output.code());
        assert_eq!(both(&ours), both(&alone), "{command:?} on {nodes} nodes: {ours}");
    }
}

#[test]
fn shells_and_scripts_fork() {
    let script = "echo a | tr a b; (exit 4); echo $?; x=$(echo q | cat); echo $x; \
                  for i in 1 2 3; do (echo $i) & wait; done; trap 'echo end; exit 7' TERM; kill $$";
    does_the_same(&["dash", "-c", script]);
    does_the_same(&["bash", "-c", script]);
    does_the_same(&[
        "perl",
        "-e",
        "$| = 1; print qq(a\n); system('echo b'); print `echo c`; exit 3",
    ]);
}

#[test]
fn python_forks() {
    let work = WorkDir::new();
    let script = work.write(
        "forks.py",
        "import os, subprocess, threading\n\
         all = {n: list(range(n * 1000)) for n in range(20)}\n\
         there, said = os.pipe()\n\
         child = os.fork()\n\
         if child == 0:\n\
         \tos.write(said, str(sum(map(sum, all.values()))).encode())\n\
         \tos._exit(5)\n\
         print(os.read(there, 100), os.waitpid(child, 0)[1])\n\
         before = lambda: os.umask(0o77)\n\
         print(subprocess.run(['sh', '-c', 'umask'], preexec_fn=before, capture_output=True).stdout)\n\
         ends = []\n\
         def work(me):\n\
         \tfor k in range(5):\n\
         \t\tchild = os.fork()\n\
         \t\tif child == 0: os._exit(me * 10 + k)\n\
         \t\tends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n\
         threads = [threading.Thread(target=work, args=(me,)) for me in range(3)]\n\
         [thread.start() for thread in threads]\n\
         [thread.join() for thread in threads]\n\
         print(sorted(ends))\n",
    );
    does_the_same(&["python3", script.to_str().expect("text")]);
}

#[test]
fn memory_is_shared_with_children_and_files() {
    let common = program("common", &[]);
    Cmd::new(&common).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &common).run().prints("right\n");
    }
}

#[test]
fn children_get_memory_as_madvise_says() {
    let inherits = program("inherits", &[]);
    let work = WorkDir::new();
    let file = work.join("file");
    Cmd::new(&inherits).arg(&file).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &inherits).arg(&file).run().prints("right\n");
    }
}

#[test]
fn python_s_processes_work_together() {
    let work = WorkDir::new();
    let script = work.write(
        "processes.py",
        "import multiprocessing\n\
         context = multiprocessing.get_context('fork')\n\
         def square(x): return x * x\n\
         with context.Pool(3) as pool: print(pool.map(square, range(20)))\n\
         queue, value = context.Queue(), context.Value('i', 0)\n\
         def work(me):\n\
         \tfor _ in range(100):\n\
         \t\twith value.get_lock(): value.value += me\n\
         \tqueue.put((me, 'done'))\n\
         all = [context.Process(target=work, args=(me,)) for me in range(3)]\n\
         [process.start() for process in all]\n\
         print(sorted(queue.get() for _ in all))\n\
         [process.join() for process in all]\n\
         print(value.value, [process.exitcode for process in all])\n",
    );
    does_the_same(&["python3", script.to_str().expect("text")]);
}

/// The counters of each stressor vary, but not the way in which it ends. It runs without real-time
/// priority: threads with that priority keep the one processor of a node from the thread that
/// starts the others, and the stressor then reports that it could create none.
#[test]
fn stress_ng_s_stressors_find_nothing() {
    let stress = tool("stress-ng");
    for stressor in STRESSORS {
        let (name, operations) = stressor.split_once(' ').expect("two words");
        let all = [&format!("--{name}"), "1", &format!("--{name}-ops"), operations, "--verify"];
        let rest = ["--timeout", "60", "--metrics-brief"];
        let command = |command: Cmd| {
            let ordinary = Cmd::new("setpriv").args(["--bounding-set=-sys_nice"]);
            ordinary.command(command.args(all).args(rest)).time_limit(LIMIT).run()
        };
        let counts = |output: &nagaya_tests::Output| {
            let text = format!("{}{}", output.stdout, output.stderr);
            let is_counted = |line: &str| {
                let mut words = line.split_whitespace().skip(3);
                words.next() == Some(name) && words.next().is_some_and(|count| count != "0")
            };
            (output.code(), text.lines().any(is_counted), text.contains("fail:"))
        };
        // On a busy machine it may find something alone.
        let is_alone = || counts(&command(Cmd::new(&stress))) == (0, true, false);
        assert!((0..3).any(|_| is_alone()), "{stressor} alone");
        let ours = command(span(2, &stress));
        assert_eq!(counts(&ours), (0, true, false), "{stressor}: {ours}");
    }
}

const STRESSORS: &[&str] = &[
    "pthread 50",
    "mutex 1000",
    "futex 300",
    "fork 30",
    "vfork 30",
    "clone 30",
    "switch 300",
    "pipe 500",
    "malloc 1000",
    "brk 1000",
    "kill 100",
    "sigsegv 50",
    "daemon 10",
    "zombie 30",
    "matrix 10",
];
