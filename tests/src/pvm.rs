//! Virtual machines of PVM for tests: stock PVM's, the oracle, and ours.
//!
//! Each has a directory and a name of its own, so that many run at once on one computer.
//! Their hosts are addresses of the loopback network.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::program::made_once;
use crate::{Cmd, Output, Running, WorkDir};

/// Where Debian has PVM.
const STOCK_ROOT: &str = "/usr/lib/pvm3";
/// How long a daemon may take to end after `halt`.
const HALT_MAX: Duration = Duration::from_secs(20);

/// The addresses that hosts have, the first one first.
pub const HOSTS: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];

/// A virtual machine. It is halted when the value is dropped.
pub struct Machine {
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
        let work = WorkDir::short();
        // What stands for ssh. The other hosts are here, too, so their daemons must not meet.
        let rsh = "#!/bin/sh\nPVM_TMP=$PVM_TMP/$1\nexport PVM_TMP\nmkdir -p $PVM_TMP\n\
                   shift\nexec sh -c \"$*\"\n";
        work.write_executable("rsh", rsh);
        let search = std::env::join_paths(programs.iter().copied().chain([Path::new("/usr/bin")]));
        // A hosts file would keep it busy for a while after its start.
        let mut daemon = within(&work, Cmd::new("pvmd"))
            .arg(format!("-n{}", HOSTS[0]))
            .env("PVM_PATH", search.expect("paths without colons"))
            .env("PVM_WD", work.path())
            .time_limit(Duration::from_secs(600))
            .spawn();
        // It says where it listens.
        daemon.wait_for_lines(1);
        Self { work, daemon }
    }

    /// The command as a task of the virtual machine, in its directory.
    pub fn task(&self, program: impl AsRef<OsStr>) -> Cmd {
        within(&self.work, Cmd::new(program))
    }

    /// The virtual machine's directory, in which its tasks run.
    pub fn dir(&self) -> &Path {
        self.work.path()
    }

    /// Runs the console with these lines as its input.
    #[track_caller]
    pub fn console(&self, lines: &str) -> Output {
        self.task("pvm").stdin(lines).run()
    }

    /// What daemon and tasks have logged.
    pub fn log(&self) -> String {
        let all = Cmd::new("sh").args(["-c", "cat pvml.* */pvml.*"]).dir(self.dir());
        all.run().stdout
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the virtual machine's log:\n{}", self.log());
        }
        if self.daemon.is_running() {
            let mut console = self.task("pvm").stdin("halt\n").time_limit(HALT_MAX).spawn();
            let deadline = std::time::Instant::now() + HALT_MAX;
            while self.daemon.is_running() && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = console.is_running();
        }
    }
}

/// The command with the environment of a virtual machine in this directory.
fn within(work: &WorkDir, command: Cmd) -> Cmd {
    command
        .dir(work.path())
        .env("PVM_ROOT", STOCK_ROOT)
        .env("PVM_RSH", work.join("rsh"))
        .env("PVM_TMP", work.path())
        .env("PVM_VMID", "0")
        .env("PVM_ALLOW_ROOT", "1")
        .env_remove("PVM_EXPORT")
        .env_remove("PVM_ARCH")
        .env_remove("PVMSOCK")
}

/// The directory of our `libfpvm3.a`, built as `make install` builds it.
pub fn libfpvm3_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = ["machine.c", "messages.c", "groups.c", "text.h"]
        .map(|file| std::fs::read(root.join("message/fpvm3").join(file)).expect("a source"));
    made_once("libfpvm3", &sources, |dir| {
        let archive = dir.join("libfpvm3.a");
        Cmd::new("make").args(["-s", "-C"]).arg(&root).arg(archive).run().ok();
    })
}
