//! Removes the sockets and lock files that killed servers have left in the user's directory.
//!
//! Each process that listens there locks the directory first, as PVM's daemon does, and sweeps it.
//! So no socket is replaced between the test and the removal.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, statfs};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::job::listen;

/// Time limit for the lock of the directory. Its holder may be stopped.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which the lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// File systems of one host: ext, XFS, Btrfs, F2FS, ZFS, overlayfs, tmpfs, ramfs. On others a
/// socket may belong to a process of another host, which this host cannot reach.
const LOCAL_FILE_SYSTEMS: [i64; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0x794c_7630,
    0x0102_1994,
    0x8584_58f6,
];

/// Listens on `path`, and removes files that killed servers have left in its directory. If another
/// process keeps the directory locked, nothing is removed.
pub fn listen_and_sweep(path: &Path) -> io::Result<UnixListener> {
    let Some(directory) = path.parent() else { return listen(path) };
    let lock = lock(directory)?;
    if lock.is_some() {
        sweep(directory);
    }
    listen(path)
}

/// Locks a directory, which must exist. Returns `None` if another process keeps it locked.
fn lock(directory: &Path) -> io::Result<Option<File>> {
    let file = File::open(directory)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            Err(_) => return Ok(None),
        }
    }
}

/// Removes the sockets that no process is bound to, and the lock files of jobs without sockets.
/// The caller has locked the directory.
fn sweep(directory: &Path) {
    if !statfs(directory).is_ok_and(|found| LOCAL_FILE_SYSTEMS.contains(&found.f_type)) {
        return;
    }
    let entries = || fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries() {
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) && is_left(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let names: Vec<PathBuf> = entries().map(|entry| entry.path()).collect();
    let is_lock = |path: &&PathBuf| path.extension().is_some_and(|it| it == "lock");
    for lock in names.iter().filter(is_lock) {
        let stem = lock.file_stem().unwrap_or_default().as_encoded_bytes();
        let is_socket = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.strip_prefix(stem).is_some_and(|rest| rest.starts_with(b"-"))
        };
        if !names.iter().any(is_socket) {
            remove_lock(lock);
        }
    }
}

/// Returns true if no process is bound to the socket at `path`. A datagram socket cannot connect to
/// a stream socket, so a server does not notice the test.
fn is_left(path: &Path) -> bool {
    let probe = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let (Ok(probe), Ok(address)) = (probe, SocketAddrUnix::new(path)) else { return false };
    connect(&probe, &address) == Err(Errno::CONNREFUSED)
}

/// Removes a lock file that nobody holds. A process that waits for it then makes a new one.
fn remove_lock(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_uses_is_swept() {
        let directory = std::env::temp_dir().join(format!("nagaya-sweep-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = |name: &str| directory.join(name);
        drop(UnixListener::bind(path("left-1.sock")).unwrap());
        drop(UnixListener::bind(path("pvmd")).unwrap());
        fs::write(path("left.lock"), "").unwrap();
        let alive = UnixListener::bind(path("alive-1.sock")).unwrap();
        fs::write(path("alive.lock"), "").unwrap();
        fs::write(path("held.lock"), "").unwrap();
        let held = File::open(path("held.lock")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        fs::write(path("pvml.log"), "").unwrap();
        let new = listen_and_sweep(&path("new-1.sock")).unwrap();
        let entries = fs::read_dir(&directory).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|it| it.file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["alive-1.sock", "alive.lock", "held.lock", "new-1.sock", "pvml.log"]);
        // The living server has got no connection.
        alive.set_nonblocking(true).unwrap();
        assert!(alive.accept().is_err());
        // A directory that stays locked is not swept, and hinders nobody.
        drop(new);
        let _lock = lock(&directory).unwrap().expect("free");
        listen_and_sweep(&path("other-1.sock")).unwrap();
        assert!(path("new-1.sock").exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
