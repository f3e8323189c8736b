//! The carrier between processes of one machine and user: rings in shared memory. No port is
//! opened, and nobody but this user can connect.
//!
//! [`rendezvous`] connects two processes by a socket, [`rings`] is the memory that they share, and
//! [`connection`] moves messages through it. A side that sleeps is woken by a byte on the socket,
//! whose end also shows the end of the other process.

pub(crate) mod connection;
mod rendezvous;
pub(crate) mod rings;

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use slotmap::{DefaultKey, Key as _, SlotMap};
use sync::wait::Backoff;

use crate::carrier::{Carrier, EndpointId, Happened, Landing, Reason, Sending, There, Way, key_of};
use crate::error::FabricError;
use crate::payload::Payload;
use crate::stream::input::{Arrival, Broken, Input};
use crate::stream::outgoing::Outgoing;
use connection::{Connection, RECORD_BYTES_MAX};
use rendezvous::Listener;
use rings::Rings;

/// Time limit for a caller to send its rings.
const BEGIN_MAX: Duration = Duration::from_secs(5);
/// Time after which a socket accepts again that could not.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Time limit for the last messages.
const END_MAX: Duration = Duration::from_secs(1);
/// Maximum number of callers whose rings have not come.
const BEGINNING_MAX: usize = 128;
/// The sockets are polled once in so many calls of `progress`; a system call takes longer than a
/// look at the rings.
const POLL_INTERVAL: u32 = 64;
/// Maximum number of records that are received at once from one peer.
const RECORDS_MAX: usize = 64;
/// Maximum number of events that are handled at once.
const EVENTS_MAX: usize = 64;
/// The data of the listening socket's epoll event.
const LISTENER: u64 = u64::MAX;

const BROKEN: &str = "the connection broke: its process has ended";

/// The carrier between processes of one machine.
pub struct Local {
    listener: Option<Listener>,
    /// Until when no caller is accepted, for lack of descriptors or memory.
    deaf_until: Option<Instant>,
    address: Vec<u8>,
    epoll: OwnedFd,
    connections: SlotMap<DefaultKey, Connection>,
    happened: VecDeque<Happened>,
    /// Peers were told that this side sleeps.
    is_asleep: bool,
    /// Calls of `progress` until the sockets are polled.
    until_poll: u32,
    /// See [`Input::record`](crate::stream::input::Input::record).
    plain: Box<[u8]>,
    refused: u64,
}

impl Local {
    /// A carrier that listens.
    pub fn new() -> Result<Self, FabricError> {
        let failed =
            |errno| FabricError::System { doing: "listen for processes of this user", errno };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let listener = Listener::new()?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener.socket, data, epoll::EventFlags::IN).map_err(failed)?;
        Ok(Self {
            address: listener.address(),
            listener: Some(listener),
            deaf_until: None,
            epoll,
            connections: SlotMap::new(),
            happened: VecDeque::new(),
            is_asleep: false,
            until_poll: 0,
            plain: vec![0; RECORD_BYTES_MAX].into(),
            refused: 0,
        })
    }

    fn add(&mut self, connection: Connection) -> Result<DefaultKey, Errno> {
        let key = self.connections.insert(connection);
        let data = epoll::EventData::new_u64(key.data().as_ffi());
        let socket = &self.connections[key].socket;
        match epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN) {
            Ok(()) => Ok(key),
            Err(errno) => {
                self.connections.remove(key);
                Err(errno)
            }
        }
    }

    /// Closes a connection, also where a forked child has the socket, too.
    fn remove(&mut self, key: DefaultKey) {
        if let Some(connection) = self.connections.remove(key) {
            let _ = epoll::delete(&self.epoll, &connection.socket);
            let _ = shutdown(&connection.socket, Shutdown::Both);
        }
    }

    /// Handles the events of sockets. Returns true if there were any.
    fn poll(&mut self) -> bool {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else {
            return false;
        };
        for event in &*events {
            match event.data.u64() {
                LISTENER => self.accept(),
                name => self.is_readable(key_of(name)),
            }
        }
        !events.is_empty()
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        let socket = match rendezvous::accept(listener) {
            Ok(socket) => socket,
            Err(Errno::PERM) => return self.refused += 1,
            // The caller stays in the queue, and would wake this side again and again.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.deaf_until = Some(Instant::now() + ACCEPT_PAUSE);
                return self.watch_listener(epoll::EventFlags::empty());
            }
            Err(_) => return,
        };
        let beginning = self.connections.values().filter(|c| c.rings.is_err()).count();
        if beginning < BEGINNING_MAX {
            let _ = self.add(Connection::new(socket, Err(Instant::now() + BEGIN_MAX)));
        }
    }

    fn watch_listener(&self, flags: epoll::EventFlags) {
        if let Some(listener) = &self.listener {
            let data = epoll::EventData::new_u64(LISTENER);
            let _ = epoll::modify(&self.epoll, &listener.socket, data, flags);
        }
    }

    fn is_readable(&mut self, key: DefaultKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.rings.is_err() {
            match Rings::receive(connection.socket.as_fd()) {
                Ok(Some(rings)) => connection.rings = Ok(rings),
                Ok(None) => {}
                Err(_) => self.remove(key),
            }
        } else if !connection.read_wake_ups() {
            connection.has_ended = true;
            // The rest of its messages comes first; the socket has nothing more to report.
            let _ = epoll::delete(&self.epoll, &connection.socket);
        }
    }

    /// Moves messages of all connections. Returns true if there were any.
    fn pump(&mut self) -> bool {
        let Self { connections, happened, plain, .. } = self;
        let (mut any, mut failed) = (false, Vec::new());
        for (key, connection) in connections.iter_mut().filter(|(_, c)| !c.has_failed) {
            any |= connection.send(|tag| happened.push_back(Happened::Sent(tag, Ok(()))));
            let name = key.data().as_ffi();
            let mut records = 0;
            let why = loop {
                let event = |arrival: Arrival| happened.push_back(arrival.into_event(name));
                match connection.receive(plain, event) {
                    Ok(true) => any = true,
                    Ok(false) if connection.has_ended && !connection.input.is_paused() => {
                        break Some(BROKEN);
                    }
                    Ok(false) => break None,
                    Err(Broken(why)) => break Some(why),
                }
                records += 1;
                if records == RECORDS_MAX {
                    break None;
                }
            };
            failed.extend(why.map(|why| (key, why)));
        }
        any |= !failed.is_empty();
        failed.into_iter().for_each(|(key, why)| self.fail(key, why));
        any
    }

    fn fail(&mut self, key: DefaultKey, why: &'static str) {
        let connection = &mut self.connections[key];
        let sends = std::mem::take(&mut connection.queue).into_iter();
        self.happened.extend(sends.map(|sent| Happened::Sent(sent.tag, Err(why.into()))));
        let receive = connection.input.abandon();
        self.happened.extend(receive.map(|tag| Happened::Received(tag, None)));
        match connection.tag {
            None => self.remove(key),
            Some(tag) => {
                connection.has_failed = true;
                self.happened.push_back(Happened::Failed(tag, why.into()));
                let _ = epoll::delete(&self.epoll, &connection.socket);
                let _ = shutdown(&connection.socket, Shutdown::Both);
            }
        }
    }

    fn awake(&mut self) {
        if std::mem::take(&mut self.is_asleep) {
            self.connections.values_mut().for_each(Connection::awake);
        }
    }
}

impl Carrier for Local {
    fn address(&self) -> Result<Vec<u8>, FabricError> {
        Ok(self.address.clone())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        self.is_asleep = true;
        let mut may_sleep = self.happened.is_empty();
        for connection in self.connections.values_mut().filter(|c| !c.has_failed) {
            let happened = &mut self.happened;
            let done = |tag| happened.push_back(Happened::Sent(tag, Ok(())));
            may_sleep &= connection.about_to_sleep(done) && !connection.has_ended;
        }
        // After the announcement: a wake-up that comes now stays readable.
        may_sleep &= !self.poll();
        if !may_sleep {
            self.awake();
        }
        Ok(may_sleep)
    }

    fn progress(&mut self) -> bool {
        if !self.happened.is_empty() {
            return true; // one of the events may be a message that needs a place first
        }
        // A woken side must read its wake-up, or the descriptor stays readable.
        let was_asleep = self.is_asleep;
        self.awake();
        let mut any = self.pump();
        self.until_poll = self.until_poll.saturating_sub(1);
        if was_asleep || self.until_poll == 0 {
            self.until_poll = POLL_INTERVAL;
            any |= self.poll();
        }
        any
    }

    fn next(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    fn connect(&mut self, address: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        let failed = |errno| Reason::from(format!("cannot share memory with it: {errno}"));
        let socket = rendezvous::connect(address)?;
        let rings = Rings::create(socket.as_fd()).map_err(failed)?;
        let mut connection = Connection::new(socket, Ok(rings));
        connection.tag = Some(tag);
        Ok(self.add(connection).map_err(failed)?.data().as_ffi())
    }

    fn answer(&mut self, way: Way, _: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        let connection = self.connections.get_mut(key_of(way.0));
        let is_free = |c: &&mut Connection| c.tag.is_none() && !c.has_failed;
        connection.filter(is_free).ok_or(BROKEN)?.tag = Some(tag);
        Ok(way.0)
    }

    fn adopt(&mut self, way: Way, tag: u64) -> Option<EndpointId> {
        self.answer(way, &[], tag).ok()
    }

    fn close(&mut self, endpoint: EndpointId) {
        let key = key_of(endpoint);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(tag) = connection.tag.take() else { return };
        let sends = std::mem::take(&mut connection.queue).into_iter();
        self.happened.extend(sends.map(|sent| Happened::Sent(sent.tag, Err(BROKEN.into()))));
        let receive = connection.input.abandon();
        self.happened.extend(receive.map(|tag| Happened::Received(tag, None)));
        self.happened.push_back(Happened::Closed(tag));
        // The other side has the memory, and reads the messages in it before it sees the end.
        self.remove(key);
    }

    fn send(&mut self, endpoint: EndpointId, header: &[u8], payload: Payload, tag: u64) -> Sending {
        let key = key_of(endpoint);
        let Some(connection) = self.connections.get_mut(key).filter(|c| !c.has_failed) else {
            return Sending::Failed(BROKEN.into());
        };
        if connection.send_short(header, &payload) {
            return Sending::Done;
        }
        connection.queue.push_back(Outgoing::new(header.to_vec(), payload, tag));
        let (mut is_done, happened) = (false, &mut self.happened);
        connection.send(|sent| match sent == tag {
            true => is_done = true,
            false => happened.push_back(Happened::Sent(sent, Ok(()))),
        });
        if is_done { Sending::Done } else { Sending::Pending }
    }

    fn receive(&mut self, there: There, landing: Landing, tag: u64) -> Option<Landing> {
        let input = self.connections.get_mut(key_of(there.name)).map(|c| &mut c.input);
        self.happened.extend(Input::accept_from(input, landing, tag));
        None
    }

    fn refuse(&mut self, there: There) {
        if let Some(connection) = self.connections.get_mut(key_of(there.name)) {
            connection.input.refuse();
        }
    }

    fn settle(&mut self) {
        let until = Instant::now() + END_MAX;
        let mut backoff = Backoff::default();
        let waits = |c: &Connection| !c.has_failed && !c.has_ended && !c.queue.is_empty();
        while self.connections.values().any(waits) && Instant::now() < until {
            self.poll();
            let happened = &mut self.happened;
            for connection in self.connections.values_mut() {
                connection.send(|tag| happened.push_back(Happened::Sent(tag, Ok(()))));
            }
            backoff.pause();
        }
    }

    fn tend(&mut self) {
        let now = Instant::now();
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            self.watch_listener(epoll::EventFlags::IN);
        }
        let is_late = |c: &Connection| c.rings.as_ref().err().is_some_and(|&until| until <= now);
        let late: Vec<_> =
            self.connections.iter().filter(|(_, c)| is_late(c)).map(|(key, _)| key).collect();
        for key in late {
            self.refused += 1;
            self.remove(key);
        }
    }

    fn needs_tending(&self) -> bool {
        let begins = |connection: &Connection| connection.rings.is_err();
        self.deaf_until.is_some() || self.connections.values().any(begins)
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let keys: Vec<_> = self.connections.keys().collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }
}
