//! `nagaya exec` passes on everything that a process inherits. The program `inherited` prints it
//! all. Its output as a task must equal its output as an ordinary process that was started in the
//! same way.

use std::path::{Path, PathBuf};

use nagaya_tests::{Cmd, Output, WorkDir, exec, job, program, task};

/// Runs a shell script whose last line runs `inherited` by `"$@"`, as a process and as a task.
struct Pair {
    plain: Output,
    as_task: Output,
}

/// The lines that begin with `word`.
fn lines<'a>(output: &'a Output, word: &str) -> Vec<&'a str> {
    output.stdout.lines().filter(|line| line.starts_with(word)).collect()
}

impl Pair {
    fn run(script: &str, arguments: &[&str]) -> Self {
        let program = program::c("inherited.c");
        let shell = |inner: Cmd| {
            let arguments = inner.args(arguments);
            Cmd::new("bash").args(["-c", script, "bash"]).command(arguments)
        };
        let plain = shell(Cmd::new(&program)).run();
        let as_task = shell(exec(&job(), &program)).run();
        assert!(plain.status.success(), "{plain}");
        assert!(as_task.status.success(), "{as_task}");
        Self { plain, as_task }
    }

    /// Lines that begin with this word are the same, and contain all of `wanted`.
    #[track_caller]
    fn same(&self, word: &str, wanted: &[&str]) {
        let (plain, as_task) = (lines(&self.plain, word), lines(&self.as_task, word));
        assert_eq!(plain, as_task, "{word} as a process and as a task differ");
        for needle in wanted {
            assert!(plain.iter().any(|line| line.contains(needle)), "no {needle}: {plain:?}");
        }
    }
}

#[test]
fn arguments_and_environment() {
    let pair = Pair::run(
        "export ODD='two\nlines' EMPTY= EQUALS=a=b; unset LANG; exec \"$@\"",
        &["", "a b", "-n", "--help", "*", "\u{e9}"],
    );
    pair.same("argument 1", &[""]);
    pair.same("argument", &["--help", "a b", "\u{e9}"]);
    // Bash's own count of the arguments before differs by none.
    let ignored = |line: &&str| !line.starts_with("environment: _=");
    let environment = |output| -> Vec<String> {
        lines(output, "environment").into_iter().filter(ignored).map(str::to_owned).collect()
    };
    assert_eq!(environment(&pair.plain), environment(&pair.as_task));
    assert!(environment(&pair.plain).iter().any(|line| line == "environment: EQUALS=a=b"));
}

#[test]
fn descriptors_at_their_odd_numbers() {
    let dir = WorkDir::new();
    let file = dir.write("file", "0123456789");
    let script = format!(
        "exec 3<{file} 17>>{file} 200<>{file} 9</dev/null; read -N 4 -u 3 x; exec 5<&3; exec \"$@\"",
        file = file.display()
    );
    let program = program::c("inherited.c");
    let run = |inner: Cmd| Cmd::new("bash").args(["-c", &script, "bash"]).command(inner).run();
    let descriptors = |output: &Output| -> Vec<String> {
        // The streams are files of each run's own.
        let keep = |line: &&str| !["0:", "1:", "2:"].iter().any(|n| line[11..].starts_with(n));
        lines(output, "descriptor").into_iter().filter(keep).map(str::to_owned).collect()
    };
    let (plain, as_task) = (run(Cmd::new(&program)), run(exec(&job(), &program)));
    assert_eq!(descriptors(&plain), descriptors(&as_task), "{plain}{as_task}");
    for number in [3, 5, 9, 17, 200] {
        assert!(as_task.stdout.contains(&format!("\ndescriptor {number}: ")), "{as_task}");
    }
    // A pipe and a socket are inherited, too: written data arrive.
    let script = "exec 41> >(cat); cat=$!; \"$@\"; exec 41>&-; wait $cat";
    let writes = |inner: Cmd| Cmd::new("bash").args(["-c", script, "bash"]).command(inner);
    let inner = exec(&job(), "bash").args(["-c", "echo through the pipe >&41"]);
    writes(inner).run().prints("through the pipe\n");
}

#[test]
fn a_thousand_descriptors() {
    let script = "ulimit -n 4096; for ((fd = 3; fd < 1000; fd++)); do eval \"exec $fd</dev/null\"; \
                  done; exec \"$@\"";
    let pair = Pair::run(script, &[]);
    assert_eq!(lines(&pair.plain, "descriptor").len(), 1000);
    let numbers = |output: &Output| -> Vec<String> {
        let number = |line: &str| line.split(':').next().expect("split").to_owned();
        lines(output, "descriptor").into_iter().map(number).collect()
    };
    assert_eq!(numbers(&pair.plain), numbers(&pair.as_task));
}

#[test]
fn closed_standard_streams_stay_closed() {
    let dir = WorkDir::new();
    let log = dir.join("log");
    let script = "exec <&- 2>&-; exec \"$@\" >\"$0\"";
    let program = program::c("inherited.c");
    let run = |inner: Cmd| -> Vec<String> {
        Cmd::new("bash").args(["-c", script]).arg(&log).command(inner).run().ok();
        let text = std::fs::read_to_string(&log).expect("read");
        let number = |line: &str| line.split(':').next().expect("split").to_owned();
        text.lines().filter(|line| line.starts_with("descriptor")).map(number).collect()
    };
    let (plain, as_task) = (run(Cmd::new(&program)), run(exec(&job(), &program)));
    assert_eq!(plain, as_task);
    let has = |name: &str| as_task.iter().any(|line| line == name);
    assert!(!has("descriptor 0") && has("descriptor 1") && !has("descriptor 2"), "{as_task:?}");
}

#[test]
fn directory_umask_limits_affinity_and_niceness() {
    let script = "cd /usr/lib; umask 027; ulimit -n 4321; ulimit -c 0; ulimit -s 12345; \
                  ulimit -u 5000; ulimit -f 1000000; ulimit -t 1000; ulimit -l 64; \
                  exec nice -n 7 taskset -c 0 \"$@\"";
    let pair = Pair::run(script, &[]);
    pair.same("directory", &["/usr/lib"]);
    pair.same("umask", &["27"]);
    pair.same("limit", &["10e1 10e1"]);
    pair.same("processor", &["0"]);
    pair.same("nice", &["7"]);
}

#[test]
fn signals_that_are_ignored_or_blocked() {
    let script = "trap '' USR1 PIPE INT CHLD 40; exec \"$@\"";
    let pair = Pair::run(script, &[]);
    pair.same("SigIgn", &[]);
    pair.same("handler", &["handler 10: ignored", "handler 40: ignored", "handler 11: default"]);
    // Blocked ones; a shell cannot, perl can.
    let script = "exec perl -MPOSIX -e 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR2, SIGTERM, \
                  SIGSEGV)); exec @ARGV' \"$@\"";
    let pair = Pair::run(script, &[]);
    pair.same("SigBlk", &["SigBlk:\t0000000000004c00"]);
}

#[test]
fn group_session_user_capabilities_and_the_rest() {
    let pair = Pair::run("exec \"$@\"", &[]);
    for word in [
        "Uid",
        "Gid",
        "Groups",
        "Cap",
        "NoNewPrivs",
        "Seccomp",
        "timer slack",
        "personality",
        "oom_score_adj",
        "cgroup",
    ] {
        pair.same(word, &[]);
    }
    // A group and a session of each run's own: the task is in those of its stub.
    let script = "echo shell $$ $(ps -o pgid=,sid= -p $$ 2>/dev/null || cut -d' ' -f5,6 /proc/$$/stat); \
                  exec \"$@\"";
    let pair = Pair::run(script, &[]);
    for output in [&pair.plain, &pair.as_task] {
        let shell: Vec<_> = output.stdout.lines().next().expect("a line").split(' ').collect();
        let ids: Vec<_> = shell.into_iter().filter(|word| !word.is_empty()).skip(2).collect();
        assert_eq!(lines(output, "group"), [format!("group: {}", ids[0])], "{output}");
        assert_eq!(lines(output, "session"), [format!("session: {}", ids[1])], "{output}");
    }
    let script = "echo 500 > /proc/self/oom_score_adj; exec \"$@\"";
    Pair::run(script, &[]).same("oom_score_adj", &["500"]);
    let script = "exec setpriv --no-new-privs \"$@\"";
    Pair::run(script, &[]).same("NoNewPrivs", &["1"]);
}

#[test]
fn a_stub_in_a_group_of_its_own_has_its_task_there() {
    // Signals to the group reach the task, as job control requires.
    let mut running = exec(&job(), "sh")
        .args(["-c", "trap 'echo caught; exit 9' USR1; echo up; while :; do sleep 0.05; done"])
        .spawn();
    running.wait_for_word("up");
    running.signal_group(rustix::process::Signal::USR1);
    let output = running.wait();
    assert!(output.stdout.contains("caught"), "{output}");
}

#[test]
fn nagaya_run_passes_them_on_as_well() {
    let program: PathBuf = program::c("inherited.c");
    let script = "cd /usr; umask 031; trap '' USR2; exec 77</dev/null; exec \"$@\"";
    let run = |inner: Cmd| Cmd::new("bash").args(["-c", script, "bash"]).command(inner).run();
    let (plain, as_task) = (run(Cmd::new(&program)), run(task(&program)));
    for word in ["directory", "umask", "limit", "processor", "nice", "SigBlk", "SigIgn"] {
        assert_eq!(lines(&plain, word), lines(&as_task, word), "{as_task}");
    }
    assert!(as_task.stdout.contains("descriptor 77: "), "{as_task}");
    assert!(Path::new(&program).exists());
}
