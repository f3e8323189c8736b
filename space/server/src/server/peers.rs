//! The connected stubs and tools. Each has its own queue of replies, so a peer that does not read
//! delays only itself.
//!
//! A peer's next request is read when the replies to the former ones are sent, and one request of a
//! peer is handled in each turn. So a peer can neither fill the server's memory nor keep it from
//! the others.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use pvas::connection::Connection;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use sync::clock;
use sync::inject::{self, Call};

use crate::job::check_peer;
use crate::protocol::{REQUEST_SIZE_MAX, Reply, Request, connection};

/// Event data of the listening socket.
const LISTENER: u64 = 0;
/// Event data of the signal descriptor.
const SIGNALS: u64 = 1;
const FIRST_PEER: u64 = 2;

/// Events of one turn.
const EVENTS_MAX: usize = 64;
/// Connections that one turn accepts.
const ACCEPTS_MAX: usize = 64;
/// Time without accepts after one has failed, unless a peer disconnects. Descriptors or memory are
/// missing then, and the kernel keeps the clients waiting.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Time limit for a tool to read some bytes of its reply. A stub has no limit, because its task
/// depends on it, and its replies are short.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of all queued replies together, beyond which there are no long replies.
const QUEUES_SIZE_MAX: usize = 16 << 20;
/// Limit of a peer's queue for a report that the peer has not requested.
const REPORTS_SIZE_MAX: usize = 64 << 10;

/// A connected stub or tool.
#[derive(Debug)]
pub struct Peer {
    /// Connection to it.
    pub connection: Connection,
    /// Its PID; 0 if it is in another PID namespace.
    pub pid: i32,
    /// PID of the task that it represents.
    pub task: Option<u32>,
    /// The task outlives this connection.
    pub spares: bool,
    /// It sends no more requests, or none that the server reads.
    closed: bool,
    /// The time at which it last took bytes of its queue, or at which the queue began.
    taken: Instant,
}

/// An event of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Signals have arrived.
    Signals,
    /// The peer of this key may have sent a request.
    Peer(u64),
}

/// The reason why a peer sends no more requests.
#[derive(Debug)]
pub enum Lost {
    /// It has closed the connection, or broken the protocol.
    Closed,
    /// Its bytes cannot be read. The cause may be this server's limit of open files.
    Failed(io::Error),
}

/// The peers, by key, and the socket by which they connect.
#[derive(Debug)]
pub struct Peers {
    listener: OwnedFd,
    epoll: OwnedFd,
    peers: HashMap<u64, Peer>,
    next_key: u64,
    /// Accepts resume at this time.
    pause_ends: Option<Instant>,
    /// Peers with a request that has been read and is not handled yet.
    ready: Vec<u64>,
    /// Peers whose queue is not empty.
    unread: Vec<u64>,
}

impl Peers {
    /// Waits for peers on `listener`, and for signals on `signals`.
    pub fn new(listener: OwnedFd, signals: &OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (fd, key) in [(&listener, LISTENER), (signals, SIGNALS)] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            listener,
            epoll,
            peers: HashMap::new(),
            next_key: FIRST_PEER,
            pause_ends: None,
            ready: Vec::new(),
            unread: Vec::new(),
        })
    }

    /// Returns true if no peer is connected.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Returns the peer of a key, if it is connected.
    pub fn get(&self, key: u64) -> Option<&Peer> {
        self.peers.get(&key)
    }

    /// Returns the peer of a key, if it is connected.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut Peer> {
        self.peers.get_mut(&key)
    }

    /// Returns true if the unread replies leave room for a long one.
    pub fn have_room(&self) -> bool {
        let queued = |key| self.peers.get(key).map_or(0, |peer| peer.connection.queued());
        self.unread.iter().map(queued).sum::<usize>() < QUEUES_SIZE_MAX
    }

    /// Waits at most `timeout` for events, accepts connections, and sends queued replies. Returns
    /// the events, and the keys of the peers that the caller must remove.
    pub fn wait(&mut self, timeout: Option<Duration>) -> (Vec<Event>, Vec<u64>) {
        let timeout = self.limited(timeout).map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        // On EINTR there are no events.
        let _ = epoll::wait(&self.epoll, buffer, timeout.as_ref());
        let mut found = Vec::with_capacity(events.len() + self.ready.len());
        let mut lost = Vec::new();
        for event in &events {
            match event.data.u64() {
                LISTENER => self.accept(),
                SIGNALS => found.push(Event::Signals),
                key if self.flush(key).is_err() => lost.push(key),
                key => found.push(Event::Peer(key)),
            }
        }
        found.extend(self.ready.drain(..).map(Event::Peer));
        self.resume_accepts();
        let now = clock::now();
        let is_late = |key: &&u64| {
            let peer = self.peers.get(key);
            peer.and_then(Peer::reads_until).is_some_and(|deadline| deadline <= now)
        };
        lost.extend(self.unread.iter().filter(is_late));
        (found, lost)
    }

    /// Shortens a time limit to the next event that no descriptor announces.
    fn limited(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let unread = self.unread.iter().filter_map(|key| self.peers.get(key)?.reads_until());
        let next = unread.chain(self.pause_ends).min();
        let next = next.map(|next| next.saturating_duration_since(clock::now()));
        timeout.into_iter().chain(next).min()
    }

    /// Returns the time that [`Peers::wait`] would sleep; `None` if only an event can wake it.
    #[cfg(test)]
    pub fn sleep_time(&self, timeout: Option<Duration>) -> Option<Duration> {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        if ready { Some(Duration::ZERO) } else { self.limited(timeout) }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..ACCEPTS_MAX {
            let accepted = match inject::error(Call::Accept) {
                Some(errno) => Err(errno),
                None => accept_with(&self.listener, flags),
            };
            let socket = match accepted {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // The clients stay in the listener's queue, so it would wake this thread again and
                // again.
                Err(_) => return self.pause_accepts(),
            };
            let Ok(pid) = check_peer(&socket) else { continue };
            let key = self.next_key;
            self.next_key += 1;
            let data = epoll::EventData::new_u64(key);
            if inject::error(Call::Watch).is_none()
                && epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_ok()
            {
                let connection = connection(socket).with_body_size_max(REQUEST_SIZE_MAX);
                let taken = clock::now();
                let (task, spares, closed) = (None, false, false);
                self.peers.insert(key, Peer { connection, pid, task, spares, closed, taken });
            }
        }
    }

    fn pause_accepts(&mut self) {
        let data = epoll::EventData::new_u64(LISTENER);
        let none = epoll::EventFlags::empty();
        if epoll::modify(&self.epoll, &self.listener, data, none).is_ok() {
            self.pause_ends = Some(clock::now() + ACCEPT_PAUSE);
        }
    }

    fn resume_accepts(&mut self) {
        if self.pause_ends.is_none_or(|end| end > clock::now()) {
            return;
        }
        let data = epoll::EventData::new_u64(LISTENER);
        if epoll::modify(&self.epoll, &self.listener, data, epoll::EventFlags::IN).is_ok() {
            self.pause_ends = None;
        }
    }

    /// Reads from a peer, and returns its next request. `Ok(None)` if there is none yet.
    pub fn next(&mut self, key: u64) -> Result<Option<(Request, Vec<OwnedFd>)>, Lost> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(None) };
        if peer.connection.queued() > 0 {
            return Ok(None);
        }
        if !peer.connection.has_message() && !peer.closed {
            peer.closed = !peer.connection.fill().map_err(Lost::Failed)?;
        }
        match peer.connection.take() {
            Ok(None) if peer.closed => Err(Lost::Closed),
            Ok(request) => Ok(request),
            Err(_) => Err(Lost::Closed),
        }
    }

    /// Queues a reply, and sends as much as the peer's socket takes.
    ///
    /// # Errors
    /// The peer has disconnected; the caller must remove it.
    pub fn reply(&mut self, key: u64, reply: &Reply) -> io::Result<()> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(()) };
        // A stopped stub does not read. A later stop of its task is no news then.
        let is_report = matches!(reply, Reply::Stopped { .. } | Reply::RanksMissing { .. });
        if is_report && peer.connection.queued() > REPORTS_SIZE_MAX {
            return Ok(());
        }
        if peer.connection.queued() == 0 {
            peer.taken = clock::now();
        }
        peer.connection.queue(reply)?;
        self.flush(key)
    }

    /// Sends the last reply to a peer. Returns false if some of it is left; the peer then stays
    /// until it has read that.
    pub fn finish(&mut self, key: u64, reply: &Reply) -> bool {
        if self.reply(key, reply).is_err() {
            return true;
        }
        let Some(peer) = self.peers.get_mut(&key) else { return true };
        peer.closed = true;
        peer.connection.queued() == 0
    }

    /// Sends as many replies as the peer's socket takes, and updates the events to wait for.
    fn flush(&mut self, key: u64) -> io::Result<()> {
        let Some(peer) = self.peers.get_mut(&key) else { return Ok(()) };
        if peer.connection.queued() > 0 && peer.connection.flush()? > 0 {
            peer.taken = clock::now();
        }
        let is_unread = peer.connection.queued() > 0;
        if is_unread != self.unread.contains(&key) {
            match is_unread {
                true => self.unread.push(key),
                false => self.unread.retain(|&it| it != key),
            }
        }
        self.watch(key)
    }

    /// Waits for the events that the server can handle: room for queued replies, or a request.
    pub fn watch(&mut self, key: u64) -> io::Result<()> {
        let Some(peer) = self.peers.get(&key) else { return Ok(()) };
        let is_unread = peer.connection.queued() > 0;
        let is_ready = !is_unread && (peer.closed || peer.connection.has_message());
        if is_ready && !self.ready.contains(&key) {
            self.ready.push(key);
        }
        let events = match (is_unread, is_ready) {
            (true, _) => epoll::EventFlags::OUT,
            (false, true) => epoll::EventFlags::empty(),
            (false, false) => epoll::EventFlags::IN,
        };
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::modify(&self.epoll, &peer.connection, data, events)?)
    }

    /// Removes a peer and closes its connection.
    pub fn remove(&mut self, key: u64) -> Option<Peer> {
        let peer = self.peers.remove(&key)?;
        let _ = epoll::delete(&self.epoll, &peer.connection);
        self.ready.retain(|&it| it != key);
        self.unread.retain(|&it| it != key);
        // A descriptor is free now.
        if self.pause_ends.is_some() {
            self.pause_ends = Some(clock::now());
        }
        Some(peer)
    }
}

impl Peer {
    /// Returns the time until which a tool must have read some more of its reply.
    fn reads_until(&self) -> Option<Instant> {
        let is_tool = self.task.is_none() && self.connection.queued() > 0;
        is_tool.then(|| self.taken + UNREAD_TIMEOUT)
    }
}

#[cfg(test)]
pub(super) mod tests;
