//! PVM's console: the same commands under stock PVM's and under Nagaya's, and Nagaya's extensions:
//! scripts, single commands, a terminal.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nagaya_tests::pvm::{HOSTS, Machine};
use nagaya_tests::{Cmd, Output, Running, WorkDir, job, kernel_text, nagaya_path};

/// Our virtual machine of one host. The first console starts it.
struct Ours {
    work: WorkDir,
    vmid: String,
}

impl Ours {
    fn new() -> Ours {
        Ours { work: WorkDir::short(), vmid: job() }
    }

    fn within(&self, command: Cmd) -> Cmd {
        command
            .dir(self.work.path())
            .env("HOME", self.work.path())
            .env("PVM_VMID", &self.vmid)
            .env("PVM_PATH", "/usr/bin")
            .env_remove("PVM_EXPORT")
            .env_remove("PVMSOCK")
    }

    fn console(&self, arguments: &[&str]) -> Cmd {
        self.within(Cmd::new(nagaya_path())).arg("pvm").args(arguments)
    }

    /// Runs a script.
    #[track_caller]
    fn script(&self, lines: &str) -> Output {
        self.console(&[]).stdin(lines).run()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.script("halt\n");
    }
}

/// A console that is typed at, line by line, as its prompts come.
struct Session {
    console: Running,
    keys: File,
    seen: usize,
}

/// Time limit for the end of a killed task; the machine may be busy.
const GONE_MAX: Duration = Duration::from_secs(30);

const PROMPT: &str = "pvm> ";

impl Session {
    /// `shell` runs a command line, in `dir`, that reads from `keys` there.
    fn begin(shell: Cmd, dir: &Path, line: &str) -> Session {
        Cmd::new("mkfifo").arg(dir.join("keys")).run().ok();
        let console = shell.arg("-c").arg(format!("exec {line} <keys")).spawn();
        let keys = OpenOptions::new().write(true).open(dir.join("keys")).expect("somebody reads");
        std::fs::remove_file(dir.join("keys")).expect("a name that we need no longer");
        let mut session = Session { console, keys, seen: 0 };
        session.until(PROMPT);
        session
    }

    fn keys(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).expect("the console reads");
    }

    /// Returns the output from here on up to `word`, inclusive.
    #[track_caller]
    fn until(&mut self, word: &str) -> String {
        let seen = self.seen;
        let text = self.console.wait_for(word, |text| text[seen..].contains(word));
        let end = seen + text[seen..].find(word).expect("found") + word.len();
        self.seen = end;
        text[seen..end].to_owned()
    }

    /// Returns the output of a line.
    #[track_caller]
    fn line(&mut self, line: &str) -> String {
        self.keys(&format!("{line}\n"));
        // Not the echo, which is not always where it should be: stock's errors are not buffered.
        let printed = self.until(PROMPT);
        let printed = printed.strip_suffix(PROMPT).expect("waited for it");
        printed.replacen(&format!("{line}\n"), "", 1)
    }
}

/// Normalizes differences between two virtual machines and two runs: tids are numbered in order of
/// appearance, the directory becomes `DIR`, PIDs become `PID`, and Nagaya's advice in parentheses
/// is removed.
struct Same {
    dir: String,
    tids: Vec<u32>,
}

impl Same {
    fn new(dir: &Path) -> Same {
        Same { dir: dir.to_str().expect("plain text").to_owned(), tids: Vec::new() }
    }

    fn text(&mut self, text: &str) -> String {
        let text = text.replace(&self.dir, "DIR");
        text.lines().map(|line| self.line(line) + "\n").collect()
    }

    fn line(&mut self, line: &str) -> String {
        let line = match line.rfind(" (") {
            Some(at) if line.ends_with(')') && !line.contains("(cons)") => &line[..at],
            _ => line,
        };
        let mut out = String::new();
        let mut word = String::new();
        for letter in line.trim_start().chars().chain(['\n']) {
            if letter.is_ascii_alphanumeric() {
                word.push(letter);
                continue;
            }
            out.push_str(&self.word(&word));
            word.clear();
            // Columns are as wide as their content.
            if !(letter == ' ' && out.ends_with(' ')) && letter != '\n' {
                out.push(letter);
            }
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        let digits = word.strip_prefix("0x").or(word.strip_prefix('t')).unwrap_or(word);
        let hexadecimal = u32::from_str_radix(digits, 16).ok();
        let decimal = word.parse().ok();
        let tid = |tid: &u32| (0x40001..0x7ffff).contains(tid) && *tid < 0x4f000;
        if let Some(tid) = hexadecimal.filter(tid).or(decimal.filter(tid)) {
            let at = self.tids.iter().position(|known| *known == tid).unwrap_or_else(|| {
                self.tids.push(tid);
                self.tids.len() - 1
            });
            return format!("t{at}");
        }
        match decimal {
            // PIDs wrap around, and in a container they are small.
            Some(101..) => "PID".into(),
            _ => word.into(),
        }
    }
}

/// A program that prints, and lives for a while on request.
const TALKER: &str = "#!/bin/sh\necho one $1\nprintf part\necho ial\necho wrong >&2\n\
                      if [ -n \"$2\" ]; then exec sleep \"$2\"; fi\n";

/// Runs the lines one by one under both and compares what each prints. A line may be followed
/// by ` ~ ` and a word that is waited for before the next, or by ` until no ` and a word: then it
/// is repeated as long as that is printed.
#[track_caller]
fn same(lines: &[&str]) {
    let stock = Machine::stock(&[]);
    let ours = Ours::new();
    for dir in [stock.dir(), ours.work.path()] {
        nagaya_tests::write_program(&dir.join("talker"), TALKER);
    }
    let home = |dir: &Path, shell: Cmd| shell.env("HOME", dir);
    let mut consoles = [
        Session::begin(home(stock.dir(), stock.task("sh")), stock.dir(), "stdbuf -oL pvm"),
        Session::begin(
            ours.within(Cmd::new("sh")),
            ours.work.path(),
            &format!("{} pvm --echo -n {}", nagaya_path().display(), HOSTS[0]),
        ),
    ];
    let dirs = [stock.dir(), ours.work.path()];
    let mut sames = dirs.map(Same::new);
    for line in lines {
        let (line, gone) = line.split_once(" until no ").unwrap_or((line, ""));
        let (line, word) = line.split_once(" ~ ").unwrap_or((line, ""));
        let mut printed = Vec::new();
        for (console, same) in consoles.iter_mut().zip(&mut sames) {
            let line = line.replace("DIR", &same.dir).replace("HOST", HOSTS[0]);
            let mut text = console.line(&line);
            let begin = Instant::now();
            while !gone.is_empty() && text.contains(gone) {
                assert!(begin.elapsed() < GONE_MAX, "`{line}` still prints {gone}: {text}");
                text = console.line(&line);
            }
            if !word.is_empty() && !text.contains(word) {
                text.push_str(&console.until(word));
            }
            printed.push(same.text(&text));
        }
        assert_eq!(printed[0], printed[1], "after `{line}`: first stock PVM, then ours");
    }
    for mut console in consoles {
        drop(console.keys);
        console.console.wait_for_word("pvmd still running.\n");
        console.console.wait().ends_with(0);
    }
}

#[test]
fn words_aliases_and_variables() {
    same(&[
        r#"echo a  "b  c" 'd e' f\ g # rest"#,
        r#"echo $HOME "x"y\"z '#' a#b"#,
        "# a comment",
        "",
        "nosuch",
        "conf 1",
        "halt now",
        "alias",
        "alias e echo hello",
        "e world",
        "alias loop1 loop2 a",
        "alias loop2 loop1 b",
        "loop1",
        "alias echo echo -n",
        "echo hi",
        "unalias echo e",
        "alias",
        "unalias",
        "setenv NAGAYA_TEST two words",
        "setenv NAGAYA_TEST",
        "setenv NAGAYA_NONE",
        "export",
        "export NAGAYA_TEST OTHER",
        "export",
        "unexport NAGAYA_TEST",
        "export",
        "version",
        "id",
    ]);
}

#[test]
fn options_and_tracing() {
    same(&[
        "getopt",
        "getopt PvmRoute",
        "getopt Nope",
        "setopt PvmShowTids 0",
        "setopt PvmShowTids 1",
        "setopt Nope 3",
        "setopt PvmShowTids",
        "trace",
        "trace + send pvm_config",
        "trace",
        "trace - send * opt bogus",
        "trace",
        "trace nosuch",
        "trace opt",
        "trace opt time",
        "trace opt",
        "trace buf",
        "trace buf 100",
        "trace buf",
        "trace xpvm",
        "trace",
    ]);
}

#[test]
fn hosts_and_tasks_that_are_there_or_not() {
    same(&[
        "conf",
        "mstat HOST nohost",
        "mstat",
        "delete nohost",
        "ps",
        "ps -x",
        "ps -lx",
        "ps -ax",
        "ps -z",
        "ps -nnohost",
        "ps -nHOST -x",
        "ps -h80040000",
        "ps -h80080000",
        "pstat t4ffff 40001",
        "kill t4ffff",
        "kill -x t4ffff",
        "kill -c",
        "kill",
        "sig 15",
        "sig 15 t4ffff",
        "reset bar",
        "jobs",
        "jobs -l",
    ]);
}

#[test]
fn tasks_are_spawned_and_their_output_comes() {
    same(&[
        "spawn DIR/nosuch",
        "spawn -2 DIR/nosuch",
        "spawn -SUN4 DIR/talker",
        "spawn -nohost DIR/talker",
        "spawn ->",
        "spawn -3",
        "spawn -> DIR/talker a ~ [1] finished",
        "jobs",
        "spawn -> -. DIR/talker 'b c' ~ [2] finished",
        "spawn -> -LINUX64 DIR/talker x ~ [3] finished",
        "spawn -> --host=HOST DIR/talker y ~ [4] finished",
        "setopt PvmShowTids 0",
        "spawn -> DIR/talker a ~ [5] finished",
        "setopt PvmShowTids 1",
        "spawn ->DIR/out DIR/talker to-a-file ~ [6] finished",
        "spawn -> cat DIR/out ~ [7] finished",
        "spawn -> -:/usr pwd ~ [8] finished",
        "setenv NAGAYA_TEST 'it is there'",
        "export NAGAYA_TEST",
        "spawn -> sh -c 'echo $NAGAYA_TEST $PVM_EXPORT' ~ [9] finished",
        "spawn -> DIR/talker long 100 ~ wrong",
        "jobs",
        "jobs -l",
        "ps",
        "spawn sleep 100",
        "ps -a",
        // The console gets no notice of the end of a task whose output is not collected.
        "reset ~ [10] finished",
        "echo done",
        "ps until no sleep",
    ]);
}

/// Events of a trace file, and their descriptions, in order; without dates, and without times,
/// tids, addresses and buffers, of which nothing is known before.
fn events(trace: &str) -> Vec<String> {
    // Output comes beside calls in any order; stock PVM's library calls itself.
    let others = ["output", "mhf_invoke"];
    let is_other = |line: &str| others.iter().any(|name| line.contains(&format!("\"{name}(")));
    let unknown = |word: &str| {
        let digits = word.trim_matches(|letter: char| !letter.is_ascii_digit());
        digits.len() > 4 && digits.parse::<u32>().is_ok()
    };
    let masked = |line: &str| -> String {
        // The second and the microsecond of an event, of any number of digits.
        let is_time = |at: usize| line.starts_with('"') && [2, 3].contains(&at);
        let number = |(at, word): (usize, &str)| match is_time(at) || unknown(word) {
            true => "N".into(),
            false => word.to_owned(),
        };
        let words: Vec<String> = line.split(' ').enumerate().map(number).collect();
        match words[0].as_str() {
            "\"recv(1.1)\"" => [&words[..5], &words[6..]].concat().join(" "),
            "\"initsend(1.1)\"" | "\"endtask(0)\"" => words[..5].join(" "),
            _ => words.join(" "),
        }
    };
    let blocks = trace.split("\n\n").flat_map(|block| match block.starts_with('#') {
        true => vec![block],
        false => block.lines().collect(),
    });
    blocks.skip(3).filter(|line| !is_other(line)).map(masked).collect()
}

#[test]
fn calls_are_traced_into_a_file() {
    let program = nagaya_tests::program::c_pvm("pvm/calls.c", &[]);
    let search = [program.parent().expect("a directory")];
    let ours = format!("{} pvm --echo", nagaya_path().display());
    let machines =
        [(Machine::stock(&search), "stdbuf -oL pvm".to_owned()), (Machine::ours(&search), ours)];
    let traces = machines.map(|(machine, console)| {
        let mut session = Session::begin(machine.task("sh"), machine.dir(), &console);
        session.line("trace + send recv initsend pkint pkstr spawn mcast");
        let trace = machine.dir().join("trace");
        let name = program.file_name().and_then(|name| name.to_str()).expect("plain text");
        session.keys(&format!("spawn -@{} {name}\n", trace.display()));
        session.until("[1] finished\n");
        events(&std::fs::read_to_string(trace).expect("it has been written"))
    });
    let [stock, ours] = traces;
    assert!(stock.len() > 50, "{stock:#?}");
    assert_eq!(stock, ours);
}

#[test]
fn signals_end_tasks() {
    same(&[
        "spawn -> DIR/talker a 100 ~ wrong",
        "kill t40002 ~ [1] finished",
        "spawn -> DIR/talker a 100 ~ wrong",
        "sig 9 t40003 ~ [2] finished",
        "kill -c t40001",
        "ps",
    ]);
}

#[test]
fn mailboxes_are_listed() {
    same(&[
        "put box 1 7",
        "names",
        "put box 1 8",
        "names b*",
        "names nothing",
        "reset info",
        "names b*",
    ]);
}

#[test]
fn a_script_prints_the_output_of_its_commands_only() {
    let ours = Ours::new();
    let output = ours.script("# first\n\necho a\nnosuch\n\"open\nid x\necho b");
    assert_eq!(
        output.clone().ok(),
        "a\nnosuch: not found (line 4; help lists the commands)\n\
         unmatched \" (line 5; quote it with \\)\nid: wrong #args (line 6; help id)\nb\n"
    );
    assert_eq!(output.stderr, "");
}

#[test]
fn a_script_waits_for_the_output_it_has_asked_for() {
    let ours = Ours::new();
    let output = ours.script("spawn -> sh -c 'sleep 0.3; echo done'\n").ok();
    assert!(output.contains("] done\n") && output.ends_with("[1] finished\n"), "{output}");
}

#[test]
fn single_commands_have_a_status() {
    let ours = Ours::new();
    ours.console(&["-c", "echo a", "-c", "echo b"]).run().prints("a\nb\n");
    let output = ours.console(&["-c", "mstat nohost", "-c", "echo b"]).run().ends_with(1);
    assert_eq!(output.stdout, "                  nohost  No such host\nb\n");
    ours.console(&["-c", "nosuch"]).run().ends_with(1);
    ours.console(&["-c", "quit", "-c", "nosuch"]).run().ends_with(0);
}

#[test]
fn wrong_words_get_one_line_each_and_the_rest_goes_on() {
    let ours = Ours::new();
    for (line, what) in [
        ("kill zz", "kill: \"zz\" is no task id; ps -a lists them"),
        ("pstat t-1", "pstat: \"t-1\" is no task id; ps -a lists them"),
        ("sig KILL t40001", "sig: \"KILL\" is no number of a signal; 15 is SIGTERM, 9 SIGKILL"),
        ("sig 65 t40001", "sig: \"65\" is no number of a signal; 15 is SIGTERM, 9 SIGKILL"),
        ("ps -hx", "ps: \"x\" is no task id of a pvmd; conf lists them as DTID"),
        ("setopt PvmRoute x", "setopt: \"x\" is no number"),
        ("tickle x", "tickle: \"x\" is no number (help tickle)"),
        ("trace buf x", "trace buf: how many bytes? (help trace)"),
        ("help x", "help: no command x; help lists them"),
        ("jobs -x", "jobs: unknown option -x (help jobs)"),
        ("put a b", "put: flags and number are decimal numbers (help put)"),
        ("setenv a=b c", "setenv: \"a=b\" is no name of a variable"),
        ("spawn ->/no/such/o a", "spawn: /no/such/o: No such file or directory (os error 2)"),
    ] {
        let output = ours.script(&format!("{line}\necho on\n"));
        assert_eq!(output.stderr, format!("pvm: line 1: {what}\n"), "{output}");
        assert_eq!(output.ok(), "on\n");
    }
    let output = ours.script("spawn -0 a\nspawn -% a\nkill -c\n").ok();
    assert_eq!(
        output,
        "-0: not a valid number of tasks (line 1; help spawn)\n\
         unknown option -% (line 2; help spawn)\nincorrect arg count (line 3; help kill)\n"
    );
    let output = ours.console(&[]).stdin(b"echo a\n\xff\n".as_slice()).run();
    assert_eq!(output.stderr, "pvm: line 2: the line is not UTF-8\n");
}

#[test]
fn the_users_file_is_read_first() {
    let ours = Ours::new();
    ours.work.write(".pvmrc", "# mine\nalias j jobs\nalias hi echo hello\nwrong\n");
    let place = ours.work.join(".pvmrc").display().to_string();
    let wrong = format!("wrong: not found ({place}:4; help lists the commands)\n");
    assert_eq!(ours.script("hi you\nj\n").ok(), format!("{wrong}hello you\n"));
    std::fs::remove_file(ours.work.join(".pvmrc")).expect("it is there");
    std::fs::create_dir(ours.work.join(".pvmrc")).expect("our directory");
    let output = ours.script("echo on\n");
    assert_eq!(output.stderr, format!("pvm: {place}: Is a directory (os error 21)\n"));
    assert_eq!(output.ok(), "on\n");
}

#[test]
fn halt_ends_daemon_and_console() {
    let ours = Ours::new();
    let output = ours.script("id\nhalt\necho never\n").ok();
    assert_eq!(output.lines().count(), 1, "{output}");
    // The next console finds none, and starts another, whose first task it is.
    assert_eq!(ours.script("id\n").ok(), "t40001\n");
    assert_eq!(ours.script("id\n").ok(), "t40002\n");
}

#[test]
fn a_lost_daemon_is_said_in_one_line() {
    let ours = Ours::new();
    let line = format!("{} pvm --echo", nagaya_path().display());
    let mut session = Session::begin(ours.within(Cmd::new("sh")), ours.work.path(), &line);
    let pid = session.line("ps -x");
    assert!(pid.contains("(cons)"), "{pid}");
    let find = format!("grep -l PVM_VMID={}$ /proc/[0-9]*/environ -z -s", ours.vmid);
    let found = Cmd::new("sh").arg("-c").arg(find).run().stdout;
    for process in found.lines().filter_map(|path| path.split('/').nth(2)?.parse().ok()) {
        let name = kernel_text(format!("/proc/{process}/cmdline")).unwrap_or_default();
        if name.contains("\0pvmd\0") {
            nagaya_tests::kill(process, rustix::process::Signal::KILL);
        }
    }
    let output = session.console.wait().ends_with(1);
    output.one_line(&["this host's pvmd has gone", "`nagaya pvm` starts another"]);
}

/// A console on a terminal, through script(1).
fn on_terminal(ours: &Ours) -> Session {
    let command = format!("script -qefc '{} pvm' /dev/null", nagaya_path().display());
    let shell = ours.within(Cmd::new("sh")).env("TERM", "xterm");
    Session::begin(shell, ours.work.path(), &command)
}

#[test]
fn lines_are_edited_on_a_terminal() {
    let ours = Ours::new();
    ours.script("conf\n").ok();
    let mut session = on_terminal(&ours);
    session.keys("echo wrongly\x7f\x7fed\r");
    session.until("\nwronged\r\n");
    session.until(PROMPT);
    // Ctrl-C: not this line.
    session.keys("halt\x03");
    session.until(PROMPT);
    // The line before the last.
    session.keys("\x1b[A\r");
    session.until("\nwronged\r\n");
    session.until(PROMPT);
    session.keys("ver\t\r");
    session.until("\n3.4.6\r\n");
    session.until(PROMPT);
    // A task's tid, after some of it: the console's own.
    session.keys("echo t4\t\r");
    session.until("\nt40002");
    session.until(PROMPT);
    session.keys("\x04");
    session.until("pvmd still running.");
    session.console.wait().ends_with(0);
}

#[test]
fn output_comes_above_the_line_that_is_edited() {
    let ours = Ours::new();
    let mut session = on_terminal(&ours);
    session.keys("spawn -> sh -c 'sleep 0.5; echo there'\r");
    session.until("1 successful");
    session.until(PROMPT);
    session.keys("echo edi");
    session.until("] there");
    session.until("[1] finished");
    session.until("pvm> ");
    session.keys("ted\r");
    session.until("\nedited\r\n");
    session.keys("quit\r");
    session.until("pvmd still running.");
    session.console.wait().ends_with(0);
}
