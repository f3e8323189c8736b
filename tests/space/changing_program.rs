//! A program's file cannot be written to while tasks run it, as with a process. Where that cannot
//! be ensured, a change of the file while a task of it starts harms no other task.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use nagaya_tests::{
    Cmd, Output, WorkDir, exec, job, kernel_text, nagaya, proc_status, program, tasks_of,
    wait_until,
};
use rustix::process::Signal;

/// Time in which a start that was seen reaches its next step.
const SOON: Duration = nagaya_tests::TIME_LIMIT;

/// Opens a program for writing in a process of its own. A process that another test forks at that
/// moment would inherit a descriptor of this one.
fn open(path: &Path) -> Output {
    Cmd::new("sh").args(["-c", ": >>\"$1\"", "sh"]).arg(path).run()
}

/// Returns true if the kernel refuses to open the program for writing.
fn is_busy(path: &Path) -> bool {
    let output = open(path);
    assert!(output.status.success() || output.stderr.contains("Text file busy"), "{output}");
    !output.status.success()
}

/// A copy of sleep(1) in a directory.
fn sleep_in(work: &WorkDir) -> std::path::PathBuf {
    let path = work.join("sleeps");
    nagaya_tests::copy_program(&nagaya_tests::tool("sleep"), &path);
    path
}

#[test]
fn the_program_of_running_tasks_is_busy() {
    let work = WorkDir::new();
    let path = sleep_in(&work);
    let plain = Cmd::new(&path).arg("600").spawn();
    wait_until("the process runs", SOON, || is_busy(&path));
    drop(plain);
    wait_until("the process has ended", SOON, || !is_busy(&path));
    let job = job();
    let tasks: Vec<_> = (0..2).map(|_| exec(&job, &path).arg("600").spawn()).collect();
    wait_until("both tasks run", SOON, || tasks_of(&job).len() == 2);
    assert!(is_busy(&path));
    let plain = Cmd::new("cp").arg(nagaya_tests::tool("true")).arg(&path).run();
    assert!(plain.stderr.contains("Text file busy"), "{plain}");
    // Until the last has ended.
    tasks[0].signal(Signal::TERM);
    wait_until("one task has ended", SOON, || tasks_of(&job).len() == 1);
    assert!(is_busy(&path));
    drop(tasks);
    wait_until("the file is free", SOON, || !is_busy(&path));
    // Also with the server that was killed, and with nagaya run.
    let run = nagaya("run").arg(&path).arg("600").spawn();
    wait_until("the task runs", SOON, || is_busy(&path));
    run.signal(Signal::KILL);
    let _ = run.wait();
    wait_until("the file is free", SOON, || !is_busy(&path));
}

#[test]
fn a_script_s_interpreter_is_busy_and_the_script_is_not() {
    let work = WorkDir::new();
    let interpreter = work.join("interpreter");
    nagaya_tests::copy_program(&nagaya_tests::tool("bash"), &interpreter);
    let text = format!("#!{}\necho up; while :; do sleep 0.05; done\n", interpreter.display());
    let script = work.write_executable("script", text);
    let mut task = exec(&job(), &script).spawn();
    task.wait_for_word("up");
    assert!(is_busy(&interpreter));
    assert!(!is_busy(&script));
}

#[test]
fn a_program_that_is_open_for_writing_is_refused() {
    let work = WorkDir::new();
    let path = sleep_in(&work);
    let script = "exec 3>>\"$1\"; echo up; sleep 600";
    let mut writer = Cmd::new("sh").args(["-c", script, "sh"]).arg(&path).spawn();
    writer.wait_for_word("up");
    for command in [exec(&job(), &path), nagaya("run").arg(&path)] {
        command.arg("0").run().refused(126, &["sleeps", "Text file busy"]);
    }
    drop(writer);
    exec(&job(), &path).arg("0").run().prints("");
}

/// A command under a filter that forbids ptrace(2), by which the server keeps programs busy.
fn unprotected(command: Cmd) -> Cmd {
    let filter = program::c("run_under_seccomp.c");
    Cmd::new(filter).args(["ptrace=EPERM", "--"]).command(command)
}

#[test]
fn where_ptrace_is_forbidden_programs_run_unprotected() {
    let work = WorkDir::new();
    let path = sleep_in(&work);
    let job = job();
    let task = unprotected(exec(&job, &path).arg("600")).spawn();
    wait_until("the task runs", SOON, || tasks_of(&job).len() == 1);
    assert!(!is_busy(&path));
    drop(task);
}

/// The server reads the program's text when it is truncated. This hits another step at times, so
/// it is tried until it has hit this one.
#[test]
fn a_program_that_is_truncated_while_it_is_loaded_fails_alone() {
    const TRIES: usize = 50;
    let job = job();
    let script = "echo up; while :; do sleep 0.05; done";
    let mut neighbour = unprotected(exec(&job, "bash").args(["-c", script])).spawn();
    neighbour.wait_for_word("up");
    let task = tasks_of(&job)[0].pid;
    let server = proc_status(task, "PPid").expect("the task's parent");
    let work = WorkDir::new();
    for attempt in 0..TRIES {
        let name = format!("/changing-{attempt}");
        let path = work.join(&name[1..]);
        fs::copy(program::c("big_text.c"), &path).expect("copy the program");
        let mut start = unprotected(exec(&job, &path)).spawn();
        let begin = Instant::now();
        let is_mapped = || {
            let maps = kernel_text(format!("/proc/{server}/maps")).unwrap_or_default();
            maps.contains(&name)
        };
        while !is_mapped() && start.is_running() {
            assert!(begin.elapsed() < SOON, "the program is not loaded");
        }
        let file = File::options().write(true).open(&path).expect("open the program");
        file.set_len(0).expect("truncate the program");
        let output = start.wait();
        fs::remove_file(&path).expect("remove the program");
        assert!(neighbour.is_running(), "{output}\n{}", neighbour.wait());
        // It may have started before, and then it runs or dies.
        if output.code() == 126 {
            output.refused(126, &[&name, "truncated"]);
            assert_eq!(tasks_of(&job).len(), 1);
            return;
        }
    }
    panic!("no start of {TRIES} was hit");
}
