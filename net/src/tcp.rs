//! The carrier over TCP, between hosts without RDMA devices.
//!
//! Each connection is a Noise session ([`noise`]): authenticated by the job's secret, and
//! encrypted. Nothing else is parsed before the session stands. Callers that have not proved
//! themselves are bounded in number, time and bytes. [`record`] is the stream of sealed records,
//! [`output`] the outgoing side without I/O, [`connection`] is one connection, and [`interfaces`]
//! selects the addresses to listen on and to dial.

pub(crate) mod connection;
pub(crate) mod interfaces;
pub(crate) mod noise;
mod output;
pub(crate) mod record;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use slotmap::{DefaultKey, Key as _, SlotMap};
use sync::inject::{self, Call};
use sync::wait::Backoff;

use crate::carrier::{Carrier, EndpointId, Happened, Landing, Reason, Sending, There, Way, key_of};
use crate::error::FabricError;
use crate::payload::Payload;
use crate::secret::{Secret, random};
use crate::sockets::{is_dead, keep_alive, unacknowledged_bytes};
use crate::stream::input::{Arrival, Broken, Input};
use crate::stream::outgoing::Outgoing;
use connection::{BEGIN_MAX, Connection, END_MAX, Io, Refusal, Stage, Taken};
use noise::{Handshake, Instance, SEALED_BYTES_MAX};

/// Maximum number of callers that have not proved themselves. The oldest gives way to a new one.
const STRANGERS_MAX: usize = 128;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 256;
/// Size of the buffer for incoming bytes.
const INPUT_BYTES: usize = 256 << 10;
/// Maximum number of events that are handled at once.
const EVENTS_MAX: usize = 64;
/// In the data of an epoll event, marks the number of a listening socket.
const LISTENER: u64 = 1 << 63;
/// While there is no connection, callers are accepted once in so many calls of `progress`.
const POLL_INTERVAL: u32 = 64;
/// Messages in a row from one connection after which it is read without asking the epoll
/// descriptor, except once in so many calls of `progress`: others may send, too.
const USUAL_MIN: u32 = 16;
const EPOLL_INTERVAL: u32 = 8;
/// Time limit for one of several addresses of a peer.
const DIAL_MAX: Duration = Duration::from_secs(1);
/// Time after which a socket accepts again that could not for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Time for peers to call by the interfaces of common networks. Then all interfaces are open to
/// them: two networks may have the same addresses.
const WIDEN_AFTER: Duration = Duration::from_secs(5);

const BROKEN: &str = "the connection broke: its process has ended, or its host or network failed";
const REFUSED: &str = "it has ended the connection in the handshake; has it the same secret?";
const SILENT: &str = "it does not answer; does it run, and is its network reachable?";
const UNAUTHENTIC: &str = "it does not hold the secret of this job";

/// A socket for callers.
struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
    is_open: bool,
}

/// The carrier over TCP.
pub struct Tcp {
    secret: Secret,
    instance: Instance,
    listening: Vec<Listener>,
    /// When all of these listen again. They do not while peers are expected by other interfaces.
    wide_at: Option<Instant>,
    /// Until when no caller is accepted, for lack of descriptors.
    deaf_until: Option<Instant>,
    epoll: OwnedFd,
    connections: SlotMap<DefaultKey, Connection>,
    /// The callers that have not proved themselves, the oldest first, and some that have.
    strangers: VecDeque<DefaultKey>,
    happened: VecDeque<Happened>,
    /// Incoming bytes.
    buffer: Box<[u8]>,
    /// The connection whose bytes from the first to before the second position of the buffer are
    /// not handled yet.
    current: Option<(DefaultKey, usize, usize)>,
    /// See [`record::open`].
    plain: Box<[u8]>,
    /// Calls of `progress` until callers are accepted, while there is no connection.
    until_poll: u32,
    /// The connection from which bytes came last, and how often in a row, up to [`USUAL_MIN`].
    usual: Option<(DefaultKey, u32)>,
    /// Looks at this connection only, until the epoll descriptor is asked.
    until_epoll: u32,
    /// The user may have slept on the epoll descriptor, and may have been woken by any socket.
    is_armed: bool,
    refused: u64,
}

impl Tcp {
    /// A carrier that listens.
    pub fn new(secret: &Secret) -> Result<Self, FabricError> {
        let failed = |doing| move |errno| FabricError::System { doing, errno };
        let flags = epoll::CreateFlags::CLOEXEC;
        let epoll = epoll::create(flags).map_err(failed("wait for connections"))?;
        let mut listening = Vec::new();
        let addresses = interfaces::own();
        if addresses.is_empty() {
            return Err(FabricError::NoInterface);
        }
        for ip in addresses {
            let socket = listen((ip, 0).into()).map_err(failed("listen for other nodes"))?;
            epoll::add(&epoll, &socket, listener_data(listening.len()), epoll::EventFlags::IN)
                .map_err(failed("wait for connections"))?;
            let bound = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from);
            let address = bound.map_err(failed("find its own port"))?;
            listening.push(Listener { socket, address, is_open: true });
        }
        Ok(Self {
            secret: secret.clone(),
            instance: random(),
            listening,
            wide_at: None,
            deaf_until: None,
            epoll,
            connections: SlotMap::new(),
            strangers: VecDeque::new(),
            happened: VecDeque::new(),
            buffer: vec![0; INPUT_BYTES].into(),
            current: None,
            plain: vec![0; SEALED_BYTES_MAX].into(),
            until_poll: 0,
            usual: None,
            until_epoll: 0,
            is_armed: false,
            refused: 0,
        })
    }

    /// Handles the events of sockets. Returns true if there were any.
    fn poll(&mut self) -> bool {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else {
            return false;
        };
        for event in &*events {
            let (name, flags) = (event.data.u64(), event.flags);
            if name & LISTENER != 0 {
                self.accept((name & !LISTENER) as usize);
                continue;
            }
            let key = key_of(name);
            let unread = !epoll::EventFlags::OUT;
            if flags.intersects(epoll::EventFlags::OUT) {
                self.is_writable(key);
            }
            if flags.intersects(unread) {
                self.is_readable(key);
            }
            if self.current.is_some() {
                break; // the other events are reported again
            }
        }
        !events.is_empty()
    }

    fn accept(&mut self, listener: usize) {
        let Some(Listener { socket, .. }) = self.listening.get(listener) else { return };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = match inject::error(Call::Accept) {
            Some(errno) => Err(errno),
            None => rustix::net::accept_with(socket, flags),
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.deaf_until = Some(Instant::now() + ACCEPT_PAUSE);
                return self.watch_listeners(epoll::EventFlags::empty());
            }
            Err(_) => return,
        };
        self.strangers
            .retain(|&key| self.connections.get(key).is_some_and(Connection::is_stranger));
        if self.strangers.len() >= STRANGERS_MAX
            && let Some(oldest) = self.strangers.pop_front()
        {
            self.refused += 1;
            self.remove(oldest);
        }
        let handshake = Handshake::responder(&self.secret, &self.instance);
        let stage = Stage::Called(Instant::now() + BEGIN_MAX, handshake);
        let key = self.connections.insert(Connection::new(socket, stage));
        match self.register(key) {
            Ok(()) => self.strangers.push_back(key),
            Err(_) => self.remove(key),
        }
    }

    fn watch_listeners(&self, flags: epoll::EventFlags) {
        for (number, listener) in self.listening.iter().enumerate().filter(|(_, it)| it.is_open) {
            let _ = epoll::modify(&self.epoll, &listener.socket, listener_data(number), flags);
        }
    }

    /// Listens on all interfaces again.
    fn widen(&mut self) {
        self.wide_at = None;
        let watched = if self.deaf_until.is_some() {
            epoll::EventFlags::empty()
        } else {
            epoll::EventFlags::IN
        };
        for (number, listener) in self.listening.iter_mut().enumerate().filter(|it| !it.1.is_open) {
            let opened = rustix::net::listen(&listener.socket, BACKLOG).and_then(|()| {
                epoll::add(&self.epoll, &listener.socket, listener_data(number), watched)
            });
            listener.is_open = opened.is_ok();
        }
    }

    /// Lets the epoll descriptor report the events that the connection waits for.
    fn watch(&self, key: DefaultKey) {
        let data = epoll::EventData::new_u64(key.data().as_ffi());
        let connection = &self.connections[key];
        let _ = epoll::modify(&self.epoll, &connection.socket, data, connection.interest());
    }

    /// Closes a socket, also where a forked child has it, too.
    fn close_socket(&self, connection: &Connection) {
        let _ = epoll::delete(&self.epoll, &connection.socket);
        connection.shut_down();
    }

    fn remove(&mut self, key: DefaultKey) {
        if let Some(connection) = self.connections.remove(key) {
            self.close_socket(&connection);
            if self.current.is_some_and(|(current, ..)| current == key) {
                self.current = None;
            }
        }
    }

    /// Takes addresses from the list until one can be dialed.
    fn dial(others: &mut Vec<SocketAddr>) -> Result<(OwnedFd, Stage), Reason> {
        let mut last = Reason::from("its address names no socket");
        while !others.is_empty() {
            let address = others.remove(0);
            match dial(address) {
                Ok(socket) => {
                    let time = if others.is_empty() { BEGIN_MAX } else { DIAL_MAX };
                    return Ok((socket, Stage::Dialing(Instant::now() + time)));
                }
                Err(errno) => last = format!("cannot connect to {address}: {errno}").into(),
            }
        }
        Err(last)
    }

    /// Goes on with the next address of a peer, if there is one.
    fn dial_next(&mut self, key: DefaultKey) -> bool {
        let connection = &mut self.connections[key];
        let Ok((socket, stage)) = Self::dial(&mut connection.others) else { return false };
        let earlier = std::mem::replace(&mut connection.socket, socket);
        let _ = epoll::delete(&self.epoll, earlier);
        connection.begin_anew(stage);
        self.register(key).is_ok()
    }

    fn register(&self, key: DefaultKey) -> Result<(), Errno> {
        let connection = &self.connections[key];
        let _ = set_tcp_nodelay(&connection.socket, true);
        keep_alive(connection.socket.as_fd());
        let data = epoll::EventData::new_u64(key.data().as_ffi());
        epoll::add(&self.epoll, &connection.socket, data, connection.interest())
    }

    /// The connection does not work. Tries the peer's next address if it has not stood yet.
    fn fail(&mut self, key: DefaultKey, why: Reason) {
        let is_dialing =
            |c: &&Connection| matches!(c.stage, Stage::Dialing(_) | Stage::Calling(..));
        if self.connections.get(key).filter(is_dialing).is_some() && self.dial_next(key) {
            return;
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let sends = connection.output.clear();
        self.happened.extend(sends.map(|tag| Happened::Sent(tag, Err(why.clone()))));
        let receive = connection.input.abandon();
        self.happened.extend(receive.map(|tag| Happened::Received(tag, None)));
        let Some(tag) = connection.tag else { return self.remove(key) };
        connection.stage = Stage::Failed;
        self.happened.push_back(Happened::Failed(tag, why));
        self.close_socket(&self.connections[key]);
        self.current = self.current.filter(|&(current, ..)| current != key);
    }

    /// A caller, or a peer, does not hold the secret.
    fn refuse_stranger(&mut self, key: DefaultKey) {
        self.refused += 1;
        self.fail(key, UNAUTHENTIC.into());
    }

    fn is_writable(&mut self, key: DefaultKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if matches!(connection.stage, Stage::Dialing(_)) {
            match socket_error(&connection.socket) {
                Ok(Ok(())) => connection.call(&self.secret),
                Ok(Err(errno)) | Err(errno) => {
                    return self.fail(key, format!("cannot connect to it: {errno}").into());
                }
            }
        }
        self.write(key);
    }

    /// Writes as far as the socket takes it.
    fn write(&mut self, key: DefaultKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let happened = &mut self.happened;
        match connection.write(|tag| happened.push_back(Happened::Sent(tag, Ok(())))) {
            Ok(()) => self.watch(key),
            Err(_) => self.fail(key, BROKEN.into()),
        }
    }

    /// Reads from the connection from which the last messages have come, without asking the epoll
    /// descriptor first: one system call less for each look, and for each message. Returns true if
    /// it received something, or `None` if the epoll descriptor must be asked.
    fn read_usual(&mut self) -> Option<bool> {
        let (key, _) = self.usual.filter(|(_, messages)| *messages >= USUAL_MIN)?;
        let connection = self.connections.get(key)?;
        let is_open = matches!(connection.stage, Stage::Open(_));
        if !is_open || connection.is_full || self.until_epoll == 0 {
            self.until_epoll = EPOLL_INTERVAL;
            return None;
        }
        self.until_epoll -= 1;
        Some(self.is_readable(key))
    }

    /// Notes the connection from which bytes have come.
    fn note_usual(&mut self, key: DefaultKey) {
        let same = self.usual.filter(|(last, _)| *last == key);
        self.usual = Some((key, same.map_or(0, |(_, messages)| (messages + 1).min(USUAL_MIN))));
    }

    /// Returns true if bytes have come, or the stream has ended.
    fn is_readable(&mut self, key: DefaultKey) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if connection.input.is_paused() || matches!(connection.stage, Stage::Dialing(_)) {
            return false;
        }
        let kept = connection.partial.len();
        self.buffer[..kept].copy_from_slice(&connection.partial);
        match connection.read(&mut self.buffer[kept..]) {
            Io::Some(bytes) => {
                connection.partial.clear();
                self.note_usual(key);
                self.handle(key, 0, kept + bytes);
                true
            }
            Io::None => false,
            Io::End => {
                match connection.stage {
                    Stage::Closing(_) => self.remove(key),
                    Stage::Calling(..) => self.fail(key, REFUSED.into()),
                    _ => self.fail(key, BROKEN.into()),
                }
                true
            }
        }
    }

    /// Handles bytes of the buffer, until a message needs a place.
    fn handle(&mut self, key: DefaultKey, mut start: usize, end: usize) {
        self.current = None;
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let stream = &self.buffer[start..end];
            let arrival = match connection.take(stream, &mut self.plain) {
                Ok(Taken::Nothing) => {
                    return connection.partial.extend_from_slice(stream);
                }
                Ok(Taken::Handshake(bytes)) => {
                    start += bytes;
                    self.write(key);
                    continue;
                }
                Ok(Taken::Record(bytes, arrival)) => {
                    start += bytes;
                    arrival
                }
                Err(Refusal::Stranger) => return self.refuse_stranger(key),
                Err(Refusal::Broken(Broken(why))) => return self.fail(key, why.into()),
                Err(Refusal::Deaf) => return,
            };
            let name = key.data().as_ffi();
            let is_announced = matches!(arrival, Some(Arrival::Announced(..)));
            self.happened.extend(arrival.map(|arrival| arrival.into_event(name)));
            if is_announced {
                self.current = (start < end).then_some((key, start, end));
                return;
            }
        }
    }

    /// Waits a limited time until the peers' hosts have all bytes.
    fn drain(&mut self) {
        let until = Instant::now() + END_MAX;
        let mut backoff = Backoff::default();
        let keys: Vec<_> = self.connections.keys().collect();
        loop {
            keys.iter().for_each(|&key| self.write(key));
            let is_sending = |connection: &Connection| {
                let is_connected = matches!(connection.stage, Stage::Open(_) | Stage::Closing(_));
                let unacknowledged = || unacknowledged_bytes(connection.socket.as_fd());
                is_connected && (!connection.output.is_empty() || unacknowledged() > 0)
            };
            if !self.connections.values().any(is_sending) || Instant::now() >= until {
                return;
            }
            backoff.pause();
        }
    }
}

impl Carrier for Tcp {
    fn address(&self) -> Result<Vec<u8>, FabricError> {
        let listening: Vec<_> = self.listening.iter().map(|it| it.address).collect();
        Ok(interfaces::write(&self.instance, &listening))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        // The descriptor is readable as long as a socket is.
        self.is_armed = true;
        Ok(self.current.is_none() && self.happened.is_empty())
    }

    fn progress(&mut self) -> bool {
        match self.current {
            // One of the events may be a message that needs a place first.
            _ if !self.happened.is_empty() => true,
            Some((key, start, end)) => {
                self.handle(key, start, end);
                true
            }
            // Others' carriers may be in use: a system call takes longer than they do.
            None if self.connections.is_empty() && self.until_poll > 0 => {
                self.until_poll -= 1;
                false
            }
            None => {
                self.until_poll = POLL_INTERVAL;
                let was_armed = std::mem::take(&mut self.is_armed);
                match self.read_usual() {
                    Some(true) => true,
                    Some(false) if !was_armed => false,
                    _ => self.poll(),
                }
            }
        }
    }

    fn next(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    fn connect(&mut self, address: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        let parsed = interfaces::parse(address);
        let (instance, mut others) = parsed.ok_or("its TCP address is malformed")?;
        interfaces::sort_by_distance(&mut others);
        let (socket, stage) = Self::dial(&mut others)?;
        let mut connection = Connection::new(socket, stage);
        (connection.tag, connection.others) = (Some(tag), others);
        connection.called = Some(instance);
        let key = self.connections.insert(connection);
        self.register(key).map_err(|errno| {
            self.connections.remove(key);
            Reason::from(format!("cannot wait for its connection: {errno}"))
        })?;
        Ok(key.data().as_ffi())
    }

    fn answer(&mut self, way: Way, _: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        let connection = self.connections.get_mut(key_of(way.0));
        let is_free = |c: &&mut Connection| c.tag.is_none() && matches!(c.stage, Stage::Open(_));
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
        let sends = connection.output.drop_messages();
        self.happened.extend(sends.map(|tag| Happened::Sent(tag, Err("it was closed".into()))));
        let receive = connection.input.abandon();
        self.happened.extend(receive.map(|tag| Happened::Received(tag, None)));
        self.happened.push_back(Happened::Closed(tag));
        match connection.stage {
            Stage::Open(_) => {
                connection.stage = Stage::Closing(Instant::now() + END_MAX);
                self.write(key);
            }
            _ => self.remove(key),
        }
    }

    fn send(&mut self, endpoint: EndpointId, header: &[u8], payload: Payload, tag: u64) -> Sending {
        let key = key_of(endpoint);
        let connection = self.connections.get_mut(key);
        let works = |c: &&mut Connection| !matches!(c.stage, Stage::Failed | Stage::Closing(_));
        let Some(connection) = connection.filter(works) else {
            return Sending::Failed(BROKEN.into());
        };
        connection.output.push(Outgoing::new(header.to_vec(), payload, tag));
        if connection.is_full || !matches!(connection.stage, Stage::Open(_)) {
            return Sending::Pending;
        }
        let (mut is_done, happened) = (false, &mut self.happened);
        let written = connection.write(|sent| match sent == tag {
            true => is_done = true,
            false => happened.push_back(Happened::Sent(sent, Ok(()))),
        });
        match written {
            Ok(()) if self.connections[key].is_full => self.watch(key),
            Ok(()) => {}
            // It is reported as failed, and this message, too, if it is not done.
            Err(_) => self.fail(key, BROKEN.into()),
        }
        if is_done { Sending::Done } else { Sending::Pending }
    }

    fn holds_sent(&self) -> bool {
        self.connections.values().any(|connection| !connection.output.is_empty())
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
        self.drain();
    }

    fn tend(&mut self) {
        let now = Instant::now();
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            self.watch_listeners(epoll::EventFlags::IN);
        }
        if self.wide_at.is_some_and(|at| at <= now) {
            self.widen();
        }
        let keys: Vec<_> = self.connections.keys().collect();
        for key in keys {
            let connection = &mut self.connections[key];
            connection.output.shrink();
            let is_late = connection.deadline().is_some_and(|deadline| deadline <= now);
            match connection.stage {
                Stage::Closing(_) if is_late => self.remove(key),
                Stage::Called(..) | Stage::Unproved(..) if is_late => self.refuse_stranger(key),
                _ if is_late => self.fail(key, SILENT.into()),
                Stage::Open(_) if is_dead(connection.socket.as_fd()) => {
                    self.fail(key, BROKEN.into());
                }
                _ => {}
            }
        }
    }

    fn needs_tending(&self) -> bool {
        !self.connections.is_empty() || self.deaf_until.is_some() || self.wide_at.is_some()
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn expect(&mut self, peers: &[&[u8]]) {
        let addresses = |peer: &&[u8]| Some(interfaces::parse(peer)?.1);
        let peers: Vec<_> = peers.iter().filter_map(addresses).collect();
        let own: Vec<_> = self.listening.iter().map(|it| it.address.ip()).collect();
        let called = interfaces::called(&own, &peers);
        for (listener, _) in self.listening.iter_mut().zip(called).filter(|(_, called)| !called) {
            let _ = epoll::delete(&self.epoll, &listener.socket);
            // The kernel takes the port back that it gave, but not one that is asked for by number.
            let _ = rustix::net::shutdown(&listener.socket, Shutdown::Both);
            if let Ok(socket) = bind(listener.address) {
                listener.socket = socket;
            }
            listener.is_open = false;
            self.wide_at = Some(Instant::now() + WIDEN_AFTER);
        }
    }

    fn stop_listening(&mut self) {
        self.wide_at = None;
        for listener in std::mem::take(&mut self.listening) {
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        for connection in self.connections.values() {
            self.close_socket(connection);
        }
    }
}

/// Returns the data of the epoll events of a listening socket.
fn listener_data(number: usize) -> epoll::EventData {
    epoll::EventData::new_u64(LISTENER | number as u64)
}

fn listen(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = bind(address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn bind(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family(address), SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn dial(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family(address), SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}
