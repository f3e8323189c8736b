//! The connection to the daemon of this host: lookup, enrollment, requests. The daemon's answers
//! arrive in the task's receive buffer, like all messages to a task.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pvm::error::Error;
use pvm::wire::{FRAME_MAX, Frame, Request, Welcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};

/// Time limit for the daemon to answer the request to enroll.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// Advice to the user of a program that finds no daemon.
const NO_DAEMON: &str = "no pvmd runs on this host for this user: start one with `nagaya pvm`";

/// The reason why a task could not enroll, in the terms of PVM.
#[derive(Debug)]
pub struct Refusal {
    /// The error that pvm_mytid returns.
    pub error: Error,
    /// The lines for standard error.
    pub lines: Vec<String>,
}

impl Refusal {
    fn new(line: String) -> Refusal {
        Refusal { error: Error::SysErr, lines: vec![line] }
    }
}

/// Returns the path of the daemon's socket: `PVMSOCK`, or the default of this user and of the
/// virtual machine `PVM_VMID`.
pub fn socket_path() -> Result<PathBuf, Refusal> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable("PVMSOCK") {
        return Ok(path.into());
    }
    let directory = control::directory().map_err(Refusal::new)?;
    let mut name = std::ffi::OsString::from("pvmd");
    if let Some(id) = variable("PVM_VMID") {
        name.push(".");
        name.push(id);
    }
    Ok(directory.join(name))
}

/// Connects to the socket. A daemon that starts, perhaps in place of a killed one, holds the lock
/// on the directory until it listens (`pvm/daemon/src/socket.rs`).
fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).or_else(|error| {
        let directory = path.parent().and_then(|directory| File::open(directory).ok());
        match directory.map(|directory| flock(&directory, FlockOperation::LockShared)) {
            Some(Ok(())) => UnixStream::connect(path),
            _ => Err(error),
        }
    })
}

/// The connection.
#[derive(Debug)]
pub struct Daemon {
    socket: UnixStream,
}

impl Daemon {
    /// Connects to the daemon, and enrolls. Returns its welcome and the window's memory.
    pub fn enroll(request: Request) -> Result<(Daemon, Welcome, OwnedFd), Refusal> {
        let path = socket_path()?;
        let wrong = |error: io::Error| {
            let what = error.to_string();
            // The text of strerror(3).
            let what = what.split(" (os error").next().unwrap_or_default();
            Refusal::new(format!("{}: {what}", path.display()))
        };
        let socket = connect(&path).map_err(|error| {
            let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
            let advice = nobody.contains(&error.kind()).then(|| NO_DAEMON.to_string());
            let mut refusal = wrong(error);
            refusal.lines.extend(advice);
            refusal
        })?;
        let peer = socket_peercred(&socket).map_err(|error| wrong(error.into()))?;
        let own = rustix::process::geteuid();
        if peer.uid != own && !peer.uid.is_root() {
            let line = format!("{}: the daemon is another user's", path.display());
            return Err(Refusal::new(line));
        }
        socket.set_read_timeout(Some(GREETING_TIMEOUT)).map_err(wrong)?;
        let mut daemon = Daemon { socket };
        daemon
            .send(&Frame { id: 0, request }, || false)
            .map_err(|error| Refusal { error, lines: Vec::new() })?;
        let (greeting, window) = daemon.greeting().map_err(wrong)?;
        let greeting: Result<Welcome, i32> = postcard::from_bytes(&greeting)
            .map_err(|_| Refusal::new(format!("{}: not a pvmd of ours", path.display())))?;
        match (greeting, window) {
            (Ok(welcome), Some(window)) => {
                daemon.socket.set_read_timeout(None).map_err(wrong)?;
                daemon.socket.set_nonblocking(true).map_err(wrong)?;
                Ok((daemon, welcome, window))
            }
            (Err(code), _) => Err(Refusal {
                error: Error::from_code(code).unwrap_or(Error::SysErr),
                lines: vec!["pvmd refuses connection".into()],
            }),
            (Ok(_), None) => Err(Refusal::new(format!("{}: no window came", path.display()))),
        }
    }

    /// Reads the only frame that arrives by the socket, and its descriptor.
    fn greeting(&mut self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0; 4];
        let mut into = [IoSliceMut::new(&mut length)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        // With a time limit of the socket, a SIGSTOP interrupts this call, too.
        let came = retry_on_intr(|| recvmsg(&self.socket, &mut into, &mut ancillary, flags))?.bytes;
        let mut window = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                window = descriptors.next();
            }
        }
        if came == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.socket.read_exact(&mut length[came..])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > 1 << 20 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut frame = vec![0; length];
        self.socket.read_exact(&mut frame)?;
        Ok((frame, window))
    }

    /// Sends a frame. The daemon may be busy, or may have stopped reading because the destination
    /// is full. Meanwhile `meanwhile` processes arriving messages, and returns true if there was
    /// one.
    ///
    /// Errors: SysErr if the daemon has ended; NoMem for a frame that is too long.
    pub fn send(
        &mut self,
        frame: &Frame,
        mut meanwhile: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let bytes = encode(frame)?;
        let mut left = &bytes[..];
        while !left.is_empty() {
            // Unlike write, this causes no SIGPIPE if the daemon has ended.
            match send(&self.socket, left, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(Error::SysErr),
                Ok(n) => left = &left[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // After one message, more are likely.
                    let nap_ns = if meanwhile() { 0 } else { 1_000_000 };
                    let mut ready = [PollFd::new(&self.socket, PollFlags::OUT)];
                    let nap = rustix::event::Timespec { tv_sec: 0, tv_nsec: nap_ns };
                    let _ = poll(&mut ready, Some(&nap));
                }
                Err(_) => return Err(Error::SysErr),
            }
        }
        Ok(())
    }

    /// Returns true if the daemon has ended.
    pub fn has_gone(&self) -> bool {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut ready, Some(&zero)), Ok(n) if n > 0)
            && ready[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// Returns the socket, which becomes readable when the daemon ends.
    pub fn socket(&self) -> impl AsFd {
        &self.socket
    }
}

/// Encodes a frame: its length, then its bytes.
fn encode(frame: &Frame) -> Result<Vec<u8>, Error> {
    let bytes = postcard::to_extend(frame, vec![0; 4]).map_err(|_| Error::BadParam)?;
    let length = bytes.len() - 4;
    if length > FRAME_MAX {
        return Err(Error::NoMem);
    }
    let mut bytes = bytes;
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}
