//! `nagaya span`: the program as a process, for itself and for others: its file, its command line
//! and its name. It can execute itself.

use std::path::{Path, PathBuf};

use nagaya_tests::span::{program, span};
use nagaya_tests::{Cmd, WorkDir, kill};

/// A separate copy, which the program may delete. cp has ended when it is executed.
fn copy(work: &WorkDir) -> PathBuf {
    let path = work.path().join("itself");
    Cmd::new("cp").arg(program("itself", &[])).arg(&path).run().ok();
    path
}

#[test]
fn a_program_sees_itself_by_every_call() {
    let itself = program("itself", &[]);
    for how in ["execve", "execveat"] {
        let alone = Cmd::new(&itself).args([how, "two words"]).run();
        assert!(alone.stdout.ends_with("right\n"), "{alone}");
        for nodes in [1, 2, 3] {
            span(nodes, &itself).args([how, "two words"]).run().prints(&alone.stdout);
        }
    }
}

#[test]
fn a_program_that_has_been_deleted_sees_and_executes_itself() {
    let work = WorkDir::new();
    let alone = Cmd::new(copy(&work)).arg("delete").run();
    assert!(alone.stdout.ends_with("right\n"), "{alone}");
    for nodes in [1, 2] {
        span(nodes, copy(&work)).arg("delete").run().prints(&alone.stdout);
    }
}

/// Such children are separate processes, for which the kernel's link leads to nagaya.
#[test]
fn children_of_all_kinds_execute_the_program_by_its_link() {
    let itself = program("itself", &[]);
    let alone = Cmd::new(&itself).arg("children").run();
    assert!(alone.stdout.ends_with("right\n"), "{alone}");
    for nodes in [1, 2] {
        span(nodes, &itself).arg("children").run().prints(&alone.stdout);
    }
}

/// A signal that faults have, too, and for which there is no handler.
#[test]
fn a_program_that_sends_itself_sigsegv_ends_by_it() {
    let itself = program("itself", &[]);
    for nodes in [1, 2] {
        let output = span(nodes, &itself).arg("raise").run();
        assert_eq!(output.signal(), Some(libc::SIGSEGV), "{nodes} nodes: {output}");
    }
}

/// As ps, pgrep and top do.
#[test]
fn others_see_the_program_s_command_line_and_name() {
    let shell = Path::new("/bin/sh");
    for nodes in [1, 2] {
        let script = "echo $$; while :; do sleep 0.1; done";
        let mut job = span(nodes, shell).args(["-c", script, "zero", "a b"]).spawn();
        let id = job.wait_for_lines(1).remove(0);
        let read = |what: &str| std::fs::read_to_string(format!("/proc/{id}/{what}"));
        assert_eq!(read("cmdline").unwrap(), format!("/bin/sh\0-c\0{script}\0zero\0a b\0"));
        assert_eq!(read("comm").unwrap(), "sh\n");
        kill(id.parse().unwrap(), rustix::process::Signal::TERM);
        let _ = job.wait();
    }
}
