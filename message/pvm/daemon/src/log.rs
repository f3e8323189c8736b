//! The daemon's log: its own messages, and the output of tasks that no task receives. It lies in
//! the user's state directory, so that it can be read after the end. An empty log is removed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The log.
#[derive(Debug)]
pub struct Log {
    file: Option<(File, PathBuf)>,
    written: bool,
    /// True if the daemon's own lines go to standard error, too.
    to_stderr: bool,
}

/// Returns the directory for state: `$XDG_STATE_HOME/nagaya`, or `~/.local/state/nagaya`.
pub fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = variable("XDG_STATE_HOME");
    let state = state.or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("nagaya"))
}

impl Log {
    /// Creates an empty log with this name in `directory`. If that fails, the daemon's lines go
    /// only to standard error.
    pub fn new(directory: Option<&Path>, name: &str) -> Log {
        let open = |directory: &Path| {
            fs::create_dir_all(directory).ok()?;
            let path = directory.join(name);
            Some((File::create(&path).ok()?, path))
        };
        Log { file: directory.and_then(open), written: false, to_stderr: true }
    }

    /// Stops writing to standard error.
    pub fn stop_stderr(&mut self) {
        self.to_stderr = false;
    }

    /// Writes a message of the daemon.
    pub fn report(&mut self, line: &str) {
        if self.to_stderr {
            proc::error_line!("pvmd: {line}");
        }
        self.write(&format!("pvmd: {line}"));
    }

    /// Writes a line of a task's output.
    pub fn write(&mut self, line: &str) {
        if let Some((file, _)) = &mut self.file {
            self.written |= writeln!(file, "{line}").is_ok();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.file
            && !self.written
        {
            let _ = fs::remove_file(path);
            let _ = path.parent().map(fs::remove_dir);
        }
    }
}
