//! Descriptors that requesters pass to the delegatee. The delegatee reads and writes them as if it
//! had opened them: a node server has opened no files of its tasks.
//!
//! Descriptors go over a socket with an abstract name, which the queue's head contains. The kernel
//! authenticates both ends. The delegatee takes descriptors of living tasks of its space only, and
//! a requester sends them to the delegatee only. A number is valid for the requester that passed
//! it, until that requester closes it, releases the route on which it was sent, or ends.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::Identity;
use control::ThisTask;
use control::peer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::delegatee::Delegatee;
use crate::error::Error;
use crate::socket::{Ask, Asked, Requests, answer, ask};

/// A descriptor and its owner.
struct Passed {
    owner: Identity,
    descriptor: Arc<OwnedFd>,
}

static PASSED: Mutex<BTreeMap<i32, Passed>> = Mutex::new(BTreeMap::new());

fn passed() -> std::sync::MutexGuard<'static, BTreeMap<i32, Passed>> {
    PASSED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the descriptor of a requester's number. It remains open as long as the caller keeps it.
/// Error: EBADF.
pub(crate) fn descriptor(owner: Identity, number: i32) -> Result<Arc<OwnedFd>, Errno> {
    let passed = passed();
    let found = passed.get(&number).filter(|it| it.owner == owner);
    found.map(|it| it.descriptor.clone()).ok_or(Errno::BADF)
}

fn address(name: u64) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nagaya-delegatee-{name:016x}"))
}

fn system(error: &std::io::Error) -> Error {
    Error::System(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Lets requesters pass descriptors to the delegatee. A thread serves them.
pub fn accept(delegatee: &Delegatee) -> Result<(), Error> {
    let socket = &delegatee.head().socket;
    if socket.load(Acquire) != 0 {
        return Ok(());
    }
    let mut name = [0; 8];
    getrandom(&mut name[..], GetRandomFlags::empty())?;
    let name = u64::from_le_bytes(name) | 1;
    let listener = address(name).and_then(|at| UnixListener::bind_addr(&at));
    let listener = listener.map_err(|error| system(&error))?;
    let task = delegatee.task();
    let thread = std::thread::Builder::new().name("descriptors".into());
    thread.spawn(move || serve(&task, &listener)).map_err(|error| system(&error))?;
    socket.store(name, Release);
    Ok(())
}

/// A requester that has connected.
struct Peer {
    stream: UnixStream,
    requests: Requests,
    /// Readable when the requester has ended: a child of it may keep the connection open.
    process: OwnedFd,
    owner: Identity,
    /// Numbers of the descriptors that it has passed on this connection.
    numbers: Vec<i32>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut passed = passed();
        self.numbers.iter().for_each(|number| drop(passed.remove(number)));
    }
}

/// Serves the connections of all requesters.
fn serve(task: &ThisTask, listener: &UnixListener) {
    // Without free descriptors, new requesters wait until others close some.
    const NAP: Duration = Duration::from_millis(20);
    let mut peers: Vec<Peer> = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        for Peer { stream, process, .. } in &peers {
            fds.extend([PollFd::new(stream, PollFlags::IN), PollFd::new(process, PollFlags::IN)]);
        }
        if poll(&mut fds, None).is_err() {
            continue; // EINTR
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut events = ready[1..].chunks(2).map(|ready| (ready[0], ready[1]));
        peers.retain_mut(|peer| {
            let (has_requests, has_ended) = events.next().unwrap_or_default();
            !has_ended && (!has_requests || peer.answer_all())
        });
        if ready[0] {
            match accept_peer(task, listener) {
                Ok(peer) => peers.extend(peer),
                Err(_) => std::thread::sleep(NAP),
            }
        }
    }
}

/// Accepts a connection. `None` if the peer is gone already, or is no task of the space.
fn accept_peer(task: &ThisTask, listener: &UnixListener) -> std::io::Result<Option<Peer>> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    let pid = peer::credentials(&stream)?.pid;
    let Some(process) = Pid::from_raw(pid) else { return Ok(None) };
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return Ok(None) };
    let Some(owner) = living(task, pid as u32) else { return Ok(None) };
    let requests = Requests::default();
    Ok(Some(Peer { stream, requests, process, owner, numbers: Vec::new() }))
}

/// Returns the living task with this PID.
fn living(task: &ThisTask, pid: u32) -> Option<Identity> {
    let owner = task.control.identity(task.task_of(pid)?)?;
    (task.control.slot(owner.id).pid.load(SeqCst) == pid).then_some(owner)
}

impl Peer {
    /// Answers the requests that have arrived. Returns false if the connection is to be closed.
    fn answer_all(&mut self) -> bool {
        let Ok(is_open) = self.requests.fill(&self.stream) else { return false };
        loop {
            let result = match self.requests.next() {
                Ok(Some(Asked::Take(descriptor))) => self.take(descriptor),
                Ok(Some(Asked::Close(number))) => self.close(number),
                Ok(None) => return is_open,
                Err(_) => return false,
            };
            let result = result.unwrap_or_else(|errno| -errno.raw_os_error());
            // A requester waits for each answer, so there is room for one.
            if answer(&self.stream, result).is_err() {
                return false;
            }
        }
    }

    fn take(&mut self, descriptor: OwnedFd) -> Result<i32, Errno> {
        let number = descriptor.as_raw_fd();
        passed().insert(number, Passed { owner: self.owner, descriptor: Arc::new(descriptor) });
        self.numbers.push(number);
        Ok(number)
    }

    fn close(&mut self, number: i32) -> Result<i32, Errno> {
        let at = self.numbers.iter().position(|&it| it == number).ok_or(Errno::BADF)?;
        self.numbers.swap_remove(at);
        passed().remove(&number);
        Ok(0)
    }
}

/// A requester's connection to the delegatee.
#[derive(Debug)]
pub(crate) struct Connection(UnixStream);

impl Connection {
    /// Connects to the socket `name`, on which the process `delegatee` must listen.
    pub(crate) fn connect(name: u64, delegatee: u32) -> Result<Self, Error> {
        let stream = address(name).and_then(|at| UnixStream::connect_addr(&at));
        // The name of a delegatee on another machine does not exist here.
        let stream = stream.map_err(|_| Error::TakesNone)?;
        let peer = peer::credentials(&stream).map_err(|error| system(&error))?;
        if peer.pid as u32 != delegatee {
            return Err(Error::TakesNone);
        }
        Ok(Self(stream))
    }

    /// Passes a descriptor. Returns its number there, or `None` if the delegatee has gone.
    pub(crate) fn pass(&self, descriptor: BorrowedFd<'_>) -> Option<i32> {
        ask(&self.0, Ask::Take(descriptor)).ok()
    }

    /// Closes a passed descriptor.
    pub(crate) fn close(&self, number: i32) -> Option<i32> {
        ask(&self.0, Ask::Close(number)).ok()
    }
}
