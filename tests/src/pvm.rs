//! Virtual machines of PVM for tests: stock PVM's, the oracle, and Nagaya's.
//!
//! Each has its own directory and name, so that many run at once on one computer. Their hosts are
//! addresses of the loopback network.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::program::{made_once, pvm_libraries};
use crate::{Cmd, Running, WorkDir, wait_until};

/// The directory of Debian's PVM.
const STOCK_ROOT: &str = "/usr/lib/pvm3";
/// Time limit for a daemon to end after `halt`.
const HALT_MAX: Duration = Duration::from_secs(3);

/// The addresses that hosts have, the first one first.
pub const HOSTS: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];

/// Whose virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stock,
    Ours,
}

/// A virtual machine. It is halted when the value is dropped.
pub struct Machine {
    kind: Kind,
    work: WorkDir,
    daemon: Running,
}

impl Machine {
    /// Stock PVM's daemon on one host. Programs that are spawned by name alone are looked for
    /// in these directories, too.
    ///
    /// # Panics
    /// If it does not start, as without Debian's `pvm`.
    #[track_caller]
    pub fn stock(programs: &[&Path]) -> Self {
        crate::tool("pvmd");
        Self::start(Kind::Stock, Cmd::new("pvmd"), programs)
    }

    /// The same with our daemon, and our libraries for its tasks.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn ours(programs: &[&Path]) -> Self {
        Self::ours_by("fcp2", programs)
    }

    /// The same, whose messages go by this protocol.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn ours_by(protocol: &str, programs: &[&Path]) -> Self {
        let daemon = crate::nagaya("pvmd").env("NAGAYA_PVM_PROTOCOL", protocol);
        Self::start(Kind::Ours, daemon, programs)
    }

    /// The same, whose tasks live in one space.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn in_space(programs: &[&Path]) -> Self {
        Self::start(Kind::Ours, crate::nagaya("pvmd").arg("--space"), programs)
    }

    #[track_caller]
    fn start(kind: Kind, daemon: Cmd, programs: &[&Path]) -> Self {
        let work = WorkDir::short();
        // The replacement of ssh. The other hosts are on this machine, too, so their daemons must
        // not meet.
        let rsh = "#!/bin/sh\ncase $1 in 127.*) ;; *) echo \"$1: no such host\" >&2; exit 255;; esac\n\
                   for name in PVM_TMP XDG_RUNTIME_DIR; do\n\
                   eval \"dir=\\$$name/$1\"\nmkdir -p $dir\nchmod 700 $dir\nexport $name=$dir\ndone\n\
                   shift\nexec sh -c \"$*\"\n";
        work.write_executable("rsh", rsh);
        let search = std::env::join_paths(programs.iter().copied().chain([Path::new("/usr/bin")]));
        // A hosts file would keep it busy for a while after its start.
        let mut daemon = kind
            .within(&work, daemon)
            .arg(format!("-n{}", HOSTS[0]))
            .env("PVM_PATH", search.expect("paths without colons"))
            .env("PVM_WD", work.path())
            .time_limit(Duration::from_secs(600))
            .spawn();
        match kind {
            // It says where it listens.
            Kind::Stock => drop(daemon.wait_for_lines(1)),
            Kind::Ours => wait_until("the daemon listens", Duration::from_secs(10), || {
                work.join("nagaya").join("pvmd.0").exists()
            }),
        }
        Self { kind, work, daemon }
    }

    /// The command as a task of the virtual machine, in its directory.
    pub fn task(&self, program: impl AsRef<OsStr>) -> Cmd {
        self.kind.within(&self.work, Cmd::new(program))
    }

    /// The virtual machine's directory, in which its tasks run.
    pub fn dir(&self) -> &Path {
        self.work.path()
    }

    /// Starts the console with these lines as its input.
    #[track_caller]
    pub fn console(&self, lines: &str) -> Running {
        match self.kind {
            Kind::Stock => self.task("pvm").stdin(lines).spawn(),
            Kind::Ours => self.task(crate::nagaya_path()).arg("pvm").stdin(lines).spawn(),
        }
    }

    /// Returns the PID of the first host's daemon.
    pub fn daemon(&self) -> i32 {
        self.daemon.pid()
    }

    /// Kills the daemon.
    pub fn kill(&self) {
        self.daemon.signal(Signal::KILL);
    }

    /// Returns the maximum private memory of the first host's daemon, in KiB.
    pub fn memory_max_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|number| number.parse().ok()).expect("a number of KiB")
    }

    /// Returns the log of daemon and tasks.
    pub fn log(&self) -> String {
        let all = Cmd::new("sh").args(["-c", "cat pvml.* */pvml.* */*/pvml.*"]).dir(self.dir());
        all.run().stdout
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the virtual machine's log:\n{}", self.log());
        }
        let ends = |daemon: &mut Running| {
            let deadline = Instant::now() + HALT_MAX;
            while daemon.is_running() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        if self.kind == Kind::Stock && self.daemon.is_running() {
            let _console = self.console("halt\n");
            ends(&mut self.daemon);
        }
        // Ours understands that; and a resource manager that has ended keeps stock PVM's
        // console from halting anything.
        if self.daemon.is_running() {
            self.daemon.signal(Signal::TERM);
            ends(&mut self.daemon);
        }
    }
}

impl Kind {
    /// The command with the environment of a virtual machine in this directory.
    fn within(self, work: &WorkDir, command: Cmd) -> Cmd {
        let command = command
            .dir(work.path())
            .env("PVM_RSH", work.join("rsh"))
            .env("PVM_TMP", work.path())
            .env("PVM_VMID", "0")
            .env_remove("PVM_EXPORT")
            .env_remove("PVM_ARCH")
            .env_remove("PVMSOCK");
        match self {
            Kind::Stock => command
                .env("PVM_ROOT", STOCK_ROOT)
                .env("PVM_ALLOW_ROOT", "1")
                .env("PVM_CONSOLE", "pvm >/dev/null 2>&1"),
            Kind::Ours => command
                .env(
                    "PVM_CONSOLE",
                    format!("{} pvm >/dev/null 2>&1", crate::nagaya_path().display()),
                )
                .env("XDG_RUNTIME_DIR", work.path())
                .env("XDG_STATE_HOME", work.join("state"))
                .env("LD_LIBRARY_PATH", pvm_libraries())
                .env_remove("PVM_ROOT"),
        }
    }
}

/// The directory of our `libfpvm3.a`, built as `make install` builds it.
pub fn libfpvm3_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = ["machine.c", "messages.c", "groups.c", "text.h"]
        .map(|file| std::fs::read(root.join("message/pvm/fortran").join(file)).expect("a source"));
    made_once("libfpvm3", &sources, |dir| {
        let archive = dir.join("libfpvm3.a");
        Cmd::new("make").args(["-s", "-C"]).arg(&root).arg(archive).run().ok();
    })
}
