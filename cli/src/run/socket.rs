//! The socket of a job, by which other commands reach it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use nagaya_server::Failure;
use nagaya_server::sweep::listen_and_sweep;

/// The job's socket, which is removed at the end.
pub struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    /// Opens it.
    pub fn listen(path: PathBuf) -> Result<Self, Failure> {
        let fail = |e: std::io::Error| Failure::ours(format!("{}: {e}", path.display()));
        if std::os::unix::net::UnixStream::connect(&path).is_ok() {
            return Err(Failure::ours("a job of this name runs already (choose another --job)"));
        }
        let listener = listen_and_sweep(&path).map_err(fail)?;
        Ok(Self { path, listener })
    }

    /// A copy of its descriptor.
    pub fn listener(&self) -> Result<OwnedFd, Failure> {
        self.listener
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| Failure::ours(format!("socket: {e}")))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
