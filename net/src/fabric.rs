//! The fabric: own address, peers, messages, events.
//!
//! **Start of a connection.** `connect` sends a *hello* with its address and a fresh random
//! number. The other side answers with a *welcome* that has its own number, and *ready* answers
//! that. Now each side knows that the other holds the secret and is present. Messages that were
//! sent before then go out. If both sides connect at once, both hellos are answered, and the two
//! endpoints form one connection.
//!
//! **End of a connection.** `close` sends *bye* after all earlier messages, and the other side
//! answers. Then both have all messages. When a process dies, the kernel resets its TCP
//! connections, which UCX reports. When a host dies, keepalive detects that.

mod ending;
mod handshake;
mod memory;
mod traffic;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slotmap::{DefaultKey, SlotMap};
use sync::clock;
use sync::wait::{self, WaitPolicy};

use crate::carriers::{self, Carriers};
use crate::error::FabricError;
use crate::event::{Dropped, Event, Peer, SendId, Sending};
use crate::payload::Payload;
use crate::secret::{Domain, Secret, random};
use crate::session::{Outgoing, Phase, Session};
use crate::wire::{Address, Kind, USER_HEADER_BYTES_MAX};

/// Time limit for a peer to answer a hello or a welcome.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Maximum number of unfinished connections that others have started.
pub const ANSWERING_MAX: usize = 1024;

/// Maximum rounds of progress without an event. If UCX lacks memory, it retries without end.
const ROUNDS_MAX: usize = 256;

/// Interval of the checks of connections.
const TEND: Duration = Duration::from_secs(1);

/// Polls of a wait from one look at the clock to the next: together they take less than a
/// microsecond. A look takes as long as one or two.
const POLLS_PER_LOOK: u32 = 16;
/// Successful waits without a look at the clock in a row: the checks of connections are not late
/// because of them.
const WAITS_PER_TEND: u32 = 64;

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
    /// The carriers have reported that they have no more work.
    is_idle: bool,
    dropped: Dropped,
    last_send: u64,
    wait_policy: WaitPolicy,
    /// Chooses where payloads go.
    place: Option<Box<Place>>,
    /// Time of the last check of connections.
    tended: Instant,
    /// Calls of `poll_times` until the next check.
    until_tend: u32,
    late_wakes: u64,
    carriers: Carriers,
}

/// Given the sender, the header and the payload's length, where the payload should go; if
/// nowhere in particular, to new memory.
pub type Place = dyn FnMut(Peer, &[u8], usize) -> Option<NonNull<u8>> + Send;

impl Fabric {
    /// A fabric called `id`, among those that share the secret. Two that live at the same
    /// time have different ids.
    pub fn new(id: u64, secret: &Secret) -> Result<Self, FabricError> {
        let carriers = std::env::var(carriers::VARIABLE).unwrap_or_default();
        Self::with_carriers(id, secret, &carriers)
    }

    /// The same, if all peers are on this host: unless `NAGAYA_NET` names carriers, no port is
    /// opened.
    pub fn within_host(id: u64, secret: &Secret) -> Result<Self, FabricError> {
        match std::env::var(carriers::VARIABLE) {
            Ok(carriers) if !carriers.is_empty() => Self::with_carriers(id, secret, &carriers),
            // Without a directory for its socket, TCP takes the messages.
            _ => Self::with_carriers(id, secret, "local").or_else(|_| Self::new(id, secret)),
        }
    }

    /// The same, with carriers as in `NAGAYA_NET`; if that is empty, with the usual ones.
    pub fn with_carriers(id: u64, secret: &Secret, carriers: &str) -> Result<Self, FabricError> {
        Self::over(id, secret, Carriers::new(secret, carriers, false)?)
    }

    /// As [`new`](Self::new), for processes that read and write each other's memory where the
    /// network can do that: see [`one_sided`](crate::one_sided).
    pub fn one_sided(id: u64, secret: &Secret) -> Result<Self, FabricError> {
        let carriers = std::env::var(carriers::VARIABLE).unwrap_or_default();
        Self::over(id, secret, Carriers::new(secret, &carriers, true)?)
    }

    /// The same, with carriers that were made before.
    pub(crate) fn over(id: u64, secret: &Secret, carriers: Carriers) -> Result<Self, FabricError> {
        let sections = carriers.address()?;
        let token = secret.token(Domain::Address, &[&id.to_le_bytes(), &sections]);
        Ok(Self {
            id,
            secret: secret.clone(),
            address: Address::bytes(id, token, &sections),
            sessions: SlotMap::new(),
            receipts: SlotMap::new(),
            sends: SlotMap::new(),
            events: VecDeque::new(),
            is_idle: false,
            dropped: Dropped::default(),
            last_send: 0,
            wait_policy: WaitPolicy::default(),
            place: None,
            tended: clock::now(),
            until_tend: WAITS_PER_TEND,
            late_wakes: 0,
            carriers,
        })
    }

    /// Returns the address by which others connect, of some hundred bytes. It is passed by other
    /// means: PMIx, a file, a pipe.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// One's own id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the counters of dropped messages. A refused connection counts as one of them.
    pub fn dropped(&self) -> Dropped {
        let unauthenticated = self.dropped.unauthenticated + self.carriers.refused();
        Dropped { unauthenticated, ..self.dropped }
    }

    /// Returns how often a sleep ended by its time limit although there was an event that the
    /// descriptor did not report. A number above 0 is a defect.
    pub fn late_wakes(&self) -> u64 {
        self.late_wakes
    }

    /// Returns true if UCX is one of the carriers.
    pub fn has_ucx(&self) -> bool {
        self.carriers.have_ucx()
    }

    /// Returns true if messages stay where their receiver finds them when this process exits.
    pub fn keeps_messages(&self) -> bool {
        self.carriers.are_local()
    }

    /// Learns the addresses of all peers that may call. The fabric then listens only on those
    /// interfaces by which they reach it, unless one of them does not come by these.
    pub fn expect(&mut self, peers: &[&[u8]]) {
        let parsed = peers.iter().filter_map(|peer| Address::parse(peer));
        let theirs: Vec<_> = parsed.map(|(_, sections)| sections).collect();
        self.carriers.expect(&theirs);
    }

    /// Accepts no further connections, where the carrier can do that: those of a job whose nodes
    /// are all connected.
    pub fn stop_listening(&mut self) {
        self.carriers.stop_listening();
    }

    /// A connection to the fabric with that address: the one that stands or begins already,
    /// or a new one. Messages may be sent at once.
    pub fn connect(&mut self, address: &[u8]) -> Result<Peer, FabricError> {
        let (head, sections) = Address::parse(address).ok_or(FabricError::Address)?;
        let id = head.id.get();
        let token = self.secret.token(Domain::Address, &[&id.to_le_bytes(), sections]);
        if !token.matches(&head.token) {
            return Err(FabricError::Secret);
        }
        if id == self.id {
            return Err(FabricError::Oneself);
        }
        let is_same = |s: &Session| s.id == id && s.address == sections && s.is_usable();
        if let Some((key, session)) = self.sessions.iter_mut().find(|(_, s)| is_same(s)) {
            session.is_wanted = true;
            return Ok(Peer { key, id });
        }
        let deadline = clock::now() + ANSWER_MAX;
        let key = self.begin(id, sections, None, random(), Phase::Calling(deadline, None));
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
            Phase::Calling(..) | Phase::Answering(..) if !session.is_closing() => {
                let header = header.to_vec();
                session.queue.push_back(Outgoing { kind: Kind::Data, header, payload, id });
                Ok(Sending::Pending(SendId(id)))
            }
            _ => Err(FabricError::Gone),
        }
    }

    /// Sets the function that selects the place of a payload, so that a large one arrives there
    /// without a copy. It is called when a message is announced, possibly before earlier messages
    /// are complete. If it returns a place, [`Event::Placed`] reports that the payload has arrived
    /// there.
    ///
    /// # Safety
    /// The place must be writable for the payload's length, and nothing else may use it, until
    /// `Placed` is reported, or the peer is `Lost`, or the fabric is dropped.
    pub unsafe fn place_with(&mut self, place: Box<Place>) {
        self.place = Some(place);
    }

    /// Returns true if messages, or parts of them, wait for their connection or for the transport
    /// to take them, also those that were reported as [`Event::Sent`]: they leave only while the
    /// fabric makes progress. (UCX may hold parts of messages of which this does not know.)
    pub fn has_unsent(&self) -> bool {
        !self.sends.is_empty()
            || self.sessions.values().any(|session| !session.queue.is_empty())
            || self.carriers.hold_sent()
    }

    /// Ends a connection after all messages that were sent on it. [`Event::Closed`] reports that
    /// the other side has them.
    pub fn close(&mut self, peer: Peer) {
        let Some(session) = self.sessions.get_mut(peer.key) else { return };
        match session.phase {
            Phase::Open(_) => self.bye(peer.key),
            Phase::Calling(..) | Phase::Answering(..) if !session.is_closing() => {
                let bye = Outgoing {
                    kind: Kind::Bye,
                    header: Vec::new(),
                    payload: Payload::EMPTY,
                    id: 0,
                };
                session.queue.push_back(bye);
            }
            _ => {}
        }
    }

    /// Ends a connection at once, with all operations in flight. The peer will be `Lost`.
    pub fn abandon(&mut self, peer: Peer) {
        self.reset(peer.key);
        self.lose(peer.key, "abandoned".to_owned());
    }

    /// Returns the next event, if there is one. Never waits.
    pub fn poll(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.progress();
        }
        self.events.pop_front()
    }

    /// Lets the carriers make progress until there are events or no work, for a limited time.
    /// Returns true if there are events.
    pub fn progress(&mut self) -> bool {
        self.run_carriers();
        self.tend();
        !self.events.is_empty()
    }

    /// Returns true if a carrier had an event. (UCX also has work of its own, of which no peer
    /// knows and for which its descriptor wakes nobody.)
    fn run_carriers(&mut self) -> bool {
        let mut found = false;
        for _ in 0..ROUNDS_MAX {
            self.is_idle = !self.carriers.progress();
            while let Some((carrier, happened)) = self.carriers.next() {
                found = true;
                self.happened(carrier, happened);
            }
            if self.is_idle || !self.events.is_empty() {
                break;
            }
        }
        found
    }

    /// Call this after a sleep on the descriptor that ended by its time limit, to count
    /// [`late_wakes`](Self::late_wakes).
    pub fn slept_out(&mut self) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)];
        // The descriptor may report work that has arrived since.
        if poll(&mut fds, Some(&now)) == Ok(0) {
            self.late_wakes += u64::from(self.run_carriers());
        }
    }

    /// Returns the next event within `timeout`, or none. It spins before it sleeps where that pays
    /// ([`WaitPolicy`]).
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, FabricError> {
        let mut end = None;
        loop {
            if let Some(event) = self.poll_times(POLLS_PER_LOOK) {
                self.wait_policy.found();
                return Ok(Some(event));
            }
            let now = clock::now();
            let end = *end.get_or_insert(now + timeout);
            if now >= end {
                self.wait_policy.give_up();
                return Ok(self.poll());
            }
            if self.wait_policy.must_sleep() {
                self.sleep(end)?;
                self.tend();
            }
        }
    }

    /// Takes a step of a wait for [`poll`](Self::poll), which has returned no event: spins, yields,
    /// or sleeps at most until `end`. The caller ends the wait with [`waited`](Self::waited).
    pub fn rest(&mut self, end: Instant) -> Result<(), FabricError> {
        if self.wait_policy.looks_again(true) {
            return Ok(());
        }
        self.sleep(end)?;
        self.tend();
        Ok(())
    }

    /// Ends a wait of [`rest`](Self::rest). `found` is true if an event came.
    pub fn waited(&mut self, found: bool) {
        match found {
            true => self.wait_policy.found(),
            false => self.wait_policy.give_up(),
        }
    }

    /// Polls without a look at the clock, which takes longer than a poll.
    fn poll_times(&mut self, times: u32) -> Option<Event> {
        if self.until_tend == 0 {
            self.until_tend = WAITS_PER_TEND;
            self.tend();
        }
        self.until_tend -= 1;
        wait::poll_times(times, || {
            if self.events.is_empty() {
                self.run_carriers();
            }
            self.events.pop_front()
        })
    }

    /// Sleeps until there may be something to [`poll`](Self::poll), at most until `end`. It may
    /// return earlier.
    pub fn sleep(&mut self, end: Instant) -> Result<(), FabricError> {
        if !self.arm()? {
            return Ok(());
        }
        let until = self.deadline().map_or(end, |deadline| deadline.min(end));
        let left = until.saturating_duration_since(clock::now());
        let left = Timespec::try_from(left).ok();
        let mut fds = [PollFd::from_borrowed_fd(self.descriptor(), PollFlags::IN)];
        if poll(&mut fds, left.as_ref()) == Ok(0) {
            self.slept_out();
        }
        Ok(())
    }

    /// Becomes readable when there may be something to [`poll`](Self::poll), once
    /// [`arm`](Self::arm) has returned true. It is for poll(2) and epoll(7), and is never read.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.carriers.descriptor()
    }

    /// Prepares the descriptor for a sleep on it. Returns false if there is something to poll. The
    /// sleep must also end at the [`deadline`](Self::deadline).
    pub fn arm(&mut self) -> Result<bool, FabricError> {
        if self.events.is_empty() && !self.is_idle {
            self.progress();
        }
        Ok(self.events.is_empty() && self.carriers.arm()? && self.events.is_empty())
    }

    /// When one must poll even if the descriptor stays silent: connections are looked after.
    pub fn deadline(&self) -> Option<Instant> {
        let is_due = !self.sessions.is_empty() || self.carriers.need_tending();
        is_due.then_some(self.tended + TEND)
    }

    /// Returns the numbers of connections, sends and receipts that are not over. A test that ends
    /// all connections expects zeros.
    #[cfg(feature = "simulation")]
    pub fn remains(&self) -> [usize; 3] {
        [self.sessions.len(), self.sends.len(), self.receipts.len()]
    }

    fn tend(&mut self) {
        let now = clock::now();
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.tended = now;
            self.carriers.tend();
            self.expire(now);
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.carriers.settle();
        for session in self.sessions.values_mut() {
            for way in [session.endpoint.take(), session.incoming_way.take()].into_iter().flatten()
            {
                self.carriers.close(way);
            }
        }
    }
}
