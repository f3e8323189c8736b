//! A process that connects, sends, closes and abandons at random, and checks all that it is told.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::event::{Event, Peer, SendId, Sending};
use net::fabric::Fabric;
use net::payload::Payload;
use net::simulation::{Network, Wait};

/// Bytes of a header: the connection's number, the sequence number, the length and a seed.
const HEADER_BYTES: usize = 32;
/// A length that payloads never have. The simulation announces more if there is no memory.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The contents of a buffer after its use.
const POISON: u8 = 0xee;

/// Counts of the messages of one direction of a connection.
#[derive(Debug, Default)]
pub struct Count {
    pub sent: u64,
    pub received: u64,
    /// Messages that may have been lost with the connection.
    pub unsent: u64,
    pub to: usize,
    /// The sender knows that the receiver has everything.
    pub is_closed: bool,
}

/// The state that all processes share: the connections, by their numbers.
#[derive(Default)]
pub struct Ledger {
    pub counts: Vec<Count>,
    /// When each process died.
    pub died: HashMap<usize, Duration>,
    pub lost: u64,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    /// The peer's number for it, once a message has come.
    theirs: Option<u64>,
    is_connected: bool,
    is_closing: bool,
}

enum Buffer {
    Bytes,
    Shared(Arc<[u8]>),
    Borrowed(Box<[u8]>),
}

/// The memory in which payloads arrive, by its address.
type Places = Arc<Mutex<HashMap<usize, Box<[u8]>>>>;

/// A process.
pub struct Talker {
    pub fabric: Fabric,
    pub wait: Wait,
    is_idle: bool,
    node: usize,
    may_lose: bool,
    may_abandon: bool,
    /// Actions that are left.
    actions: u64,
    connections: BTreeMap<Peer, Connection>,
    /// Messages under way: the number of their connection, and their memory.
    pending: BTreeMap<SendId, (usize, Buffer)>,
    places: Places,
    /// Time limit for the report of a death.
    bound: Duration,
}

/// Returns byte `at` of the payload with a seed.
fn byte(seed: u64, at: usize) -> u8 {
    (seed.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Talker {
    pub fn new(
        mut fabric: Fabric,
        node: usize,
        actions: u64,
        may_lose: bool,
        may_abandon: bool,
        bound: Duration,
    ) -> Self {
        let places = Places::default();
        if node % 2 == 1 {
            let places = places.clone();
            let place = move |_: Peer, _: &[u8], bytes: usize| {
                (bytes.is_multiple_of(3) && bytes < PAYLOAD_BYTES_MAX).then(|| {
                    let mut place = vec![POISON; bytes].into_boxed_slice();
                    let start = NonNull::new(place.as_mut_ptr()).expect("an address");
                    places.lock().expect("one thread").insert(start.as_ptr() as usize, place);
                    start
                })
            };
            // SAFETY: the memory lives in `places` until its payload has arrived, or until this
            // process has ended.
            unsafe { fabric.place_with(Box::new(place)) };
        }
        let (connections, pending, wait) = (BTreeMap::new(), BTreeMap::new(), Wait::Ready);
        Self {
            fabric,
            wait,
            is_idle: false,
            node,
            may_lose,
            may_abandon,
            actions,
            connections,
            pending,
            places,
            bound,
        }
    }

    /// A turn: one event, or one action.
    pub fn turn(&mut self, network: &Network, addresses: &[Vec<u8>], ledger: &mut Ledger) {
        let acts = network.below(4) == 0;
        let event = if acts { None } else { self.fabric.poll() };
        if let Some(event) = event {
            self.handle(event, network, ledger);
        } else if self.actions > 0 {
            self.actions -= 1;
            self.act(network, addresses, ledger);
        } else {
            self.close_all();
        }
        let is_over = self.actions == 0 && self.connections.is_empty() && self.pending.is_empty();
        let sleeps = self.fabric.arm().expect("the simulation can");
        self.is_idle = is_over && sleeps && self.fabric.remains() == [0; 3];
        self.wait = match (sleeps, self.actions) {
            (true, 0) => Wait::Message(self.fabric.deadline()),
            _ => Wait::Ready,
        };
    }

    /// Returns true if nothing is left to do, unless a peer calls.
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    fn close_all(&mut self) {
        for (&peer, connection) in &mut self.connections {
            connection.is_closing = true;
            self.fabric.close(peer);
        }
    }

    fn act(&mut self, network: &Network, addresses: &[Vec<u8>], ledger: &mut Ledger) {
        let peers: Vec<Peer> = self.connections.keys().copied().collect();
        let kind = network.below(32);
        if peers.is_empty() || kind < 4 {
            let to = network.below(addresses.len() as u64) as usize;
            if to != self.node {
                let peer = self.fabric.connect(&addresses[to]).expect("it is an address");
                self.know(peer, ledger);
            }
            return;
        }
        let peer = peers[network.below(peers.len() as u64) as usize];
        match kind {
            4 => {
                self.connections.get_mut(&peer).expect("a key").is_closing = true;
                self.fabric.close(peer);
            }
            5 if self.may_abandon => self.fabric.abandon(peer),
            _ => self.send(peer, network, ledger),
        }
    }

    /// Gives a number to a new connection.
    fn know(&mut self, peer: Peer, ledger: &mut Ledger) {
        self.connections.entry(peer).or_insert_with(|| {
            ledger.counts.push(Count { to: peer.id as usize, ..Count::default() });
            let number = ledger.counts.len() as u64 - 1;
            Connection { number, theirs: None, is_connected: false, is_closing: false }
        });
    }

    fn send(&mut self, peer: Peer, network: &Network, ledger: &mut Ledger) {
        let connection = &self.connections[&peer];
        let count = &mut ledger.counts[connection.number as usize];
        let bytes = match network.below(4) {
            0 => 0,
            1 => network.below(100),
            2 => network.below(2_000),
            _ => network.below(20_000),
        };
        let seed = network.below(u64::MAX);
        let numbers = [connection.number, count.sent, bytes, seed];
        let header = numbers.map(u64::to_le_bytes).concat();
        let content: Vec<u8> = (0..bytes as usize).map(|at| byte(seed, at)).collect();
        let (payload, buffer) = match network.below(3) {
            0 => (Payload::from(content), Buffer::Bytes),
            1 => {
                let shared: Arc<[u8]> = content.into();
                (shared.clone().into(), Buffer::Shared(shared))
            }
            _ => {
                let own = content.into_boxed_slice();
                // SAFETY: the memory stays in `pending` until the message is sent, or this process
                // has ended.
                (unsafe { Payload::borrowed(own.as_ptr(), own.len()) }, Buffer::Borrowed(own))
            }
        };
        match self.fabric.send(peer, &header, payload) {
            Ok(Sending::Done) => {
                count.sent += 1;
                end_of(buffer);
            }
            Ok(Sending::Pending(id)) => {
                count.sent += 1;
                let earlier = self.pending.insert(id, (connection.number as usize, buffer));
                assert!(earlier.is_none(), "{id:?} names two messages");
            }
            // The peer has closed the connection or is lost, which an event will report.
            Err(_) => {}
        }
    }

    fn handle(&mut self, event: Event, network: &Network, ledger: &mut Ledger) {
        network.note(&[6, self.node as u64]);
        match event {
            Event::Connected(peer) => {
                self.know(peer, ledger);
                let connection = self.connections.get_mut(&peer).expect("it is known");
                assert!(!connection.is_connected, "{peer:?} is connected twice");
                connection.is_connected = true;
            }
            Event::Message { from, header, payload } => {
                self.received(from, &header, &payload, network, ledger);
            }
            Event::Placed { from, header, at, bytes } => {
                let place = self.places.lock().expect("one thread").remove(&(at.as_ptr() as usize));
                let place = place.expect("a place is used once");
                assert_eq!(place.len(), bytes, "the place has the length of the payload");
                self.received(from, &header, &place, network, ledger);
            }
            Event::Sent(id) => {
                end_of(self.pending.remove(&id).expect("a send ends once").1);
            }
            Event::Unsent(id) => {
                let (number, buffer) = self.pending.remove(&id).expect("a send ends once");
                ledger.counts[number].unsent += 1;
                end_of(buffer);
            }
            Event::Closed(peer) => {
                let connection = self.connections.remove(&peer).expect("a connection ends once");
                ledger.counts[connection.number as usize].is_closed = true;
            }
            Event::Lost { peer, why } => {
                self.connections.remove(&peer).expect("a connection ends once");
                self.lost(peer, &why, network, ledger);
            }
        }
    }

    fn lost(&self, peer: Peer, why: &str, network: &Network, ledger: &mut Ledger) {
        ledger.lost += 1;
        assert!(self.may_lose, "{} loses {} without a fault: {why}", self.node, peer.id);
        if let Some(&died) = ledger.died.get(&(peer.id as usize)) {
            let after = network.now().saturating_sub(died);
            assert!(after < self.bound, "{}: {} died {after:?} ago: {why}", self.node, peer.id);
        }
    }

    fn received(
        &mut self,
        from: Peer,
        header: &[u8],
        payload: &[u8],
        network: &Network,
        ledger: &mut Ledger,
    ) {
        let connection = self.connections.get_mut(&from).expect("it is connected");
        assert!(connection.is_connected, "a message comes before its connection");
        assert_eq!(header.len(), HEADER_BYTES, "the header is whole");
        let number =
            |at: usize| u64::from_le_bytes(header[8 * at..][..8].try_into().expect("eight bytes"));
        let [theirs, sequence, bytes, seed] = [0, 1, 2, 3].map(number);
        assert_eq!(*connection.theirs.get_or_insert(theirs), theirs, "one connection is another");
        let count = &mut ledger.counts[theirs as usize];
        assert_eq!(count.to, self.node, "the message is for another");
        assert_eq!(count.received, sequence, "each message comes once and in order");
        count.received += 1;
        assert_eq!(payload.len() as u64, bytes, "the payload is whole");
        let wrong = payload.iter().enumerate().find(|&(at, &is)| is != byte(seed, at));
        assert_eq!(wrong, None, "the payload is that which was sent");
        network.note(&[7, theirs, sequence]);
    }
}

impl fmt::Display for Talker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, actions, wait, connections, pending, fabric, .. } = self;
        let pending = pending.len();
        let remains = fabric.remains();
        write!(
            f,
            "{node}: {actions} actions, {wait:?}, {connections:?}, {pending} sends, {remains:?}"
        )
    }
}

/// A send is over: nobody else reads its memory any more.
fn end_of(buffer: Buffer) {
    match buffer {
        Buffer::Bytes => {}
        Buffer::Shared(shared) => {
            assert_eq!(Arc::strong_count(&shared), 1, "a payload is kept after its send");
        }
        Buffer::Borrowed(mut own) => own.fill(POISON),
    }
}
