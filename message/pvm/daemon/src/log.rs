//! The daemon's log: what it has to say, and what tasks write whose output nobody wants. It
//! lies with the user's other state, so that it can be read after the end, and is removed if
//! there is nothing in it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A log.
#[derive(Debug)]
pub struct Log {
    file: Option<(File, PathBuf)>,
    written: bool,
    /// Whether the daemon's own lines go to standard error, too.
    aloud: bool,
}

/// The directory for state: `$XDG_STATE_HOME/nagaya`, or `~/.local/state/nagaya`.
pub fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = variable("XDG_STATE_HOME");
    let state = state.or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("nagaya"))
}

impl Log {
    /// A new, empty log with this name in `directory`; where that cannot be, lines are only
    /// said aloud.
    pub fn new(directory: Option<&Path>, name: &str) -> Log {
        let open = |directory: &Path| {
            fs::create_dir_all(directory).ok()?;
            let path = directory.join(name);
            Some((File::create(&path).ok()?, path))
        };
        Log { file: directory.and_then(open), written: false, aloud: true }
    }

    /// From now on nobody listens to standard error.
    pub fn hush(&mut self) {
        self.aloud = false;
    }

    /// Writes what the daemon has to say.
    pub fn say(&mut self, line: &str) {
        if self.aloud {
            let _ = writeln!(std::io::stderr(), "pvmd: {line}");
        }
        self.write(&format!("pvmd: {line}"));
    }

    /// Writes a line of a task's.
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
