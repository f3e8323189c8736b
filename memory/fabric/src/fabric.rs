//! The fabric itself: one's own address, peers, messages, events.
//!
//! **How a connection begins.** `connect` says *hello* with one's own address and a fresh
//! number; the other answers *welcome* with its own; *ready* answers that. Then each knows
//! that the other holds the secret and is there now, and messages flow; those that were sent
//! before have waited. Where both call at once, both hellos are answered, and the two ways
//! are one connection.
//!
//! **How it ends.** `close` says *bye* after all that was sent before, and the other answers:
//! then both have all that was sent. When a process dies, the kernel resets its TCP
//! connections, and UCX tells; when a host dies, keepalive finds out.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::FabricError;
use crate::event::{Dropped, Event, Peer, SendId, Sending};
use crate::order::InOrder;
use crate::payload::Payload;
use crate::secret::{Domain, Nonce, Secret, random};
use crate::session::{Incoming, Link, Outgoing, Phase, Session};
use crate::wire::{Address, Header, Hello, Kind, USER_HEADER_BYTES_MAX, Welcome};
use crate::worker::{self, Data, Happened, Landing, Worker};

/// How long a peer may take to answer a hello or a welcome.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How many unfinished connections others may have with us.
pub const ANSWERING_MAX: usize = 1024;

/// How long a wait may look before it sleeps.
pub const SPIN_MAX: Duration = Duration::from_micros(50);
/// How many waits sleep at once after one that has looked in vain.
const SLEEPS: u32 = 16;

/// A place in the network, for one thread at a time.
pub struct Fabric {
    id: u64,
    secret: Secret,
    address: Vec<u8>,
    sessions: SlotMap<DefaultKey, Session>,
    /// Receipts under way: whose message, and its number.
    receipts: SlotMap<DefaultKey, (DefaultKey, u64)>,
    /// Sends under way: on which connection, and the user's name for it.
    sends: SlotMap<DefaultKey, (DefaultKey, u64)>,
    events: VecDeque<Event>,
    dropped: Dropped,
    last_send: u64,
    /// How many waits to come sleep at once.
    sleeps: u32,
    /// Connections that have a deadline.
    awaited: usize,
    /// Chooses where payloads go.
    place: Option<Box<Place>>,
    worker: Worker,
}

/// Given the sender, the header and the payload's length, where the payload should go; if
/// nowhere in particular, to new memory.
pub type Place = dyn FnMut(Peer, &[u8], usize) -> Option<NonNull<u8>> + Send;

impl Fabric {
    /// A fabric called `id`, among those that share the secret. Two that live at the same
    /// time have different ids.
    pub fn new(id: u64, secret: &Secret) -> Result<Self, FabricError> {
        let worker = Worker::new()?;
        let ucx = worker.address()?;
        let token = secret.token(Domain::Address, &[&id.to_le_bytes(), &ucx]);
        Ok(Self {
            id,
            secret: secret.clone(),
            address: Address::bytes(id, token, &ucx),
            sessions: SlotMap::new(),
            receipts: SlotMap::new(),
            sends: SlotMap::new(),
            events: VecDeque::new(),
            dropped: Dropped::default(),
            last_send: 0,
            sleeps: 0,
            awaited: 0,
            place: None,
            worker,
        })
    }

    /// What others need in order to connect: some hundred bytes, to be handed over by other
    /// means: PMIx, a file, a pipe.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// One's own id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What came and was dropped.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// A connection to the fabric with that address: the one that stands or begins already,
    /// or a new one. Messages may be sent at once.
    pub fn connect(&mut self, address: &[u8]) -> Result<Peer, FabricError> {
        let (head, ucx) = Address::parse(address).ok_or(FabricError::Address)?;
        let id = head.id.get();
        let token = self.secret.token(Domain::Address, &[&id.to_le_bytes(), ucx]);
        if !token.matches(&head.token) {
            return Err(FabricError::Secret);
        }
        if id == self.id {
            return Err(FabricError::Oneself);
        }
        let is_same = |s: &Session| s.id == id && s.address == ucx && s.is_usable();
        if let Some((key, _)) = self.sessions.iter().find(|(_, session)| is_same(session)) {
            return Ok(Peer { key, id });
        }
        let deadline = Instant::now() + ANSWER_MAX;
        let key = self.begin(id, ucx, random(), Phase::Calling(deadline));
        self.hello(key);
        Ok(Peer { key, id })
    }

    /// Sends a header of at most [`USER_HEADER_BYTES_MAX`] bytes and a payload of any length.
    pub fn send(
        &mut self,
        peer: Peer,
        header: &[u8],
        payload: impl Into<Payload>,
    ) -> Result<Sending, FabricError> {
        if header.len() > USER_HEADER_BYTES_MAX {
            return Err(FabricError::Header { bytes: header.len() });
        }
        let session = self.sessions.get_mut(peer.key).ok_or(FabricError::Gone)?;
        self.last_send += 1;
        let id = self.last_send;
        let payload = payload.into();
        match session.phase {
            Phase::Open(_) => self.post(peer.key, Kind::Data, header, payload, id),
            Phase::Calling(_) | Phase::Answering(..) => {
                let header = header.to_vec();
                session.queue.push_back(Outgoing { kind: Kind::Data, header, payload, id });
                Ok(Sending::Pending(SendId(id)))
            }
            Phase::Leaving(_) | Phase::Parting { .. } | Phase::Over(_) => Err(FabricError::Gone),
        }
    }

    /// Lets the user choose where payloads go, so that a large one arrives without a copy at
    /// its last place: it is asked when a message is announced, which may be before those
    /// sent earlier are whole. Where it names a place, [`Event::Placed`] says that the payload
    /// is there.
    ///
    /// # Safety
    /// So many bytes can be written at the place, and nobody uses them, until `Placed` says so,
    /// or the peer is `Lost`, or the fabric is dropped.
    pub unsafe fn place_with(&mut self, place: Box<Place>) {
        self.place = Some(place);
    }

    /// Ends a connection after all that was sent on it. [`Event::Closed`] says when the other
    /// has it all.
    pub fn close(&mut self, peer: Peer) {
        let Some(session) = self.sessions.get_mut(peer.key) else { return };
        match session.phase {
            Phase::Open(_) => self.bye(peer.key),
            Phase::Calling(_) | Phase::Answering(..) => {
                let bye = Outgoing {
                    kind: Kind::Bye,
                    header: Vec::new(),
                    payload: Payload::EMPTY,
                    id: 0,
                };
                session.queue.push_back(bye);
            }
            Phase::Leaving(_) | Phase::Parting { .. } | Phase::Over(_) => {}
        }
    }

    /// Ends a connection at once, whatever is under way on it: the peer will be `Lost`.
    pub fn abandon(&mut self, peer: Peer) {
        self.lose(peer.key, "abandoned".to_owned());
    }

    /// What has happened next, if anything has: never waits.
    pub fn poll(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.progress();
        }
        self.events.pop_front()
    }

    /// Lets UCX work until there are events or it has nothing to do; whether there are events.
    pub fn progress(&mut self) -> bool {
        loop {
            let busy = self.worker.progress();
            while let Some(happened) = self.worker.next() {
                self.happened(happened);
            }
            if !busy || !self.events.is_empty() {
                break;
            }
        }
        self.expire();
        !self.events.is_empty()
    }

    /// What has happened next, within a time. Sleeps until then; but first looks for
    /// [`SPIN_MAX`], as long as that is enough: to be woken takes as long.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, FabricError> {
        let begin = Instant::now();
        let event = self.wait_from(begin, begin + timeout)?;
        self.sleeps = match self.sleeps.checked_sub(1) {
            Some(left) => left,
            None if event.is_some() && begin.elapsed() < SPIN_MAX => 0,
            None => SLEEPS,
        };
        Ok(event)
    }

    fn wait_from(&mut self, begin: Instant, end: Instant) -> Result<Option<Event>, FabricError> {
        loop {
            if let Some(event) = self.poll() {
                return Ok(Some(event));
            }
            let now = Instant::now();
            if now >= end {
                return Ok(None);
            }
            if self.sleeps == 0 && now - begin < SPIN_MAX || !self.arm()? {
                continue;
            }
            let until = self.deadline().map_or(end, |deadline| deadline.min(end));
            let left = Timespec::try_from(until.saturating_duration_since(now)).ok();
            let mut fds = [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)];
            // Interrupted or not, we look again.
            let _ = poll(&mut fds, left.as_ref());
        }
    }

    /// Becomes readable when there may be something to [`poll`](Self::poll), once
    /// [`arm`](Self::arm) has said yes. For poll(2) and epoll(7); nobody reads from it.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.worker.descriptor()
    }

    /// Before one sleeps on the descriptor: whether one may. If not, there is something to
    /// poll. One must also wake at the [`deadline`](Self::deadline).
    pub fn arm(&mut self) -> Result<bool, FabricError> {
        Ok(self.events.is_empty() && self.worker.arm()? && self.events.is_empty())
    }

    /// When one must poll even if the descriptor stays silent: a peer has not answered.
    pub fn deadline(&self) -> Option<Instant> {
        if self.awaited == 0 {
            return None;
        }
        self.sessions.values().filter_map(Session::deadline).min()
    }

    fn begin(&mut self, id: u64, ucx: &[u8], nonce: Nonce, phase: Phase) -> DefaultKey {
        let key = self.sessions.insert(Session {
            id,
            address: ucx.to_vec(),
            endpoint: None,
            nonce,
            phase,
            queue: VecDeque::new(),
            incoming: InOrder::default(),
            operations: 0,
        });
        self.awaited += 1;
        match self.worker.connect(ucx, key.data().as_ffi()) {
            Ok(endpoint) => self.sessions[key].endpoint = Some(endpoint),
            Err(status) => self.lose(key, self.worker.reason(status).to_owned()),
        }
        key
    }

    fn hello(&mut self, key: DefaultKey) {
        let Some(session) = self.sessions.get(key) else { return };
        let (_, ucx) = Address::parse(&self.address).expect("our own");
        let hello = Hello {
            from: self.id.into(),
            to: session.id.into(),
            session: key.data().as_ffi().into(),
            nonce: session.nonce,
        };
        let payload = [hello.as_bytes(), ucx].concat();
        let token = self.secret.token(Domain::Hello, &[&payload]);
        let header = Header::new(Kind::Hello, 0, 0, token, 0);
        self.transmit(key, header.as_bytes().to_vec(), payload.into(), 0);
    }

    fn welcome(&mut self, key: DefaultKey, session: u64, answered: Nonce) {
        let Some(ours) = self.sessions.get(key) else { return };
        let welcome = Welcome {
            from: self.id.into(),
            to: ours.id.into(),
            session: key.data().as_ffi().into(),
            nonce: ours.nonce,
            answered,
        };
        let token = self.secret.token(Domain::Welcome, &[welcome.as_bytes()]);
        let header = Header::new(Kind::Welcome, session, 0, token, 0);
        let payload = welcome.as_bytes().to_vec();
        self.transmit(key, header.as_bytes().to_vec(), payload.into(), 0);
    }

    fn bye(&mut self, key: DefaultKey) {
        if self.post(key, Kind::Bye, &[], Payload::EMPTY, 0).is_ok() {
            let session = &mut self.sessions[key];
            if let Phase::Open(link) = std::mem::replace(&mut session.phase, Phase::Over(None)) {
                session.phase = Phase::Leaving(link);
            }
        }
    }

    /// Sends a message on a connection that stands.
    fn post(
        &mut self,
        key: DefaultKey,
        kind: Kind,
        user_header: &[u8],
        payload: Payload,
        id: u64,
    ) -> Result<Sending, FabricError> {
        let Phase::Open(link) = &mut self.sessions[key].phase else {
            unreachable!("it stands");
        };
        let header = Header::new(kind, link.session, link.sent, link.ours, user_header.len());
        link.sent += 1;
        let mut bytes = Vec::with_capacity(size_of::<Header>() + user_header.len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(user_header);
        if self.transmit(key, bytes, payload, id) {
            Ok(Sending::Pending(SendId(id)))
        } else if self.sessions.get(key).is_some_and(|s| matches!(s.phase, Phase::Open(_))) {
            Ok(Sending::Done)
        } else {
            Err(FabricError::Gone)
        }
    }

    /// Gives a message to UCX; whether an event about it will follow.
    fn transmit(&mut self, key: DefaultKey, header: Vec<u8>, payload: Payload, id: u64) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let Some(endpoint) = &session.endpoint else { return false };
        let send = self.sends.insert((key, id));
        match self.worker.send(endpoint, header, payload, send.data().as_ffi()) {
            worker::Sending::Pending => {
                session.operations += 1;
                true
            }
            worker::Sending::Done => {
                self.sends.remove(send);
                false
            }
            worker::Sending::Failed(status) => {
                self.sends.remove(send);
                let why = self.worker.reason(status).to_owned();
                self.lose(key, why);
                false
            }
        }
    }

    fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Came { header, data } => self.came(&header, data),
            Happened::Sent(send, status) => {
                let send = DefaultKey::from(KeyData::from_ffi(send));
                let (key, id) = self.sends.remove(send).expect("completes once");
                if id != 0 {
                    let sent = if status == 0 { Event::Sent } else { Event::Unsent };
                    self.events.push_back(sent(SendId(id)));
                }
                self.completed(key);
                if status != 0 {
                    let why = self.worker.reason(status).to_owned();
                    self.lose(key, why);
                }
            }
            Happened::Received(receipt, payload) => {
                let receipt = DefaultKey::from(KeyData::from_ffi(receipt));
                let (key, number) = self.receipts.remove(receipt).expect("completes once");
                self.completed(key);
                let Some(session) = self.sessions.get_mut(key) else { return };
                match (payload, session.incoming.get_mut(number)) {
                    (Some(payload), Some(incoming)) => {
                        incoming.payload = Some(payload);
                        self.deliver(key);
                    }
                    _ => self.lose(key, "a message broke off".to_owned()),
                }
            }
            Happened::Failed(tag, status) => {
                let why = self.worker.reason(status).to_owned();
                self.lose(DefaultKey::from(KeyData::from_ffi(tag)), why);
            }
            Happened::Closed(tag) => self.completed(DefaultKey::from(KeyData::from_ffi(tag))),
        }
    }

    /// A message has come: who may have sent it?
    fn came(&mut self, bytes: &[u8], data: Data) {
        let Some((header, kind, user_header)) = Header::parse(bytes) else {
            self.dropped.malformed += 1;
            return self.refuse(data);
        };
        match (kind, data) {
            (Kind::Hello, Data::Here(payload)) => self.answer(header, &payload),
            (Kind::Welcome, Data::Here(payload)) => self.welcomed(header, &payload),
            (Kind::Ready | Kind::Data | Kind::Bye, data) => {
                let key = DefaultKey::from(KeyData::from_ffi(header.session.get()));
                let link = self.sessions.get(key).and_then(Session::link);
                if !link.is_some_and(|link| link.theirs.matches(&header.token)) {
                    self.dropped.unauthenticated += 1;
                    return self.refuse(data);
                }
                self.open(key, None);
                let number = header.sequence.get();
                let incoming = Incoming { kind, header: user_header.to_vec(), payload: None };
                let Some(session) = self.sessions.get_mut(key) else { return self.refuse(data) };
                if session.incoming.insert(number, incoming).is_err() {
                    self.dropped.unauthenticated += 1;
                    return self.refuse(data);
                }
                self.take(key, number, data);
                self.deliver(key);
            }
            (_, data) => {
                self.dropped.malformed += 1;
                self.refuse(data);
            }
        }
    }

    /// Gets a message's data.
    fn take(&mut self, key: DefaultKey, number: u64, data: Data) {
        let session = &mut self.sessions[key];
        let incoming = session.incoming.get_mut(number).expect("just came");
        let bytes = match &data {
            Data::Here(payload) => payload.len(),
            Data::There(there) => there.bytes,
        };
        let peer = Peer { key, id: session.id };
        let place = match &mut self.place {
            Some(place) if bytes > 0 && incoming.kind == Kind::Data => {
                place(peer, &incoming.header, bytes)
            }
            _ => None,
        };
        let there = match data {
            Data::There(there) => there,
            Data::Here(payload) => {
                incoming.payload = Some(match place {
                    None => Landing::Bytes(payload),
                    Some(place) => {
                        // SAFETY: the user says that so many bytes may be written there.
                        unsafe { place.copy_from(NonNull::from(&payload[..]).cast(), bytes) };
                        Landing::Place(place, bytes)
                    }
                });
                return;
            }
        };
        let landing = match place {
            Some(place) => Some(Landing::Place(place, bytes)),
            None => zeroed(bytes).map(Landing::Bytes),
        };
        let Some(landing) = landing else {
            self.worker.refuse(there);
            return self.lose(key, format!("no memory for a message of {bytes} bytes"));
        };
        let receipt = self.receipts.insert((key, number));
        match self.worker.receive(there, landing, receipt.data().as_ffi()) {
            None => session.operations += 1,
            landing => {
                self.receipts.remove(receipt);
                incoming.payload = landing;
            }
        }
    }

    fn refuse(&mut self, data: Data) {
        if let Data::There(there) = data {
            self.worker.refuse(there);
        }
    }

    /// Somebody says hello.
    fn answer(&mut self, header: &Header, payload: &[u8]) {
        let Some((hello, ucx)) = Hello::parse(payload) else {
            self.dropped.malformed += 1;
            return;
        };
        let token = self.secret.token(Domain::Hello, &[payload]);
        let id = hello.from.get();
        if !token.matches(&header.token) || hello.to.get() != self.id || id == self.id {
            self.dropped.unauthenticated += 1;
            return;
        }
        // Both call at once: one connection is enough.
        let is_same =
            |s: &Session| s.id == id && s.address == ucx && matches!(s.phase, Phase::Calling(_));
        let calling = self.sessions.iter().find(|(_, session)| is_same(session));
        if let Some((key, _)) = calling {
            return self.welcome(key, hello.session.get(), hello.nonce);
        }
        let answering = |s: &&Session| matches!(s.phase, Phase::Answering(..));
        if self.sessions.values().filter(answering).count() >= ANSWERING_MAX {
            self.dropped.unauthenticated += 1;
            return;
        }
        let deadline = Instant::now() + ANSWER_MAX;
        let nonce = random();
        let (us, them) = ((self.id, &nonce), (id, &hello.nonce));
        let link = Link::new(&self.secret, us, them, hello.session.get());
        let key = self.begin(id, ucx, nonce, Phase::Answering(deadline, link));
        self.welcome(key, hello.session.get(), hello.nonce);
    }

    /// Our hello is answered.
    fn welcomed(&mut self, header: &Header, payload: &[u8]) {
        let Ok(welcome) = Welcome::ref_from_bytes(payload) else {
            self.dropped.malformed += 1;
            return;
        };
        let key = DefaultKey::from(KeyData::from_ffi(header.session.get()));
        let token = self.secret.token(Domain::Welcome, &[payload]);
        let expected = self.sessions.get(key).filter(|session| {
            token.matches(&header.token)
                && matches!(session.phase, Phase::Calling(_))
                && welcome.from.get() == session.id
                && welcome.to.get() == self.id
                && welcome.answered == session.nonce
        });
        let Some(session) = expected else {
            self.dropped.unauthenticated += 1;
            return;
        };
        let them = (session.id, &welcome.nonce);
        let us = (self.id, &session.nonce);
        let link = Link::new(&self.secret, us, them, welcome.session.get());
        self.open(key, Some(link));
    }

    /// The connection stands from now on: what has waited is sent.
    fn open(&mut self, key: DefaultKey, link: Option<Link>) {
        let session = &mut self.sessions[key];
        let link = match (std::mem::replace(&mut session.phase, Phase::Over(None)), link) {
            (Phase::Calling(_), Some(link)) | (Phase::Answering(_, link), None) => link,
            (phase, _) => return session.phase = phase,
        };
        session.phase = Phase::Open(link);
        self.awaited -= 1;
        let id = session.id;
        // One that has started anew has not told us that it ended.
        let is_older =
            |s: &Session| s.id == id && matches!(s.phase, Phase::Open(_) | Phase::Leaving(_));
        let older = self.sessions.iter().find(|&(other, s)| other != key && is_older(s));
        if let Some((older, _)) = older {
            self.lose(older, "replaced by a new connection".to_owned());
        }
        self.events.push_back(Event::Connected(Peer { key, id }));
        let _ = self.post(key, Kind::Ready, &[], Payload::EMPTY, 0);
        while let Some(session) = self.sessions.get_mut(key) {
            if !matches!(session.phase, Phase::Open(_)) {
                break;
            }
            let Some(outgoing) = session.queue.pop_front() else { break };
            let Outgoing { kind, header, payload, id } = outgoing;
            match kind {
                Kind::Bye => self.bye(key),
                _ => match self.post(key, kind, &header, payload, id) {
                    Ok(Sending::Done) => self.events.push_back(Event::Sent(SendId(id))),
                    Ok(Sending::Pending(_)) => {}
                    Err(_) => self.events.push_back(Event::Unsent(SendId(id))),
                },
            }
        }
    }

    /// Hands out what has come, in order.
    fn deliver(&mut self, key: DefaultKey) {
        while let Some(session) = self.sessions.get_mut(key) {
            let Some(incoming) = session.incoming.next_if(|m| m.payload.is_some()) else { return };
            let id = session.id;
            match incoming.kind {
                Kind::Data => {
                    let (from, header) = (Peer { key, id }, incoming.header);
                    self.events.push_back(match incoming.payload.expect("whole") {
                        Landing::Bytes(payload) => Event::Message { from, header, payload },
                        Landing::Place(at, bytes) => Event::Placed { from, header, at, bytes },
                    });
                }
                Kind::Bye => {
                    let first = matches!(session.phase, Phase::Leaving(_));
                    if !first {
                        self.bye(key);
                    }
                    self.events.push_back(Event::Closed(Peer { key, id }));
                    self.part(key, first);
                }
                Kind::Ready | Kind::Hello | Kind::Welcome => {}
            }
        }
    }

    /// Both have said bye. Who has said it first closes the way, once its own is out; the
    /// other then hears that the way has failed.
    fn part(&mut self, key: DefaultKey, first: bool) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.phase = Phase::Parting { deadline: Instant::now() + ANSWER_MAX, first };
        self.awaited += 1;
        if first && session.operations == 0 {
            self.end(key, None);
        }
    }

    /// The connection has broken.
    fn lose(&mut self, key: DefaultKey, why: String) {
        let visible = self.sessions.get(key).is_some_and(Session::is_visible);
        self.end(key, visible.then_some(why));
    }

    /// The connection is over, for whatever reason.
    fn end(&mut self, key: DefaultKey, why: Option<String>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if matches!(session.phase, Phase::Over(_)) {
            return;
        }
        if session.deadline().is_some() {
            self.awaited -= 1;
        }
        session.phase = Phase::Over(why);
        for outgoing in std::mem::take(&mut session.queue) {
            if outgoing.id != 0 {
                self.events.push_back(Event::Unsent(SendId(outgoing.id)));
            }
        }
        if let Some(endpoint) = session.endpoint.take() {
            session.operations += 1;
            self.worker.close(endpoint);
        }
        self.bury(key);
    }

    /// Forgets a connection that is over and in whose name UCX does nothing more.
    fn bury(&mut self, key: DefaultKey) {
        let session = &self.sessions[key];
        if session.operations == 0 && matches!(session.phase, Phase::Over(_)) {
            let session = self.sessions.remove(key).expect("it is there");
            if let Phase::Over(Some(why)) = session.phase {
                self.events.push_back(Event::Lost { peer: Peer { key, id: session.id }, why });
            }
        }
    }

    /// UCX has let go of something of a connection's.
    fn completed(&mut self, key: DefaultKey) {
        let session = self.sessions.get_mut(key).expect("stays until all is complete");
        session.operations -= 1;
        if session.operations == 0 && matches!(session.phase, Phase::Parting { first: true, .. }) {
            self.end(key, None);
        } else {
            self.bury(key);
        }
    }

    /// Gives up on who has not answered.
    fn expire(&mut self) {
        if self.deadline().is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        let now = Instant::now();
        let is_late = |s: &Session| s.deadline().is_some_and(|deadline| deadline <= now);
        let late: Vec<_> =
            self.sessions.iter().filter(|(_, s)| is_late(s)).map(|(k, _)| k).collect();
        for key in late {
            let why = format!(
                "it has not answered within {} s; does it run, and has it the same secret?",
                ANSWER_MAX.as_secs()
            );
            self.lose(key, why);
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        for session in self.sessions.values_mut() {
            if let Some(endpoint) = session.endpoint.take() {
                self.worker.close(endpoint);
            }
        }
    }
}

/// New memory, or none.
fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok()?;
    memory.resize(bytes, 0);
    Some(memory)
}
