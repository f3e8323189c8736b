//! A test's own directory, and executable files in it.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::command::Cmd;
use crate::directories::{scratch_dir, unique};

/// A directory for one test, removed at the end.
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// In the scratch directory: programs may be run from here.
    pub fn new() -> Self {
        Self::at(scratch_dir().join(format!("work-{}-{}", std::process::id(), unique())))
    }

    /// Directly in /tmp, for socket directories, whose paths must be short.
    pub fn short() -> Self {
        Self::at(PathBuf::from(format!("/tmp/nagaya-t-{}-{}", std::process::id(), unique())))
    }

    fn at(path: PathBuf) -> Self {
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a path in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in the directory.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// Writes an executable file in the directory.
    pub fn write_executable(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        write_program(&path, content);
        path
    }
}

impl Default for WorkDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes an executable script without a descriptor of it in this process: see [`copy_program`].
pub fn write_program(path: &Path, content: impl AsRef<[u8]>) {
    use std::os::unix::fs::PermissionsExt as _;
    let draft = path.with_extension("draft");
    fs::write(&draft, content).unwrap_or_else(|error| panic!("{}: {error}", draft.display()));
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).expect("chmod");
    copy_program(&draft, path);
    fs::remove_file(&draft).expect("remove a file");
}

/// Copies an executable program, in another process. If this process had the copy open for writing,
/// children of other threads would inherit that descriptor, and execve would fail with ETXTBSY.
pub fn copy_program(from: &Path, to: &Path) {
    Cmd::new("cp").args(["-p", "--"]).arg(from).arg(to).run().ok();
}
