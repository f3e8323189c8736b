//! Ordinary users: commands without privileges, with their own home and runtime directory. They
//! need not be in the user database.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use crate::directories::unique;
use crate::{Cmd, WorkDir, nagaya_path};

/// A user. Its programs must be copied to it: the build directory may be closed.
pub struct User {
    uid: u32,
    dir: WorkDir,
    /// True if it is the user who runs the tests.
    is_us: bool,
}

impl User {
    /// Returns an ordinary user: a new one for root, otherwise the present one.
    pub fn ordinary() -> Self {
        let us = rustix::process::geteuid().as_raw();
        if us == 0 {
            return Self::another().expect("root can become anybody");
        }
        Self::with(us, true)
    }

    /// Returns a new user of this machine, or `None` if the test does not run as root.
    pub fn another() -> Option<Self> {
        let number = std::process::id() % 100_000 * 16 + u32::try_from(unique() % 16).ok()?;
        rustix::process::geteuid().is_root().then(|| Self::with(100_000 + number, false))
    }

    fn with(uid: u32, is_us: bool) -> Self {
        let dir = WorkDir::short();
        for name in ["", "home", "run", "bin"] {
            let path = dir.join(name);
            fs::create_dir_all(&path).expect("make a directory");
            chown(&path, Some(uid), None).expect("chown");
            let mode = if name == "run" { 0o700 } else { 0o755 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        }
        Self { uid, dir, is_us }
    }

    /// UID.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Its `XDG_RUNTIME_DIR`.
    pub fn runtime_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// A path in a directory of the user's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join("home").join(name)
    }

    /// A copy of a program, for the user to run.
    pub fn bring(&self, program: &Path) -> PathBuf {
        let copy = self.dir.join("bin").join(program.file_name().expect("a program has a name"));
        if !copy.exists() {
            // Not by ourselves: a child that another test starts meanwhile would hold the
            // copy open for writing, and it could not be run.
            Cmd::new("cp").arg(program).arg(&copy).run().ok();
        }
        copy
    }

    /// `nagaya SUBCOMMAND`, to be run with [`User::command`].
    pub fn nagaya(&self, subcommand: &str) -> Cmd {
        Cmd::new(self.bring(&nagaya_path())).arg(subcommand)
    }

    /// The command, run by the user.
    pub fn command(&self, command: Cmd) -> Cmd {
        let id = self.uid.to_string();
        let prefix = if self.is_us {
            Cmd::new("env")
        } else {
            let ids = ["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps=-all"];
            Cmd::new("setpriv").args(ids).arg("env")
        };
        let variable = |name: &str, value: PathBuf| format!("{name}={}", value.display());
        prefix
            .arg(variable("HOME", self.dir.join("home")))
            .arg(variable("XDG_RUNTIME_DIR", self.runtime_dir()))
            .command(command)
            .dir(self.dir.join("home"))
    }
}
