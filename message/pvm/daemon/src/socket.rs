//! Where a daemon listens, and that only one does.
//!
//! The socket is `pvmd`, or `pvmd.VMID`, in Nagaya's directory for sockets. Who starts or
//! ends holds a lock on the directory meanwhile, which ends with its holder: a dead daemon
//! leaves at most a socket that nobody answers, and that the next one replaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nagaya_server::{Failure, job};
use rustix::fs::{FlockOperation, flock};

use crate::run::Options;

/// How a daemon's socket is named; a VMID stands behind it and a dot.
const NAME: &str = "pvmd";

/// Why a daemon cannot listen.
#[derive(Debug)]
pub enum Refused {
    /// Another one does.
    Running(PathBuf),
    /// The system refuses.
    System(Failure),
}

impl Refused {
    /// In a line for the user.
    pub fn failure(self) -> Failure {
        match self {
            Refused::Running(path) => Failure::ours(format!(
                "{}: a daemon is running already (`nagaya pvm` talks to it)",
                path.display()
            )),
            Refused::System(failure) => failure,
        }
    }
}

/// The file name of a virtual machine's socket or log: `name`, or `name.VMID`. A VMID that
/// cannot be in a file name is refused.
pub fn file_name(name: &str, vmid: Option<&str>) -> Result<String, Failure> {
    match vmid.filter(|vmid| !vmid.is_empty()) {
        None => Ok(name.to_string()),
        Some(vmid) if vmid.contains(['/', '\0']) || vmid.len() > 64 => {
            Err(Failure::ours(format!("PVM_VMID {vmid:?}: may have no `/` and at most 64 bytes")))
        }
        Some(vmid) => Ok(format!("{name}.{vmid}")),
    }
}

/// The path of the daemon's socket, in a directory that is ours alone and is made if it is
/// not there.
pub fn path(vmid: Option<&str>) -> Result<PathBuf, Failure> {
    Ok(job::directory()?.join(file_name(NAME, vmid)?))
}

/// The lock on a directory that is still there.
fn lock(directory: &Path) -> io::Result<OwnedFd> {
    loop {
        let file = File::open(directory)?;
        flock(&file, FlockOperation::LockExclusive)?;
        // Who had it may have removed the directory.
        match fs::metadata(directory) {
            Ok(now) if now.ino() == file.metadata()?.ino() => return Ok(file.into()),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Listens, unless a living daemon does.
pub fn listen(options: &Options) -> Result<(UnixListener, PathBuf), Refused> {
    let mut attempts = 0;
    loop {
        let path = match &options.directory {
            None => path(options.vmid.as_deref()),
            Some(directory) => {
                let _ = fs::DirBuilder::new().mode(0o700).create(directory);
                file_name(NAME, options.vmid.as_deref()).map(|name| directory.join(name))
            }
        };
        let path = path.map_err(Refused::System)?;
        let fail = |error: io::Error| {
            Refused::System(Failure::ours(format!("{}: cannot listen: {error}", path.display())))
        };
        // Between path() and lock() another daemon's end may have removed the directory.
        let _lock = match lock(path.parent().unwrap_or(Path::new("/"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < 100 => {
                attempts += 1;
                continue;
            }
            lock => lock.map_err(fail)?,
        };
        if UnixStream::connect(&path).is_ok() {
            return Err(Refused::Running(path));
        }
        let listener = job::listen(&path).map_err(fail)?;
        return Ok((listener, path));
    }
}

/// Removes the socket, and the directory if nothing else is in it.
pub fn remove(path: &Path) {
    let Some(directory) = path.parent() else { return };
    let _lock = lock(directory);
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(directory);
}
