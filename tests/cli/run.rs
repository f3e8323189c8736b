//! `nagaya run`: number and environment of tasks, exit statuses, and signals.

use std::fs::File;
use std::io::Read as _;
use std::process::Command;
use std::time::{Duration, Instant};

use nagaya_tests::{
    Cmd, Running, WorkDir, is_alive, job, nagaya, nagaya_path, runtime_dir, same_as_plain, task,
    tasks, tasks_of, wait_until,
};
use rustix::pipe::PipeFlags;
use rustix::process::Signal;

/// Sorted lines: tasks print in any order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn n_tasks_run_each_with_its_id() {
    let text = tasks(5, "sh").args(["-c", "echo $NAGAYA_TASK_ID of $NAGAYA_TASKS"]).run().ok();
    assert_eq!(sorted(&text), ["0 of 5", "1 of 5", "2 of 5", "3 of 5", "4 of 5"]);
    task("sh").args(["-c", "echo $NAGAYA_TASK_ID of $NAGAYA_TASKS"]).run().prints("0 of 1\n");
}

#[test]
fn nodes_get_processors_of_their_own() {
    let lists = |bind: &[&str], allowed: &str| {
        let script = "taskset -c \"$0\" \"$@\"";
        let run = nagaya("run").args(bind).args(["--nodes", "2", "-n", "2", "sed"]);
        let run = run.args(["-n", "s/^Cpus_allowed_list:[[:space:]]*//p", "/proc/self/status"]);
        let run = Cmd::new("sh").args(["-c", script, allowed]).command(run);
        run.run()
    };
    // The machine of these tests may have one processor only.
    let online = std::thread::available_parallelism().expect("a number").get();
    if online >= 2 {
        assert_eq!(sorted(&lists(&[], "0,1").ok()), ["0", "1"]);
        assert_eq!(sorted(&lists(&["--bind", "none"], "0,1").ok()), ["0-1", "0-1"]);
    }
    assert_eq!(sorted(&lists(&[], "0").ok()), ["0", "0"]);
    lists(&["--bind", "node"], "0").refused(125, &["--bind", "2 nodes", "1 processors"]);
}

#[test]
fn each_task_is_a_process_of_its_own() {
    let text = tasks(6, "sh").args(["-c", "echo $$"]).run().ok();
    let mut pids = sorted(&text);
    pids.dedup();
    assert_eq!(pids.len(), 6, "{text}");
}

#[test]
fn a_hundred_tasks_run_at_once() {
    let text = tasks(100, "sh").args(["-c", "echo $NAGAYA_TASK_ID; sleep 0.5"]).run().ok();
    assert_eq!(text.lines().count(), 100);
}

#[test]
fn programs_are_found_as_the_shell_finds_them() {
    let dir = WorkDir::new();
    dir.write("found", "#!/bin/sh\necho not executable\n");
    let second = WorkDir::new();
    second.write_executable("found", "#!/bin/sh\necho found \"$@\"\n");
    let path = format!("{}:{}:/usr/bin:/bin", dir.path().display(), second.path().display());
    task("found").args(["a", "b"]).env("PATH", path).run().prints("found a b\n");
    task("./found").dir(second.path()).run().prints("found\n");
    nagaya("run").args(["-n", "2", "true"]).run().prints("");
}

#[test]
fn options_after_the_program_are_the_programs() {
    task("echo").args(["-n", "2", "--label", "-K"]).run().prints("2 --label -K");
    nagaya("run").args(["-n", "1", "--", "echo", "x"]).run().prints("x\n");
}

#[test]
fn variables_are_inherited_set_and_passed() {
    let show = "echo $INHERITED,$SET,$PASSED,${EMPTY-unset}";
    nagaya("run")
        .args(["-x", "SET=a=b c", "-x", "PASSED", "-x", "EMPTY=", "sh", "-c", show])
        .env("INHERITED", "i")
        .env("PASSED", "p")
        .env("SET", "overridden")
        .run()
        .prints("i,a=b c,p,\n");
    let missing = nagaya("run").args(["-x", "NOT_SET_ANYWHERE", "true"]).run();
    missing.refused(125, &["NOT_SET_ANYWHERE"]);
}

#[test]
fn the_directory_is_the_callers_or_the_one_asked_for() {
    let dir = WorkDir::new();
    let path = format!("{}\n", dir.path().display());
    task("pwd").dir(dir.path()).env_remove("PWD").run().prints(&path);
    nagaya("run").arg("-C").arg(dir.path()).args(["/bin/pwd", "-P"]).run().prints(&path);
    // As with env -C, a relative path of the program counts from there.
    dir.write_executable("here", "#!/bin/sh\npwd -P\n");
    nagaya("run").arg("-C").arg(dir.path()).arg("./here").run().prints(&path);
    nagaya("run").args(["-C", "/nonexistent", "true"]).run().refused(125, &["/nonexistent"]);
}

#[test]
fn labels_begin_each_line() {
    for option in ["-l", "--label"] {
        let output = nagaya("run")
            .args(["-n", "3", option, "sh", "-c"])
            .arg("echo one; echo two $NAGAYA_TASK_ID; printf 'no newline'; echo oops >&2")
            .run();
        let text = output.clone().ok();
        for id in 0..3 {
            let mine: Vec<_> =
                text.lines().filter(|line| line.starts_with(&format!("[{id}] "))).collect();
            let wanted =
                [format!("[{id}] one"), format!("[{id}] two {id}"), format!("[{id}] no newline")];
            assert_eq!(mine, wanted, "{output}");
            assert!(output.stderr.contains(&format!("[{id}] oops")), "{output}");
        }
    }
}

#[test]
fn labelled_lines_are_whole_however_long_and_many() {
    let script =
        "for i in $(seq 2000); do echo $i; done; head -c 300000 /dev/zero | tr '\\0' x; echo";
    let text = nagaya("run").args(["-n", "4", "-l", "sh", "-c", script]).run().ok();
    assert_eq!(text.lines().count(), 4 * 2001);
    for id in 0..4 {
        let prefix = format!("[{id}] ");
        let mine: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        assert_eq!(mine.len(), 2001);
        for (i, line) in mine[..2000].iter().enumerate() {
            assert_eq!(*line, (i + 1).to_string());
        }
        assert_eq!(mine[2000].len(), 300_000);
    }
}

#[test]
fn standard_input_goes_to_the_chosen_tasks() {
    let script = "cat | sed s/^/$NAGAYA_TASK_ID:/";
    let run = |options: &[&str]| {
        let command = nagaya("run").args(["-n", "3"]).args(options).args(["sh", "-c", script]);
        command.stdin("a\nb\n").run().ok()
    };
    assert_eq!(run(&[]), "0:a\n0:b\n");
    assert_eq!(run(&["--stdin", "2"]), "2:a\n2:b\n");
    assert_eq!(run(&["--stdin", "none"]), "");
    assert_eq!(sorted(&run(&["--stdin", "all"])), ["0:a", "0:b", "1:a", "1:b", "2:a", "2:b"]);
    nagaya("run").args(["-n", "3", "--stdin", "3", "true"]).run().refused(125, &["stdin"]);
    nagaya("run").args(["--stdin", "some", "true"]).run().refused(125, &["stdin"]);
    // Not all of it need be read.
    let big = "x\n".repeat(1_000_000);
    let command = nagaya("run").args(["-n", "2", "--stdin", "all", "head", "-n1"]);
    command.stdin(big).run().prints("x\nx\n");
}

#[test]
fn the_status_is_that_of_the_first_failure() {
    for code in [0, 1, 42, 255] {
        task("sh").args(["-c", &format!("exit {code}")]).run().ends_with(code);
    }
    let script =
        "[ $NAGAYA_TASK_ID = 2 ] && exit 9; sleep 0.3; [ $NAGAYA_TASK_ID = 1 ] && exit 5; exit 0";
    tasks(3, "sh").args(["-c", script]).run().ends_with(9);
    for (signal, number) in [("KILL", 9), ("SEGV", 11), ("TERM", 15), ("ABRT", 6)] {
        task("sh").args(["-c", &format!("kill -{signal} $$")]).run().ends_with(128 + number);
    }
}

/// Otherwise the messages of two nodes mix. A read of a pipe with `O_DIRECT` returns one write.
#[test]
fn a_message_is_one_write() {
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::DIRECT).expect("a pipe");
    let mut command = Command::new(nagaya_path());
    command.args(["run", "-n", "1", "sh", "-c", "kill -9 $$"]).stderr(write);
    command.env("XDG_RUNTIME_DIR", runtime_dir());
    command.status().expect("nagaya");
    drop(command);
    let (mut read, mut writes, mut buffer) = (File::from(read), Vec::new(), [0; 4096]);
    loop {
        match read.read(&mut buffer).expect("readable") {
            0 => break,
            bytes => writes.push(String::from_utf8_lossy(&buffer[..bytes]).into_owned()),
        }
    }
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].starts_with("nagaya: task "), "{writes:?}");
    assert!(writes[0].ends_with(" was killed by signal 9\n"), "{writes:?}");
}

#[test]
fn the_others_go_on_when_one_fails_unless_told_otherwise() {
    let script = "[ $NAGAYA_TASK_ID = 1 ] && exit 7; sleep 1; echo finished";
    let output = tasks(3, "sh").args(["-c", script]).run().ends_with(7);
    assert_eq!(output.stdout, "finished\nfinished\n");
    for option in ["-K", "--kill-on-bad-exit"] {
        let start = Instant::now();
        let script = "[ $NAGAYA_TASK_ID = 1 ] && exit 7; exec sleep 60";
        nagaya("run").args(["-n", "3", option, "sh", "-c", script]).run().ends_with(7);
        assert!(start.elapsed() < Duration::from_secs(20));
        // A separate task, not a program that it executed.
        let script = "[ $NAGAYA_TASK_ID = 1 ] && exit 7; while :; do read -t 1 x </dev/zero; done";
        nagaya("run").args(["-n", "3", option, "bash", "-c", script]).run().ends_with(7);
        assert!(start.elapsed() < Duration::from_secs(40));
    }
}

/// Tasks that say `up` and wait for signals.
fn waiting_tasks(n: usize, traps: &str) -> Running {
    let script = format!("{traps}; echo up; while :; do sleep 0.05; done");
    let mut running = tasks(n, "bash").args(["-c", &script]).spawn();
    running.wait_for(&format!("`up` {n} times"), |text| text.matches("up\n").count() == n);
    running
}

#[test]
fn signals_are_forwarded() {
    for (signal, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::HUP, "HUP"),
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
    ] {
        let running = waiting_tasks(3, &format!("trap 'echo {name}; exit 4' {name}"));
        running.signal(signal);
        let output = running.wait();
        assert_eq!(output.code(), 4, "{output}");
        assert_eq!(output.stdout.matches(name).count(), 3, "{output}");
    }
}

#[test]
fn tasks_that_die_of_a_forwarded_signal_give_its_status() {
    // Not bash, which survives a SIGINT that its child does not get.
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
        let mut running = tasks(2, "perl").args(["-e", "$| = 1; print qq(up\n); sleep 60"]).spawn();
        running.wait_for_lines(2);
        running.signal(signal);
        let output = running.wait();
        assert_eq!(output.code(), 128 + number, "{output}");
    }
}

#[test]
fn ctrl_c_at_a_terminal_ends_everything_once() {
    // The terminal sends SIGINT to the whole process group.
    let running = waiting_tasks(3, "trap 'echo INT; exit 6' INT");
    running.signal_group(Signal::INT);
    let output = running.wait();
    assert_eq!(output.code(), 6, "{output}");
    assert_eq!(output.stdout.matches("INT").count(), 3, "{output}");
}

#[test]
fn ctrl_c_turns_into_sigterm_after_five_seconds_and_sigkill_after_ten() {
    let polite = waiting_tasks(2, "trap '' INT; trap 'echo TERM; exit 3' TERM");
    let deaf = waiting_tasks(2, "trap '' INT TERM HUP");
    let start = Instant::now();
    polite.signal(Signal::INT);
    deaf.signal(Signal::INT);
    let output = polite.wait();
    let seconds = start.elapsed().as_secs_f64();
    assert!((4.5..9.0).contains(&seconds), "{seconds} s {output}");
    assert_eq!(output.code(), 3, "{output}");
    assert_eq!(output.stdout.matches("TERM").count(), 2, "{output}");
    let output = deaf.wait();
    let seconds = start.elapsed().as_secs_f64();
    assert!((9.0..16.0).contains(&seconds), "{seconds} s {output}");
    assert_eq!(output.code(), 128 + 9, "{output}");
}

#[test]
fn a_second_ctrl_c_kills_at_once() {
    let deaf = waiting_tasks(2, "trap '' INT TERM");
    deaf.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    deaf.signal(Signal::INT);
    let output = deaf.wait();
    assert_eq!(output.code(), 128 + 9, "{output}");
    assert!(start.elapsed() < Duration::from_secs(4), "{output}");
}

#[test]
fn tasks_end_when_nagaya_is_killed() {
    let job = job();
    let mut running = nagaya("run")
        .args(["-n", "3", "--job", &job, "bash", "-c", "echo up; while :; do sleep 0.05; done"])
        .spawn();
    running.wait_for("`up` three times", |text| text.matches("up").count() == 3);
    let tasks = tasks_of(&job);
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    running.signal(Signal::KILL);
    assert_eq!(running.wait().signal(), Some(9));
    wait_until("the tasks are gone", nagaya_tests::TIME_LIMIT, || {
        tasks.iter().all(|task| !is_alive(task.pid))
    });
}

#[test]
fn a_closed_output_ends_the_tasks_as_it_would_without_us() {
    // yes gets SIGPIPE when head has gone.
    let nagaya = nagaya_tests::nagaya_path();
    for label in ["", "-l"] {
        let script = format!("\"$0\" run {label} -n 2 yes | head -n 3");
        let output = Cmd::new("bash").args(["-c", &script]).arg(&nagaya).run();
        assert_eq!(output.clone().ok().lines().count(), 3, "{output}");
    }
}

#[test]
fn output_to_a_terminal_or_file_is_not_altered() {
    let script = "head -c 1000000 /dev/urandom | tee \"$0\" | cat";
    let dir = WorkDir::new();
    let (copy, out) = (dir.join("copy"), dir.join("out"));
    let command = task("sh").args(["-c", script]).arg(&copy);
    Cmd::new("bash").args(["-c", "\"$@\" > \"$0\""]).arg(&out).command(command).run().ok();
    assert_eq!(std::fs::read(copy).expect("read"), std::fs::read(out).expect("read"));
}

#[test]
fn wrong_usage_is_status_125_with_a_hint() {
    for arguments in [
        &["run"][..],
        &["run", "-n"],
        &["run", "-n", "0", "true"],
        &["run", "-n", "-3", "true"],
        &["run", "-n", "many", "true"],
        &["run", "--no-such-option", "true"],
        &["run", "--segment-size", "big", "true"],
        &["run", "--segment-size", "3G", "true"],
        &["run", "--segment-size", "32M", "true"],
        &["run", "--segment-size", "32T", "true"],
        &["exec"],
        &["no-such-command"],
        &["gdb"],
    ] {
        let output = Cmd::new(nagaya_tests::nagaya_path()).args(arguments).run();
        assert_eq!(output.code(), 125, "{output}");
        assert!(!output.stderr.is_empty(), "{output}");
        assert_eq!(output.stdout, "", "{output}");
    }
}

#[test]
fn help_and_version_are_no_failures() {
    let nagaya = || Cmd::new(nagaya_tests::nagaya_path());
    assert!(nagaya().arg("--version").run().ok().starts_with("nagaya "));
    for command in ["run", "exec", "ps", "maps", "gdb", "info"] {
        assert!(nagaya().args([command, "--help"]).run().ok().contains("Usage"), "{command}");
        assert!(nagaya().arg("--help").run().ok().contains(command));
    }
}

#[test]
fn ordinary_tools_run_as_tasks() {
    same_as_plain(&["seq", "1", "100000"]);
    same_as_plain(&["sort", "--parallel=2", "-R", "--random-source=/etc/passwd", "/etc/passwd"]);
    same_as_plain(&["awk", "BEGIN { for (i = 0; i < 300000; i++) a[i] = i * 2; print a[77777] }"]);
    same_as_plain(&["tar", "-C", "/usr/share/doc", "--sort=name", "-cf", "-", "bash"]);
    same_as_plain(&["find", "/etc/apt", "-name", "*.d"]);
    same_as_plain(&["env", "-i", "A=1", "env"]);
    same_as_plain(&["git", "--version"]);
    same_as_plain(&["false"]).ends_with(1);
}

#[test]
fn a_closed_pipe_for_messages_does_no_harm() {
    // `nagaya run … 2>&1 | head`: its line of the task comes when the pipe is closed.
    let script = "{ sleep 0.3; \"$0\" run bash -c 'kill -9 $$' 2>&1; echo $? >&3; } 3>&1 >&4 4>&- | \
                  cat";
    let closed = format!("exec 4> >(true); sleep 0.1; {script}");
    let output = Cmd::new("bash").args(["-c", &closed]).arg(nagaya_tests::nagaya_path()).run().ok();
    assert_eq!(output, "137\n");
}
