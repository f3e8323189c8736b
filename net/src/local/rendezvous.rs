//! The meeting of two carriers of one machine and user: a socket in a directory that only this user
//! can enter, and the credentials of the other side.
//!
//! An address of this carrier has the boot ID of the machine, the inode of the network namespace,
//! and the path of the socket. Containers with networks of their own count as machines.

use std::fs::{self, DirBuilder};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

use crate::carrier::Reason;
use crate::hex;
use crate::secret::random;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 256;
/// Length of a boot ID as text.
const BOOT_ID_BYTES: usize = 36;
/// Length of the part of an address before the path.
const PLACE_BYTES: usize = BOOT_ID_BYTES + 8;

/// A listening socket. Dropped, its file is removed.
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens in this user's directory. Removes sockets there that killed processes have left.
    pub fn new() -> Result<Self, Errno> {
        let directory =
            directory().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::ACCESS))?;
        sweep(&directory);
        let path = directory.join(hex::encode(&random::<16>()));
        let socket = socket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { socket, path })
    }

    /// Returns the address at which others connect.
    pub fn address(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt as _;
        [&place(), self.path.as_os_str().as_bytes()].concat()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to the carrier with that address, if it is one of this machine and user.
pub fn connect(address: &[u8]) -> Result<OwnedFd, Reason> {
    use std::os::unix::ffi::OsStrExt as _;
    let (at, path) =
        address.split_at_checked(PLACE_BYTES).ok_or("its local address is malformed")?;
    if at != place() {
        return Err("it is on another machine".into());
    }
    let connect = || -> Result<OwnedFd, Errno> {
        let socket = socket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(std::ffi::OsStr::from_bytes(path))?)?;
        is_own_user(&socket)?;
        Ok(socket)
    };
    connect().map_err(|errno| format!("cannot connect to its local socket: {errno}").into())
}

/// Accepts a caller, if it belongs to this user.
pub fn accept(listener: &Listener) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::accept_with(&listener.socket, flags)?;
    is_own_user(&socket)?;
    Ok(socket)
}

fn is_own_user(socket: &OwnedFd) -> Result<(), Errno> {
    let peer = socket_peercred(socket)?;
    if peer.uid == geteuid() { Ok(()) } else { Err(Errno::PERM) }
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Returns the boot ID and the network namespace.
fn place() -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim().as_bytes();
    let bytes = boot.len().min(BOOT_ID_BYTES);
    place[..bytes].copy_from_slice(&boot[..bytes]);
    // The thread's, which may differ from that of the process.
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |data| data.ino());
    place[BOOT_ID_BYTES..].copy_from_slice(&namespace.to_le_bytes());
    place
}

/// Returns this user's directory for sockets, which it makes if need be.
fn directory() -> std::io::Result<PathBuf> {
    let user = geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|directory| is_private(directory, user));
    let directory = match runtime {
        Some(runtime) => runtime.join("nagaya-net"),
        None => std::env::temp_dir().join(format!("nagaya-net-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Another user may have made it, or a link.
    if is_private(&directory, user) { Ok(directory) } else { Err(Errno::ACCESS.into()) }
}

fn is_private(directory: &Path, user: u32) -> bool {
    fs::symlink_metadata(directory)
        .is_ok_and(|data| data.is_dir() && data.uid() == user && data.mode() & 0o077 == 0)
}

/// Removes the sockets that refuse connections. One that is being made does so, too, but its file
/// is younger than a second.
fn sweep(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_old = fs::symlink_metadata(&path)
            .and_then(|data| data.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age.as_secs() >= 1));
        let refuses = || -> Result<bool, Errno> {
            let address = SocketAddrUnix::new(&path)?;
            Ok(rustix::net::connect(&socket()?, &address) == Err(Errno::CONNREFUSED))
        };
        if is_old && refuses() == Ok(true) {
            let _ = fs::remove_file(&path);
        }
    }
}
