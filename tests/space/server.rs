//! `nagaya exec`: tasks of a job meet in one space; jobs stay apart; a stub is as good as its
//! task, and neither outlives the other; the node server comes and goes with the job.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nagaya_tests::{
    Cmd, Running, Task, WorkDir, exec, is_alive, job, kill, nagaya, proc_status, program, ps,
    runtime_dir, tasks_of, wait_until,
};
use rustix::process::Signal;

/// Time in which what must end has ended.
const SOON: Duration = nagaya_tests::TIME_LIMIT;

/// A task that says `up` and stays.
fn sleeper(job: &str) -> Running {
    let mut running =
        exec(job, "bash").args(["-c", "echo up; while :; do sleep 0.05; done"]).spawn();
    running.wait_for_word("up");
    running
}

/// The PID of the task's node server: its parent.
fn server_of(task: &Task) -> i32 {
    proc_status(task.pid, "PPid").and_then(|pid| pid.parse().ok()).expect("the task's parent")
}

/// The sockets below a directory.
fn sockets(dir: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).map(|entries| entries.flatten().map(|e| e.path()).collect());
    let entries: Vec<PathBuf> = entries.unwrap_or_default();
    let is_socket =
        |path: &PathBuf| path.symlink_metadata().is_ok_and(|data| data.file_type().is_socket());
    entries.into_iter().filter(is_socket).collect()
}

#[test]
fn tasks_of_a_job_share_a_space_and_jobs_do_not() {
    let (first, second) = (job(), job());
    let program = program::c_pvas("print_task.c");
    let start = |job: &str| {
        let mut running = exec(job, &program).arg("stay").spawn();
        let line = running.wait_for_lines(1).remove(0);
        (running, line)
    };
    let tasks = [start(&first), start(&first), start(&second), start(&first)];
    // "task ID of N, owner PID"
    let owner = |i: usize| tasks[i].1.split("owner ").nth(1).expect("an owner").to_owned();
    assert_eq!(owner(0), owner(1));
    assert_eq!(owner(0), owner(3));
    assert_ne!(owner(0), owner(2));
    for (i, wanted) in
        [(0, "task 0 of 1"), (1, "task 1 of 2"), (2, "task 0 of 1"), (3, "task 2 of 3")]
    {
        assert!(tasks[i].1.starts_with(wanted), "{}", tasks[i].1);
    }
}

#[test]
fn the_job_comes_from_the_launchers_variables() {
    let program = program::c_pvas("print_task.c");
    let unique = job();
    let clean = |command: Cmd| {
        let names = ["PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID", "NAGAYA_JOB"];
        names.iter().fold(command, |command, name| command.env_remove(name))
    };
    let start = |variables: &[(&str, &str)]| {
        let command = clean(nagaya("exec").arg(&program).arg("stay"));
        let command =
            variables.iter().fold(command, |command, (name, value)| command.env(name, value));
        let mut running = command.spawn();
        let line = running.wait_for_lines(1).remove(0);
        (running, line.split("owner ").nth(1).expect("an owner").to_owned())
    };
    let other = format!("{unique}-other");
    let pmix = start(&[("PMIX_NAMESPACE", &unique)]);
    let same = start(&[("PMIX_NAMESPACE", &unique), ("PMIX_RANK", "7")]);
    let different = start(&[("PMIX_NAMESPACE", &other)]);
    assert_eq!(pmix.1, same.1);
    assert_ne!(pmix.1, different.1);
    let step_0 = start(&[("SLURM_JOB_ID", &unique), ("SLURM_STEP_ID", "0")]);
    let also_0 = start(&[("SLURM_JOB_ID", &unique), ("SLURM_STEP_ID", "0")]);
    let step_1 = start(&[("SLURM_JOB_ID", &unique), ("SLURM_STEP_ID", "1")]);
    assert_eq!(step_0.1, also_0.1);
    assert_ne!(step_0.1, step_1.1);
    let named = start(&[("NAGAYA_JOB", &unique), ("PMIX_NAMESPACE", &other)]);
    assert_ne!(named.1, different.1, "NAGAYA_JOB comes before the launcher's");
    // Nothing at all: alone.
    let (alone, another) = (start(&[]), start(&[]));
    assert_ne!(alone.1, another.1);
}

#[test]
fn ids_are_taken_free_or_out_of_range() {
    let job = job();
    let program = program::c_pvas("print_task.c");
    let mut first = exec(&job, &program).arg("stay").spawn();
    first.wait_for_lines(1);
    let at_5 = nagaya("exec").args(["--job", &job, "--id", "5"]).arg(&program);
    let mut stays = at_5.clone().arg("stay").spawn();
    assert!(stays.wait_for_lines(1)[0].starts_with("task 5 "));
    at_5.clone().run().refused(125, &["5"]);
    nagaya("exec")
        .args(["--job", &job, "--id", "99999999"])
        .arg(&program)
        .run()
        .refused(125, &["99999999"]);
    let negative = nagaya("exec").args(["--job", &job, "--id", "-1"]).arg(&program).run();
    assert_eq!(negative.code(), 125, "{negative}");
    stays.signal(Signal::TERM);
    stays.wait().ends_with(128 + 15);
    assert!(at_5.run().ok().starts_with("task 5 "), "the ID is free again");
}

#[test]
fn a_stub_ends_as_its_task_does() {
    let job = job();
    let _keeps_the_server = sleeper(&job);
    for code in [0, 1, 77, 255] {
        let output = exec(&job, "sh").args(["-c", &format!("exit {code}")]).run();
        assert_eq!(output.status.code(), Some(code), "{output}");
    }
    for signal in [1, 2, 3, 6, 9, 11, 13, 14, 15, 10, 12, 40] {
        let script = format!("kill {signal}, $$; sleep 5");
        let output = exec(&job, "perl").args(["-e", &script]).run();
        assert_eq!(output.signal(), Some(signal), "{output}");
    }
}

#[test]
fn signals_to_the_stub_reach_the_task() {
    let job = job();
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::QUIT, "QUIT"),
    ] {
        let script =
            format!("trap 'echo got {name}; exit 8' {name}; echo up; while :; do sleep 0.05; done");
        let mut running = exec(&job, "bash").args(["-c", &script]).spawn();
        running.wait_for_word("up");
        running.signal(signal);
        let output = running.wait();
        assert_eq!(output.code(), 8, "{output}");
        assert_eq!(output.stdout, format!("up\ngot {name}\n"), "{output}");
    }
    // And by default kill it, which is the stub's end, too.
    let running = sleeper(&job);
    running.signal(Signal::TERM);
    assert_eq!(running.wait().signal(), Some(15));
}

#[test]
fn a_stopped_stub_stops_and_continues_its_task() {
    let job = job();
    let mut running = exec(&job, "bash")
        .args(["-c", "trap 'echo continued' CONT; echo up; while :; do sleep 0.05; done"])
        .spawn();
    running.wait_for_word("up");
    // The signal that Ctrl-Z sends; a launcher that suspends a job sends it, too.
    running.signal(Signal::TSTP);
    let pid = tasks_of(&job)[0].pid;
    wait_until("the task is stopped", SOON, || {
        proc_status(pid, "State").is_some_and(|state| state.starts_with('T'))
    });
    running.signal(Signal::CONT);
    running.wait_for_word("continued");
}

/// Sends to the stub or the task a signal that it cannot catch, and continues it, twice.
fn stops_and_continues(send: impl Fn(&Running, i32, Signal)) {
    let job = job();
    let mut running = exec(&job, "bash")
        .args(["-c", "trap 'echo continued' CONT; echo up; while :; do sleep 0.05; done"])
        .spawn();
    running.wait_for_word("up");
    let (task, stub) = (tasks_of(&job)[0].pid, running.pid());
    let is_stopped = |pid| proc_status(pid, "State").is_some_and(|state| state.starts_with('T'));
    for _ in 0..2 {
        send(&running, task, Signal::STOP);
        wait_until("the task is stopped", SOON, || is_stopped(task) && is_stopped(stub));
        send(&running, task, Signal::CONT);
        wait_until("both run again", SOON, || !is_stopped(task) && !is_stopped(stub));
        // The server's report of that stop, which waits for the stub, must not stop it again.
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            assert!(!is_stopped(stub), "the stub has stopped again");
            assert!(!is_stopped(task), "the task has stopped again");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    running.wait_for_word("continued");
}

#[test]
fn a_stub_stopped_by_a_signal_that_it_cannot_catch_stops_its_task() {
    stops_and_continues(|stub, _, signal| stub.signal(signal));
}

#[test]
fn a_process_group_that_is_stopped_and_continued_runs_on() {
    stops_and_continues(|stub, _, signal| stub.signal_group(signal));
}

/// The stub stopped for it (found by `kills`).
#[test]
fn a_task_that_another_process_stops_and_continues_runs_on_with_its_stub() {
    stops_and_continues(|_, task, signal| kill(task, signal));
}

/// The stub stayed stopped, if it stopped after the SIGCONT for it (found by `kills`).
#[test]
fn a_stub_that_has_stopped_for_its_task_reports_the_end() {
    let delays_us = [0, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 100_000];
    for delay in delays_us.into_iter().cycle().take(40).map(Duration::from_micros) {
        let job = job();
        let running = sleeper(&job);
        let task = tasks_of(&job)[0].pid;
        kill(task, Signal::STOP);
        std::thread::sleep(delay);
        kill(task, Signal::CONT);
        kill(task, Signal::KILL);
        assert_eq!(running.wait().code(), 128 + 9, "after {delay:?}");
    }
}

#[test]
fn a_stub_whose_stopped_task_is_killed_reports_the_end() {
    let job = job();
    let running = sleeper(&job);
    let task = tasks_of(&job)[0].pid;
    kill(task, Signal::STOP);
    let stub = running.pid();
    wait_until("the stub is stopped", SOON, || {
        proc_status(stub, "State").is_some_and(|state| state.starts_with('T'))
    });
    kill(task, Signal::KILL);
    assert_eq!(running.wait().code(), 128 + 9);
}

#[test]
fn a_task_ends_when_its_stub_is_killed() {
    let job = job();
    let mut other = sleeper(&job);
    let before: Vec<i32> = tasks_of(&job).iter().map(|task| task.pid).collect();
    let running = sleeper(&job);
    let task = tasks_of(&job).into_iter().find(|task| !before.contains(&task.pid)).expect("a task");
    running.signal(Signal::KILL);
    assert_eq!(running.wait().signal(), Some(9));
    wait_until("the task is gone", SOON, || !is_alive(task.pid));
    assert!(other.is_running(), "only that one");
    wait_until("its ID is free", SOON, || tasks_of(&job).len() == 1);
}

#[test]
fn a_task_with_threads_and_deaf_ears_ends_with_its_stub_too() {
    let job = job();
    let mut running = exec(&job, "perl")
        .args(["-e", "$SIG{$_} = 'IGNORE' for keys %SIG; $| = 1; print qq(up\\n); 1 while 1"])
        .spawn();
    running.wait_for_word("up");
    let task = tasks_of(&job).remove(0);
    running.signal(Signal::KILL);
    wait_until("the task is gone", SOON, || !is_alive(task.pid));
}

#[test]
fn everything_ends_with_one_line_when_the_node_server_is_killed() {
    let job = job();
    let running: Vec<_> = (0..3).map(|_| sleeper(&job)).collect();
    let tasks = tasks_of(&job);
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    nagaya_tests::kill(server_of(&tasks[0]), Signal::KILL);
    for stub in running {
        let output = stub.wait();
        assert_ne!(output.code(), 0, "{output}");
        output.one_line(&["server"]);
    }
    wait_until("the tasks are gone", SOON, || tasks.iter().all(|task| !is_alive(task.pid)));
    // The job's name can be used again.
    exec(&job, "echo").arg("again").run().prints("again\n");
}

#[test]
fn the_last_task_takes_the_server_down() {
    let short = WorkDir::short();
    let job = job();
    let start =
        |script: &str| exec(&job, "bash").args(["-c", script]).env("XDG_RUNTIME_DIR", short.path());
    let mut first = start("echo up; read -t 60 < <(sleep 0.5); exit 0").spawn();
    first.wait_for_word("up");
    let dir = short.join("nagaya");
    let data = fs::metadata(&dir).expect("the socket directory");
    assert_eq!(data.permissions().mode() & 0o777, 0o700);
    assert_eq!(data.uid(), rustix::process::geteuid().as_raw());
    assert_eq!(sockets(&dir).len(), 1);
    let task = ps(|command| command.env("XDG_RUNTIME_DIR", short.path())).remove(0);
    let server = server_of(&task);
    let second = start("echo up; exec sleep 1").spawn();
    first.wait().ok();
    second.wait().ok();
    wait_until("the server is gone", SOON, || !is_alive(server));
    assert_eq!(sockets(&dir), Vec::<PathBuf>::new());
}

#[test]
fn the_server_goes_too_when_its_directory_has_gone() {
    let runtime = WorkDir::short();
    let job = job();
    let task = exec(&job, "sleep").arg("600").env("XDG_RUNTIME_DIR", runtime.path()).spawn();
    let tasks = || ps(|command| command.env("XDG_RUNTIME_DIR", runtime.path()));
    wait_until("the task runs", SOON, || tasks().len() == 1);
    let server = server_of(&tasks()[0]);
    fs::remove_dir_all(runtime.join("nagaya")).expect("remove");
    drop(task);
    wait_until("the server is gone", SOON, || !is_alive(server));
}

#[test]
fn a_stale_socket_does_not_hinder_the_next_job() {
    let job = job();
    let running = sleeper(&job);
    let server = server_of(&tasks_of(&job)[0]);
    nagaya_tests::kill(server, Signal::KILL);
    let _ = running.wait();
    for _ in 0..3 {
        exec(&job, "echo").arg("works").run().prints("works\n");
    }
}

/// Sockets and lock files that killed servers have left go with the next start of any job.
#[test]
fn what_killed_servers_leave_is_swept() {
    let runtime = WorkDir::short();
    let dir = runtime.join("nagaya");
    let here = |command: Cmd| command.env("XDG_RUNTIME_DIR", runtime.path());
    let names = || -> Vec<_> {
        let entries = fs::read_dir(&dir).expect("the directory").flatten();
        entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect()
    };
    let tasks = || ps(here);
    // A job of a launcher, and a run.
    let by_exec = here(exec(&job(), "sleep").arg("600")).spawn();
    let by_run = here(nagaya("run").args(["sleep", "600"])).spawn();
    wait_until("both run", SOON, || tasks().len() == 2);
    let servers: Vec<i32> = tasks().iter().map(server_of).collect();
    assert_eq!(sockets(&dir).len(), 2);
    servers.iter().for_each(|&server| nagaya_tests::kill(server, Signal::KILL));
    let (_, _) = (by_exec.wait(), by_run.wait());
    assert_eq!(sockets(&dir).len(), 2, "killed servers leave their sockets");
    let last = here(exec(&job(), "sleep").arg("600")).spawn();
    wait_until("the next job runs", SOON, || tasks().len() == 1);
    assert_eq!(sockets(&dir).len(), 1, "{:?}", names());
    assert_eq!(names().len(), 2, "its socket and its lock: {:?}", names());
    // A run sweeps, too, and leaves the living job alone.
    let server = server_of(&tasks()[0]);
    let other = here(exec(&job(), "sleep").arg("600")).spawn();
    wait_until("the other job runs", SOON, || tasks().len() == 2);
    nagaya_tests::kill(server, Signal::KILL);
    let _ = last.wait();
    here(nagaya("run").args(["echo", "ran"])).run().prints("ran\n");
    assert_eq!(names().len(), 2, "{:?}", names());
    assert_eq!(tasks().len(), 1);
    drop(other);
}

#[test]
fn tools_name_a_stopped_server_and_show_the_others() {
    let runtime = WorkDir::short();
    let (stopped, alive) = (job(), job());
    let here = |command: Cmd| command.env("XDG_RUNTIME_DIR", runtime.path());
    let start = |job: &str| here(exec(job, "sleep").arg("600")).spawn();
    let _tasks = (start(&stopped), start(&alive));
    let tasks = || ps(here);
    wait_until("both run", SOON, || tasks().len() == 2);
    let task = tasks().into_iter().find(|task| task.job == stopped).expect("listed");
    let server = server_of(&task);
    nagaya_tests::kill(server, Signal::STOP);
    let words = ["does not answer", &format!("kill -CONT {server}")];
    let output = here(nagaya("ps").arg("--parsable")).run();
    assert_eq!(output.code(), 125, "{output}");
    output.one_line(&words);
    assert!(output.stdout.starts_with(&alive) && output.stdout.lines().count() == 1, "{output}");
    here(nagaya("maps").arg(&stopped)).run().refused(125, &words);
    nagaya_tests::kill(server, Signal::CONT);
    assert_eq!(tasks().len(), 2);
}

#[test]
fn signals_end_a_stub_that_waits_for_a_stopped_server() {
    let job = job();
    let mut first = sleeper(&job);
    let server = server_of(&tasks_of(&job)[0]);
    nagaya_tests::kill(server, Signal::STOP);
    // The first waits for the server, and the others for its lock.
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    let waiting: Vec<_> =
        signals.iter().map(|&signal| (signal, exec(&job, "echo").arg("ran").spawn())).collect();
    let blocks_signals = |pid: i32| {
        let mask = proc_status(pid, "SigBlk").and_then(|it| u64::from_str_radix(&it, 16).ok());
        mask.is_some_and(|mask| mask >> (Signal::TERM.as_raw() - 1) & 1 == 1)
    };
    for (signal, stub) in waiting {
        wait_until("the stub waits", SOON, || blocks_signals(stub.pid()));
        stub.signal(signal);
        let output = stub.wait();
        assert_eq!(output.signal(), Some(signal.as_raw()), "{output}");
        output.one_line(&["node server", "stopped"]);
    }
    // A signal that a program ignores does not end the wait, nor does one that it blocks.
    let ignores = "trap '' INT; exec \"$@\"";
    let command = exec(&job, "echo").arg("ran");
    let ignoring = Cmd::new("bash").args(["-c", ignores, "bash"]).command(command).spawn();
    wait_until("the stub waits", SOON, || blocks_signals(ignoring.pid()));
    ignoring.signal(Signal::INT);
    nagaya_tests::kill(server, Signal::CONT);
    ignoring.wait().prints("ran\n");
    assert!(first.is_running());
}

#[test]
fn a_client_of_a_dying_server_starts_the_next_one() {
    let runtime = WorkDir::short();
    let job = job();
    let echo = || exec(&job, "echo").arg("works").env("XDG_RUNTIME_DIR", runtime.path());
    let dir = runtime.join("nagaya");
    let first = exec(&job, "sleep").arg("600").env("XDG_RUNTIME_DIR", runtime.path()).spawn();
    let tasks = || ps(|command| command.env("XDG_RUNTIME_DIR", runtime.path()));
    wait_until("the task runs", SOON, || tasks().len() == 1);
    let socket = sockets(&dir).remove(0);
    nagaya_tests::kill(server_of(&tasks()[0]), Signal::KILL);
    let _ = first.wait();
    // As the kernel does when it takes a process apart: connections end before they are refused.
    fs::remove_file(&socket).expect("remove the socket");
    let listener = UnixListener::bind(&socket).expect("listen");
    let dying = std::thread::spawn(move || {
        for _ in 0..3 {
            drop(listener.accept());
        }
    });
    echo().run().prints("works\n");
    dying.join().expect("the dying server");
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    let short = WorkDir::short();
    let dir = short.join("nagaya");
    fs::create_dir(&dir).expect("make a directory");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    let output = exec(&job(), "true").env("XDG_RUNTIME_DIR", short.path()).run();
    if output.code() == 0 {
        // Then it has been made private first.
        let mode = fs::metadata(&dir).expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{output}");
    } else {
        output.refused(125, &["nagaya"]);
    }
    // Somebody else's is worse.
    if rustix::process::geteuid().is_root() {
        let short = WorkDir::short();
        let dir = short.join("nagaya");
        fs::create_dir(&dir).expect("make a directory");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("chmod");
        std::os::unix::fs::chown(&dir, Some(65534), None).expect("chown");
        let output = exec(&job(), "true").env("XDG_RUNTIME_DIR", short.path()).run();
        output.refused(125, &["nagaya"]);
    } else {
        nagaya_tests::skip("only root can make a directory of somebody else's");
    }
}

#[test]
fn another_user_is_kept_out() {
    if !rustix::process::geteuid().is_root() {
        nagaya_tests::skip("only root can be two users");
        return;
    }
    let job = job();
    let program = program::c_pvas("print_task.c");
    let mut mine = exec(&job, &program).arg("stay").spawn();
    let owner = mine.wait_for_lines(1)[0].split("owner ").nth(1).map(str::to_owned);
    // The same job name for the user nobody: another directory, another space.
    let as_nobody = |command: Cmd| {
        let options = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        Cmd::new("setpriv").args(options).command(command).env_remove("XDG_RUNTIME_DIR")
    };
    let readable = WorkDir::short();
    let open = |name: &str, from: &std::path::Path| {
        let path = readable.join(name);
        nagaya_tests::copy_program(from, &path);
        path
    };
    let (nagaya, who) = (open("nagaya", &nagaya_tests::nagaya_path()), program::c("print_user.c"));
    let who = open("uid", &who);
    let output = as_nobody(Cmd::new(&nagaya).args(["exec", "--job", &job]).arg(&who)).run();
    assert_eq!(output.clone().ok(), "65534\n", "{output}");
    let listed = as_nobody(Cmd::new(&nagaya).args(["ps", "--parsable"])).run();
    assert!(!listed.clone().ok().contains(&job), "{listed}");
    // Even with our directory in its environment.
    let output = as_nobody(Cmd::new(&nagaya).args(["exec", "--job", &job]).arg(&who))
        .env("XDG_RUNTIME_DIR", runtime_dir())
        .run();
    assert_eq!(output.code(), 125, "{output}");
    assert!(mine.is_running() && owner.is_some());
}

#[test]
fn many_stubs_start_at_once() {
    let job = job();
    let program = program::c_pvas("print_task.c");
    let running: Vec<_> = (0..24).map(|_| exec(&job, &program).arg("briefly").spawn()).collect();
    let mut ids: Vec<String> = running
        .into_iter()
        .map(|stub| stub.wait().ok().split(" of ").next().expect("split").to_owned())
        .collect();
    assert_eq!(ids.len(), 24);
    ids.sort_unstable();
    ids.dedup();
    // Those that lived at once had different IDs; some may have ended before others began.
    assert!(ids.len() > 4, "{ids:?}");
}

#[test]
fn jobs_start_and_end_in_quick_succession() {
    // The last task of one server and the first of the next meet.
    let job = job();
    let running: Vec<_> = (0..3)
        .map(|_| {
            let (job, nagaya) = (job.clone(), nagaya_tests::nagaya_path());
            let script = "for i in $(seq 25); do \"$0\" exec --job \"$1\" echo $i || exit 1; done";
            Cmd::new("bash").args(["-c", script]).arg(nagaya).arg(job).spawn()
        })
        .collect();
    let wanted: String = (1..=25).map(|i| format!("{i}\n")).collect();
    for loops in running {
        let output = loops.wait();
        assert_eq!(output.stderr, "", "{output}");
        output.prints(&wanted);
    }
}

#[test]
fn a_program_that_cannot_be_a_task_falls_back_on_request() {
    let dir = WorkDir::new();
    let plain =
        dir.write_executable("set-id", fs::read(program::c("print_user.c")).expect("read it"));
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o4755)).expect("chmod");
    let wanted = format!("{}\n", rustix::process::geteuid().as_raw());
    nagaya("exec").args(["--job", &job()]).arg(&plain).run().refused(126, &["set-user-ID"]);
    let output = nagaya("exec").args(["--job", &job(), "--fallback"]).arg(&plain).run();
    output.one_line(&["set-user-ID"]);
    output.prints(&wanted);
    let by_variable =
        nagaya("exec").args(["--job", &job()]).arg(&plain).env("NAGAYA_FALLBACK", "1").run();
    by_variable.prints(&wanted);
    // A program that does not exist fails in both ways.
    let missing = nagaya("exec").args(["--fallback", "/nonexistent/program"]).run();
    assert_eq!(missing.code(), 127, "{missing}");
}

#[test]
fn verbose_reports_each_step() {
    let output = nagaya("exec").args(["--job", &job(), "-v", "echo", "x"]).run();
    assert!(output.stderr.contains("nagaya"), "{output}");
    output.prints("x\n");
}

#[test]
fn the_segment_size_holds_for_the_job() {
    let job = job();
    let program = program::c_pvas("print_task.c");
    let mut first = nagaya("exec")
        .args(["--job", &job, "--segment-size", "4G"])
        .arg(&program)
        .arg("stay")
        .spawn();
    assert!(first.wait_for_lines(1)[0].contains("segments of 4294967296"));
    assert!(exec(&job, &program).run().ok().contains("segments of 4294967296"));
    let other = self::job();
    let output = exec(&other, &program).env("PVAS_SEGMENT_SIZE", "1G").run();
    assert!(output.clone().ok().contains("segments of 1073741824"), "{output}");
}

#[test]
fn a_task_may_start_nagaya_itself() {
    // For example in a script; the inner one is a separate job.
    let nagaya = nagaya_tests::nagaya_path();
    let script = "\"$0\" run -n 2 echo inner; \"$0\" exec --job \"$1\" echo executed";
    let output = exec(&job(), "bash").args(["-c", script]).arg(&nagaya).arg(job()).run();
    output.prints("inner\ninner\nexecuted\n");
}

#[test]
fn a_stopped_server_delays_no_question_about_another_job() {
    let (stopped, other) = (job(), job());
    let (first, second) = (sleeper(&stopped), sleeper(&other));
    let server = server_of(&tasks_of(&stopped)[0]);
    kill(server, Signal::STOP);
    let begin = Instant::now();
    let tasks = nagaya("ps").args(["--parsable", "--job", &other]).run();
    let time = begin.elapsed();
    kill(server, Signal::CONT);
    assert_eq!(tasks.ok().lines().count(), 1);
    assert!(time < Duration::from_secs(5), "it took {time:?}");
    for running in [first, second] {
        running.signal(Signal::TERM);
        running.wait();
    }
}
