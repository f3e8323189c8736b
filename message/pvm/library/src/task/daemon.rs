//! The connection to the daemon of this host: finding it, enrolling, requests. Its answers
//! come into the task's receive buffer, as all that comes to a task does.

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
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};

/// How long the daemon may take to greet.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// Advice to the user of a program that finds no daemon.
const NO_DAEMON: &str = "no pvmd runs on this host for this user: start one with `nagaya pvm`";

/// Why a task could not enroll, in PVM's words.
#[derive(Debug)]
pub struct Refusal {
    /// What pvm_mytid returns.
    pub error: Error,
    /// What stands on standard error, line by line.
    pub lines: Vec<String>,
}

impl Refusal {
    fn new(line: String) -> Refusal {
        Refusal { error: Error::SysErr, lines: vec![line] }
    }
}

/// Where the daemon listens: `PVMSOCK`, or a name of the user's and, with `PVM_VMID`, the
/// virtual machine's own.
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

/// Connects. A daemon that is about to listen there, perhaps in place of one that was killed,
/// has the lock on the directory (`pvmd/src/socket.rs`).
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
    /// Connects to the daemon, and enrolls. Returns its greeting and the window's memory.
    pub fn enroll(request: Request) -> Result<(Daemon, Welcome, OwnedFd), Refusal> {
        let path = socket_path()?;
        let wrong = |error: io::Error| {
            let what = error.to_string();
            // As C says it.
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

    /// Reads the one frame that comes by the socket, and the descriptor with it.
    fn greeting(&mut self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut length = [0; 4];
        let mut into = [IoSliceMut::new(&mut length)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let came = recvmsg(&self.socket, &mut into, &mut ancillary, flags)?.bytes;
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

    /// Sends a frame. While the daemon is busy, or does not read from us because what we send
    /// to is full, `meanwhile` takes in what comes for us, and says whether something did.
    ///
    /// Errors: SysErr if the daemon has gone; NoMem for a frame that is too long.
    pub fn send(
        &mut self,
        frame: &Frame,
        mut meanwhile: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let bytes = encode(frame)?;
        let mut left = &bytes[..];
        while !left.is_empty() {
            // Not write: a program without a daemon gets an error code, no SIGPIPE.
            match send(&self.socket, left, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(Error::SysErr),
                Ok(n) => left = &left[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // Where one thing came, more will.
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

    /// Whether the daemon has gone.
    pub fn has_gone(&self) -> bool {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut ready, Some(&zero)), Ok(n) if n > 0)
            && ready[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// The socket, to be waited on for the daemon's end.
    pub fn socket(&self) -> impl AsFd {
        &self.socket
    }
}

/// A frame as it goes: its length, and itself.
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
