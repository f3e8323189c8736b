//! Runs a command with a time limit, in its own process group. Files capture its output: a pipe
//! that a forgotten grandchild holds open would block the test.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::directories::{keep_open_mpi_sessions, runtime_dir, scratch_dir, unique};
use crate::processes::kill;

/// Default time limit of a command and of a wait. It is generous because the machine may be busy.
pub const TIME_LIMIT: Duration = Duration::from_secs(300);

/// A command to be run.
#[derive(Clone, Debug)]
pub struct Cmd {
    argv: Vec<OsString>,
    env: Vec<(OsString, Option<OsString>)>,
    dir: Option<PathBuf>,
    stdin: Vec<u8>,
    own_session: bool,
    time_limit: Duration,
}

impl Cmd {
    /// A command without arguments; standard input is empty.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            argv: vec![program.as_ref().to_owned()],
            env: Vec::new(),
            dir: None,
            stdin: Vec::new(),
            own_session: false,
            time_limit: TIME_LIMIT,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.argv.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Adds another command line as arguments: `gdb`, `mpirun` or `sh` in front of it.
    #[must_use]
    pub fn command(mut self, inner: Self) -> Self {
        self.argv.extend(inner.argv);
        self.env.extend(inner.env);
        self.own_session |= inner.own_session;
        self
    }

    /// Runs it in its own session, for launchers whose ranks yield while they wait. The kernel
    /// shares the processors among sessions (CONFIG_SCHED_AUTOGROUP). In one session with all
    /// other tests, Linux 6.18 would sometimes run only such ranks for up to a minute, and not
    /// their launcher's daemons.
    #[must_use]
    pub fn own_session(mut self) -> Self {
        self.own_session = true;
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes an environment variable.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().to_owned());
        self
    }

    /// Sets the content of standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = bytes.as_ref().to_owned();
        self
    }

    /// Lets the command run longer than [`TIME_LIMIT`]. A shorter limit has no effect: a test that
    /// states how soon a command ends measures the time itself.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit.max(TIME_LIMIT);
        self
    }

    /// The command as one would type it.
    fn line(&self) -> String {
        let quoted = self.argv.iter().map(|arg| {
            let arg = arg.to_string_lossy();
            if arg.contains(|c: char| c.is_whitespace() || "'\"$;&|".contains(c)) {
                format!("'{arg}'")
            } else {
                arg.into_owned()
            }
        });
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// Starts the command.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn spawn(self) -> Running {
        keep_open_mpi_sessions();
        let stem = scratch_dir().join(format!("io-{}-{}", std::process::id(), unique()));
        let paths =
            [stem.with_extension("in"), stem.with_extension("out"), stem.with_extension("err")];
        fs::write(&paths[0], &self.stdin).expect("write standard input");
        // Appending, so that many writers do not overwrite each other.
        let append = |path: &PathBuf| -> Stdio {
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).open(path);
            file.expect("make an output file").into()
        };

        let mut command = Command::new(&self.argv[0]);
        command
            .args(&self.argv[1..])
            .stdin(File::open(&paths[0]).expect("open standard input"))
            .stdout(append(&paths[1]))
            .stderr(append(&paths[2]))
            .env("XDG_RUNTIME_DIR", runtime_dir())
            // mpirun refuses root otherwise.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            // Messages in English.
            .env("LC_ALL", "C.UTF-8");
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        if !self.own_session {
            command.process_group(0);
        }
        let own_session = self.own_session;
        let prepare = move || {
            default_signals();
            if own_session {
                rustix::process::setsid()?;
            }
            Ok(())
        };
        // SAFETY: system calls that may be made between fork and exec.
        unsafe { command.pre_exec(prepare) };
        let line = self.line();
        let child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start `{line}`: {error}"));
        Running { child, line, paths, deadline: Instant::now() + self.time_limit, ended: false }
    }

    /// Runs the command to its end.
    ///
    /// # Panics
    /// If it cannot be started or does not end in time.
    #[track_caller]
    pub fn run(self) -> Output {
        self.spawn().wait()
    }
}

/// Gives every signal its default action and blocks none. The process that runs the tests may
/// differ: a shell's background job ignores SIGINT and SIGQUIT, nohup's SIGHUP.
fn default_signals() {
    // SAFETY: the numbers are signals, for which the default action needs no handler; the mask is
    // local. KILL and STOP fail, as they must.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// A command that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
    paths: [PathBuf; 3],
    deadline: Instant,
    ended: bool,
}

impl Running {
    /// Its PID, which is also its process group.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends a signal to the command, and to it alone.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Sends a signal to its process group, as a terminal does on Ctrl-C.
    pub fn signal_group(&self, signal: Signal) {
        let group = Pid::from_raw(self.pid()).expect("a PID");
        let _ = rustix::process::kill_process_group(group, signal);
    }

    /// Returns the standard output so far.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.paths[1]).unwrap_or_default()).into_owned()
    }

    /// Returns the standard error so far.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.paths[2]).unwrap_or_default()).into_owned()
    }

    /// Returns true if it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait for a child").is_none()
    }

    /// Returns true if its time limit is over.
    pub fn is_overdue(&self) -> bool {
        Instant::now() > self.deadline
    }

    /// Waits until `condition` holds for its standard output, and returns that.
    ///
    /// # Panics
    /// If the command ends, or its time is over, before that.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        loop {
            let runs = self.is_running();
            let text = self.stdout();
            if condition(&text) {
                return text;
            }
            if !runs || Instant::now() > self.deadline {
                let fate = if runs { "ran out of time" } else { "ended" };
                let stderr = self.stderr();
                panic!("`{}` {fate} before it printed {what}\n{text}\n{stderr}", self.line);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until `word` stands in its standard output, and returns that.
    ///
    /// # Panics
    /// As [`Running::wait_for`].
    #[track_caller]
    pub fn wait_for_word(&mut self, word: &str) -> String {
        self.wait_for(word, |text| text.contains(word))
    }

    /// Waits until it has printed `n` lines, and returns these.
    ///
    /// # Panics
    /// As [`Running::wait_for`].
    #[track_caller]
    pub fn wait_for_lines(&mut self, n: usize) -> Vec<String> {
        let text = self.wait_for(&format!("{n} lines"), |text| text.matches('\n').count() >= n);
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for `n` lines, each of which ends with a PID. Returns the PIDs.
    ///
    /// # Panics
    /// As [`Running::wait_for`], or if a line has no PID.
    #[track_caller]
    pub fn wait_for_pids(&mut self, n: usize) -> Vec<i32> {
        let text = self.wait_for_lines(n).join("\n");
        let pid = |line: &str| line.rsplit(' ').next()?.parse().ok();
        let pids: Vec<i32> = text.lines().filter_map(pid).collect();
        assert_eq!(pids.len(), n, "{text}");
        pids
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end in time; it is killed then.
    #[track_caller]
    pub fn wait(mut self) -> Output {
        let mut pause = Duration::from_millis(1);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for a child") {
                break status;
            }
            if Instant::now() > self.deadline {
                let (stdout, stderr) = (self.stdout(), self.stderr());
                let line = self.line.clone();
                drop(self);
                panic!("`{line}` did not end in time\nstdout:\n{stdout}\nstderr:\n{stderr}");
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        self.ended = true;
        Output { command: self.line.clone(), status, stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.signal_group(Signal::KILL);
            let _ = self.child.wait();
        }
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
    }
}

/// The end and the output of a command.
#[derive(Clone, Debug)]
pub struct Output {
    /// The command line.
    pub command: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, status, stdout, stderr } = self;
        write!(f, "`{command}`: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---")
    }
}

impl Output {
    /// The status as a shell shows it: the exit code, or 128 and the signal.
    pub fn code(&self) -> i32 {
        match self.status.code() {
            Some(code) => code,
            None => 128 + self.status.signal().expect("exited or killed"),
        }
    }

    /// The signal that killed the command, if one did.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Asserts success and returns standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.status.success(), "{self}");
        self.stdout
    }

    /// Asserts the status as a shell shows it.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self}");
        self
    }

    /// Asserts success and exactly this output.
    #[track_caller]
    pub fn prints(self, wanted: &str) {
        assert!(self.status.success(), "{self}");
        assert_eq!(self.stdout, wanted, "{self}");
    }

    /// Asserts that nagaya refused: the status, nothing on standard output, and on standard
    /// error one line that begins with `nagaya: ` and has all the words, in either case.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) {
        assert_eq!(self.code(), code, "{self}");
        assert_eq!(self.stdout, "", "{self}");
        self.one_line(words);
    }

    /// Asserts that standard error is one line of nagaya's with all these words.
    #[track_caller]
    pub fn one_line(&self, words: &[&str]) {
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "not one line\n{self}");
        assert!(lines[0].starts_with("nagaya: "), "{self}");
        let line = lines[0].to_lowercase();
        for word in words {
            assert!(line.contains(&word.to_lowercase()), "no `{word}`: {self}");
        }
    }
}
