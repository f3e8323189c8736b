//! A fabric whose carrier is a script: a peer that holds the secret and violates the protocol, and
//! a carrier that completes or fails operations in any order, as UCX may.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::carrier::{Carrier, Data, EndpointId, Happened, Landing, Reason, Sending, There, Way};
use crate::carriers::Carriers;
use crate::error::FabricError;
use crate::event::{Event, Peer};
use crate::fabric::Fabric;
use crate::payload::Payload;
use crate::secret::{Domain, Nonce, Secret};
use crate::session::Link;
use crate::wire::{Address, CarrierKind, Header, Hello, Kind, Section, Welcome};

/// The fabric's own number, and that of its peer.
const US: u64 = 1;
const THEM: u64 = 2;
/// Maximum length of data that are announced. The fabric allocates memory for them.
const ANNOUNCED_BYTES_MAX: usize = 1 << 20;

/// The state of the carrier that the script sees.
#[derive(Default)]
struct Script {
    happened: Vec<Happened>,
    /// Headers and payloads that the fabric has sent.
    sent: Vec<(Vec<u8>, Vec<u8>)>,
    /// Sends and receives under way.
    sends: Vec<u64>,
    receives: Vec<(u64, Landing)>,
    /// The tag of each way.
    ways: HashMap<EndpointId, u64>,
    last_way: u64,
    /// Sends and receives complete later.
    is_slow: bool,
}

struct Scripted(Arc<Mutex<Script>>, OwnedFd);

impl Scripted {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carrier for Scripted {
    fn address(&self) -> Result<Vec<u8>, FabricError> {
        Ok(vec![1])
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        Ok(true)
    }

    fn progress(&mut self) -> bool {
        false
    }

    fn next(&mut self) -> Option<Happened> {
        let mut script = self.script();
        (!script.happened.is_empty()).then(|| script.happened.remove(0))
    }

    fn connect(&mut self, address: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        if address.is_empty() {
            return Err("no address".into());
        }
        let mut script = self.script();
        script.last_way += 1;
        let id = script.last_way;
        script.ways.insert(id, tag);
        Ok(id)
    }

    fn answer(&mut self, _: Way, address: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        self.connect(address, tag)
    }

    fn close(&mut self, endpoint: EndpointId) {
        let mut script = self.script();
        let tag = script.ways.remove(&endpoint).expect("a way is closed once");
        script.happened.push(Happened::Closed(tag));
    }

    fn send(&mut self, endpoint: EndpointId, header: &[u8], payload: Payload, tag: u64) -> Sending {
        let mut script = self.script();
        assert!(script.ways.contains_key(&endpoint), "a message on a closed way");
        let payload = match payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Shared(bytes) => bytes.to_vec(),
            Payload::Borrowed(..) => unreachable!("the script lends nothing"),
        };
        script.sent.push((header.to_vec(), payload));
        if script.is_slow {
            script.sends.push(tag);
            return Sending::Pending;
        }
        Sending::Done
    }

    fn receive(&mut self, _: There, landing: Landing, tag: u64) -> Option<Landing> {
        let mut script = self.script();
        if script.is_slow {
            script.receives.push((tag, landing));
            return None;
        }
        Some(landing)
    }

    fn refuse(&mut self, _: There) {}

    fn settle(&mut self) {}

    fn tend(&mut self) {}

    fn needs_tending(&self) -> bool {
        false
    }

    fn refused(&self) -> u64 {
        0
    }

    fn stop_listening(&mut self) {}
}

/// A fabric, its user, and its peer.
pub struct Scene {
    fabric: Fabric,
    script: Arc<Mutex<Script>>,
    secret: Secret,
    peers: Vec<Peer>,
    nonce: Nonce,
    /// The connections that both sides have agreed on.
    links: Vec<Link>,
    /// Messages that came to the user.
    pub received: usize,
}

impl Scene {
    /// A fabric without a connection.
    pub fn new() -> Self {
        let secret = Secret::new([7; 32]);
        let script = Arc::new(Mutex::new(Script::default()));
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        let carrier: Box<dyn Carrier> = Box::new(Scripted(script.clone(), event));
        let carriers = Carriers::of(vec![(CarrierKind::Ucx, carrier)]).expect("one carrier");
        let fabric = Fabric::over(US, &secret, carriers).expect("its address is short");
        let nonce = [9; 16];
        Self { fabric, script, secret, peers: Vec::new(), nonce, links: Vec::new(), received: 0 }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message comes.
    pub fn come(&mut self, header: &[u8], payload: Vec<u8>, announced: bool) {
        let data = match announced && payload.len() <= ANNOUNCED_BYTES_MAX {
            true => Data::There(There { name: 1, bytes: payload.len(), announced }),
            false => Data::Here(payload),
        };
        let happened = Happened::Came { header: header.to_vec(), data, way: Way(0) };
        self.script().happened.push(happened);
    }

    fn sections() -> Vec<u8> {
        let mut sections = Vec::new();
        Section::write(&mut sections, CarrierKind::Ucx, &[3]);
        sections
    }

    /// The peer says hello, with this number for the connection.
    pub fn say_hello(&mut self, from: u64, session: u64, sections: Option<&[u8]>) {
        let hello =
            Hello { from: from.into(), to: US.into(), session: session.into(), nonce: self.nonce };
        let own = Self::sections();
        let payload = [hello.as_bytes(), sections.unwrap_or(&own)].concat();
        let token = self.secret.token(Domain::Hello, &[&payload]);
        let header = Header::new(Kind::Hello, 0, 0, token, 0);
        self.come(header.as_bytes(), payload, false);
    }

    /// The peer answers the last hello or welcome of the fabric. Returns false if there is none.
    pub fn agree(&mut self) -> bool {
        let sent = self.script().sent.pop();
        let Some((header, payload)) = sent else { return false };
        let Some((_, kind, _)) = Header::parse(&header) else { return false };
        let session = 5 + self.links.len() as u64;
        match kind {
            Kind::Hello => {
                let Some((hello, _)) = Hello::parse(&payload) else { return false };
                let welcome = Welcome {
                    from: hello.to,
                    to: hello.from,
                    session: session.into(),
                    nonce: self.nonce,
                    answered: hello.nonce,
                };
                let token = self.secret.token(Domain::Welcome, &[welcome.as_bytes()]);
                let (us, them) = ((hello.to.get(), &self.nonce), (hello.from.get(), &hello.nonce));
                self.links.push(Link::new(&self.secret, us, them, hello.session.get()));
                let header = Header::new(Kind::Welcome, hello.session.get(), 0, token, 0);
                self.come(header.as_bytes(), welcome.as_bytes().to_vec(), false);
            }
            Kind::Welcome => {
                let Ok(welcome) = Welcome::ref_from_bytes(&payload) else { return false };
                let them = (welcome.from.get(), &welcome.nonce);
                let us = (welcome.to.get(), &self.nonce);
                self.links.push(Link::new(&self.secret, us, them, welcome.session.get()));
            }
            _ => {}
        }
        true
    }

    /// The peer sends a message of this kind on a connection, in its order unless `sequence` is
    /// given.
    pub fn send(
        &mut self,
        link: usize,
        kind: u8,
        sequence: Option<u64>,
        user: &[u8],
        data: Vec<u8>,
    ) {
        let count = self.links.len();
        let Some(link) = self.links.get_mut(link % count.max(1)) else { return };
        let kind = match kind % 6 {
            0 => Kind::Ready,
            1 => Kind::Bye,
            2 => Kind::Reset,
            3 => Kind::Welcome,
            _ => Kind::Data,
        };
        let user = match kind {
            Kind::Data => &user[..user.len().min(crate::wire::USER_HEADER_BYTES_MAX)],
            _ => &[],
        };
        let number = sequence.unwrap_or(link.sent);
        link.sent += u64::from(sequence.is_none());
        let header = Header::new(kind, link.session, number, link.ours, user.len());
        let header = [header.as_bytes(), user].concat();
        self.come(&header, data, number % 2 == 1);
    }

    /// The carrier completes or fails the first send or receive, or a way fails.
    pub fn complete(&mut self, what: u8, succeeds: bool) {
        let mut script = self.script();
        let failed = || Reason::from("it failed");
        let happened = match what % 4 {
            0 if !script.sends.is_empty() => {
                let tag = script.sends.remove(0);
                Happened::Sent(tag, if succeeds { Ok(()) } else { Err(failed()) })
            }
            1 if !script.receives.is_empty() => {
                let (tag, landing) = script.receives.remove(0);
                Happened::Received(tag, succeeds.then_some(landing))
            }
            2 => match script.ways.values().next() {
                Some(&tag) => Happened::Failed(tag, failed()),
                None => return,
            },
            _ => {
                script.is_slow = succeeds;
                return;
            }
        };
        script.happened.push(happened);
    }

    /// The user connects to an address. `None` is the peer's.
    pub fn connect(&mut self, address: Option<&[u8]>) {
        let sections = Self::sections();
        let token = self.secret.token(Domain::Address, &[&THEM.to_le_bytes(), &sections]);
        let own = Address::bytes(THEM, token, &sections);
        if let Ok(peer) = self.fabric.connect(address.unwrap_or(&own)) {
            self.peers.push(peer);
        }
    }

    /// The user sends to a peer, closes the connection, or abandons it.
    pub fn act(&mut self, what: u8, peer: usize, payload: &[u8]) {
        let count = self.peers.len();
        let Some(&peer) = self.peers.get(peer % count.max(1)) else { return };
        match what % 3 {
            0 => drop(self.fabric.send(peer, b"user", payload)),
            1 => self.fabric.close(peer),
            _ => self.fabric.abandon(peer),
        }
    }

    /// The user takes all events.
    pub fn poll(&mut self) {
        while let Some(event) = self.fabric.poll() {
            match event {
                Event::Connected(peer) => self.peers.push(peer),
                Event::Message { .. } => self.received += 1,
                _ => {}
            }
        }
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}
