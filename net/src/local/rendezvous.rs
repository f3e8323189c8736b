//! The meeting of two carriers of one machine and user: a socket in a directory that only this user
//! can enter, and the credentials of the other side.
//!
//! An address of this carrier has the boot ID of the machine, the inode of the network namespace,
//! and the path of the socket. Containers with networks of their own count as machines.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use proc::host;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;
use sync::inject::{self, Call};

use crate::carrier::Reason;
use crate::error::FabricError;
use crate::hex;
use crate::secret::random;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 256;
/// Length of a boot ID.
const BOOT_ID_BYTES: usize = size_of::<u128>();
/// Length of the part of an address before the path.
const PLACE_BYTES: usize = BOOT_ID_BYTES + size_of::<u64>();

/// A listening socket. Dropped, its file is removed.
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens in this user's directory. Removes sockets there that killed processes have left.
    ///
    /// # Errors
    /// The directory is not private, or the socket cannot be made.
    pub fn new() -> Result<Self, FabricError> {
        let directory = proc::directory::private("nagaya-net").map_err(FabricError::Directory)?;
        sweep(&directory);
        let path = directory.join(hex::encode(&random::<16>()));
        let listen = || -> Result<OwnedFd, Errno> {
            let socket = socket()?;
            rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let doing = "listen for processes of this user";
        let socket = listen().map_err(|errno| FabricError::System { doing, errno })?;
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
    if let Some(errno) = inject::error(Call::Accept) {
        return Err(errno);
    }
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
    let (boot, namespace) = place.split_at_mut(BOOT_ID_BYTES);
    boot.copy_from_slice(&host::boot_id().unwrap_or_default().to_le_bytes());
    namespace.copy_from_slice(&host::network_namespace().to_le_bytes());
    place
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
