//! Under small resource limits: a program runs, or one line names the limit that is too low.

use nagaya_tests::{Cmd, Output, nagaya};

/// A command under a limit of prlimit(1), such as `--nofile=8`. It inherits no descriptors
/// but the standard ones: one whose number is above the limit could not be passed on.
fn limited(limit: &str, command: Cmd) -> Cmd {
    let script = "for fd in $(ls /proc/self/fd); do [ $fd -lt 3 ] || eval \"exec $fd>&-\"; done; \
                  exec prlimit \"$0\" -- \"$@\"";
    Cmd::new("bash").args(["-c", script, limit]).command(command)
}

fn run() -> Cmd {
    nagaya("run").args(["echo", "ran"])
}

fn exec() -> Cmd {
    nagaya("exec").args(["echo", "ran"])
}

/// It ran, or said in one line why not.
#[track_caller]
fn runs_or_says_why(output: &Output, words: &[&str]) -> bool {
    if output.status.success() {
        assert_eq!(output.stdout, "ran\n", "{output}");
        return true;
    }
    output.clone().refused(output.code(), words);
    assert!([125, 126].contains(&output.code()), "{output}");
    false
}

#[test]
fn open_files() {
    for command in [run, exec] {
        let ran = |limit: usize| {
            let output = limited(&format!("--nofile={limit}"), command()).run();
            let why = if output.stderr.contains("ulimit -n") { "ulimit" } else { "open files" };
            runs_or_says_why(&output, &[why])
        };
        let first = (6..64).find(|&limit| ran(limit)).expect("64 open files are enough");
        assert!(first < 48, "needs {first} open files");
        assert!(ran(256));
    }
}

#[test]
fn address_space() {
    for command in [run, exec] {
        let ran = |mib: u64| {
            let output = limited(&format!("--as={}", mib << 20), command()).run();
            // There may be just enough for all but the program's own libraries: then its own
            // dynamic linker says so.
            let linker = "echo: error while loading shared libraries";
            if output.code() == 127 && output.stderr.starts_with(linker) {
                return false;
            }
            runs_or_says_why(&output, &["memory"])
        };
        // Below, not even nagaya itself can be loaded.
        let first = (12..128).step_by(4).find(|&mib| ran(mib)).expect("128 MiB are enough");
        assert!((16..96).contains(&first), "{first} MiB");
        assert!(ran(1024));
    }
}

#[test]
fn locked_memory_and_stacks_do_not_matter() {
    let stacks = ["--stack=unlimited", "--stack=65536", "--stack=66000"];
    for limit in ["--memlock=0", "--core=0", "--fsize=0"].into_iter().chain(stacks) {
        for command in [run, exec] {
            // Standard output is a file.
            let command = if limit == "--fsize=0" {
                Cmd::new("sh").args(["-c", "\"$@\" | cat", "sh"]).command(limited(limit, command()))
            } else {
                limited(limit, command())
            };
            let output = command.run();
            assert!(output.status.success() && output.stdout == "ran\n", "{limit}: {output}");
        }
    }
}

#[test]
fn many_tasks_beyond_the_limit_of_open_files_end_in_one_line() {
    let output = limited("--nofile=40", nagaya("run").args(["-n", "100", "sleep", "600"])).run();
    output.refused(125, &["ulimit -n"]);
}
