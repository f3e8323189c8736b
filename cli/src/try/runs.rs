//! The runs of `nagaya try`: each is a process whose output is kept in a file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use launch::processors;
use nagaya_server::Failure;
use rustix::thread::CpuSet;

use crate::progress::Progress;

/// The user has pressed Ctrl-C. The job gets the signal, too, and ends.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// The place of the runs' files, and the reports of progress.
pub struct Runs<'a> {
    directory: &'a Path,
    progress: &'a Progress,
}

/// A run that has succeeded.
pub struct Run {
    /// Time of the whole command, with its launcher.
    pub seconds: f64,
    /// Its output.
    pub output: Vec<u8>,
    /// Its standard error.
    errors: Vec<u8>,
}

/// The start of the line of a rank that could not write its record, as `libnagaya-traffic.so`
/// prints it.
const LOST_RECORD: &str = "nagaya-traffic: ";

impl Run {
    /// Returns true if a rank could not write its record.
    pub fn has_lost_records(&self) -> bool {
        String::from_utf8_lossy(&self.errors).contains(LOST_RECORD)
    }
}

impl<'a> Runs<'a> {
    /// Prepares runs with files in this directory.
    pub fn new(directory: &'a Path, progress: &'a Progress) -> Result<Self, Failure> {
        // SAFETY: the handler only stores a value. It is removed by execve in the runs.
        unsafe { libc::signal(libc::SIGINT, interrupt as *const () as libc::sighandler_t) };
        Ok(Self { directory, progress })
    }

    /// Returns the path of a file.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs a command, on these processors only if there are some.
    ///
    /// # Errors
    /// It cannot be started, fails, or is interrupted.
    pub fn run(
        &self,
        name: &str,
        words: &[OsString],
        share: Option<CpuSet>,
    ) -> Result<Run, Failure> {
        self.progress.set(name);
        let shown = words[0].display();
        let failed = |what: &dyn std::fmt::Display| {
            Failure::ours(format!("try: the run {name} failed: {shown}: {what}"))
        };
        let [out, err] = ["out", "err"].map(|name| self.file(name));
        let create = |path: &Path| File::create(path).map_err(|why| failed(&why));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
        if let Some(share) = share {
            processors::bind(&mut command, share);
        }
        let begin = Instant::now();
        let status = command.status().map_err(|why| failed(&why))?;
        let seconds = begin.elapsed().as_secs_f64();
        let errors = fs::read(&err).unwrap_or_default();
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(Failure { message: "try: interrupted".into(), status: 130 });
        }
        if !status.success() {
            return Err(failed(&ended(status, &errors)));
        }
        let output = fs::read(&out).map_err(|why| failed(&why))?;
        Ok(Run { seconds, output, errors })
    }
}

/// Describes the end of a command that has failed, with what it printed.
fn ended(status: ExitStatus, errors: &[u8]) -> String {
    let what = match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, signal) => format!("killed by signal {}", signal.unwrap_or(0)),
    };
    let errors = String::from_utf8_lossy(errors);
    // Launchers draw frames of dashes around their messages.
    let line = errors.lines().find(|line| line.chars().any(char::is_alphanumeric));
    what + &line.map_or(String::new(), |line| format!(": {}", line.trim()))
}
