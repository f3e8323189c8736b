//! Under small resource limits: a program runs, or one line names the limit that is too low.

use nagaya_tests::program::c_with_libraries;
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

/// Not even nagaya can be loaded: the kernel ends it before its first instruction.
fn cannot_be_loaded(limit: &str, output: &Output) -> bool {
    output.signal().is_some() && limited(limit, nagaya("--version")).run().signal().is_some()
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
            let limit = format!("--as={}", mib << 20);
            let output = limited(&limit, command()).run();
            // The memory may suffice for all but the libraries of the program or Nagaya: then the
            // dynamic linker reports it.
            let is_linkers = ["error while loading shared libraries", "cannot allocate TLS data"]
                .iter()
                .any(|line| output.stderr.contains(line));
            if output.code() == 127 && is_linkers || cannot_be_loaded(&limit, &output) {
                return false;
            }
            runs_or_says_why(&output, &["memory"])
        };
        let first = (8..128).step_by(4).find(|&mib| ran(mib)).expect("128 MiB are enough");
        assert!((16..96).contains(&first), "{first} MiB");
        assert!(ran(1024));
    }
}

#[test]
fn locked_memory_and_stacks_do_not_matter() {
    // The last is no whole number of pages. To read the command line takes some 50 KB.
    let stacks = ["--stack=unlimited", "--stack=131072", "--stack=200000"];
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

/// Two nodes that share memory.
fn nodes(name: &str) -> Cmd {
    let program = c_with_libraries("dsm/limits.c", &["jia"]);
    nagaya("run").args(["--nodes", "2", "-n", "2"]).arg(program).arg(name)
}

/// They ran, or each of both said in a line which limit is too low.
#[track_caller]
fn shares_or_says_why(limit: &str, words: &str) -> bool {
    let output = limited(limit, nodes("nothing")).run();
    if output.status.success() {
        assert_eq!(output.stdout, "ran\n", "{limit}: {output}");
        return true;
    }
    let lines = || output.stderr.lines().filter(|line| !line.contains("was killed"));
    assert!((1..=2).contains(&lines().count()), "{limit}: {output}");
    // There may be just enough for all but the program's own libraries.
    let linker = "error while loading shared libraries";
    let is_clear = |line: &str| line.contains(words) || line.contains(linker);
    assert!(lines().all(is_clear) && output.code() != 134, "{limit}: {output}");
    false
}

#[test]
fn shared_memory_needs_some_open_files() {
    let ran = |limit: usize| shares_or_says_why(&format!("--nofile={limit}"), "open files");
    let first = (12..64).step_by(2).find(|&limit| ran(limit)).expect("64 open files are enough");
    assert!(first > 16, "{first} open files");
}

#[test]
fn shared_memory_needs_some_addresses() {
    // The limit applies to the runner, too.
    let ran = |mib: u64| shares_or_says_why(&format!("--as={}", mib << 20), "memory");
    let first = (40..240).step_by(10).find(|&mib| ran(mib)).expect("240 MiB are enough");
    assert!(first > 50, "{first} MiB");
}

#[test]
fn shared_memory_needs_no_locked_memory() {
    assert!(shares_or_says_why("--memlock=65536", ""));
    let output = limited("--memlock=0", nodes("nothing")).run();
    // UCX's libraries warn, where they know of network cards.
    assert!(output.status.success() && output.stdout == "ran\n", "{output}");
}

#[test]
fn a_limit_reached_while_sharing_memory_is_named() {
    for (name, words) in [
        ("addresses", "no memory for a page of the shared memory"),
        ("mappings", "raise vm.max_map_count"),
    ] {
        // Large messages, with pages that ride along, may find no memory before a page does; then
        // the process aborts.
        let output = nodes(name).env("NAGAYA_DSM_RIDES", "normal").run();
        assert_ne!(output.code(), 0, "{name}: {output}");
        let said = |line: &&str| !line.contains("was killed");
        let lines: Vec<_> = output.stderr.lines().filter(said).collect();
        assert_eq!(lines.len(), 1, "{name}: {output}");
        assert!(lines[0].starts_with("nagaya: ") && lines[0].contains(words), "{name}: {output}");
    }
}
