//! The daemon's socket. At most one daemon of a virtual machine listens on a host.
//!
//! The socket is `pvmd`, or `pvmd.VMID`, in Nagaya's directory for sockets. A daemon that starts
//! or ends locks the directory meanwhile; the kernel releases the lock of a process that dies. A
//! killed daemon leaves at most a socket without a listener, which the next daemon replaces.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nagaya_server::{Failure, job};
use rustix::fs::{FlockOperation, flock};

use crate::options::Options;

/// File name of the socket, to which `.VMID` may be appended.
const NAME: &str = "pvmd";

/// The reason why a daemon cannot listen.
#[derive(Debug)]
pub enum Refused {
    /// Another daemon listens on this path.
    Running(PathBuf),
    /// A system call failed.
    System(Failure),
}

impl Refused {
    /// Returns the message for the user.
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

/// Returns the file name of a virtual machine's socket or log: `name`, or `name.VMID`. Fails if
/// the VMID cannot be part of a file name.
pub fn file_name(name: &str, vmid: Option<&str>) -> Result<String, Failure> {
    match vmid.filter(|vmid| !vmid.is_empty()) {
        None => Ok(name.to_string()),
        Some(vmid) if vmid.contains(['/', '\0']) || vmid.len() > 64 => Err(Failure::ours(format!(
            "PVM_VMID {vmid:?}: must not contain `/`, and has at most 64 bytes"
        ))),
        Some(vmid) => Ok(format!("{name}.{vmid}")),
    }
}

/// Returns the path of the daemon's socket. Creates its directory, which only the user can
/// access.
pub fn path(vmid: Option<&str>) -> Result<PathBuf, Failure> {
    Ok(job::directory()?.join(file_name(NAME, vmid)?))
}

/// Locks a directory that still exists.
fn lock(directory: &Path) -> io::Result<OwnedFd> {
    loop {
        let file = File::open(directory)?;
        flock(&file, FlockOperation::LockExclusive)?;
        // The previous holder may have removed the directory.
        match fs::metadata(directory) {
            Ok(now) if now.ino() == file.metadata()?.ino() => return Ok(file.into()),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Listens on the socket, unless a living daemon does.
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
        // Another daemon that ends may remove the directory between `path` and `lock`.
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

/// Removes the socket, and the directory if it is empty then.
pub fn remove(path: &Path) {
    let Some(directory) = path.parent() else { return };
    let _lock = lock(directory);
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(directory);
}
