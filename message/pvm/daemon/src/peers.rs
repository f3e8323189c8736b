//! The other hosts' daemons, on the fabric.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use fcp::loan::Loan;
use net::error::FabricError;
use net::event::{Event, Peer, SendId, Sending};
use net::fabric::Fabric;
use net::payload::Payload;
use net::secret::Secret;
use net::wire::USER_HEADER_BYTES_MAX;
use pvm::tid::Tid;

use crate::event::PeerLetter;
use crate::load::Load;

/// What has happened on the fabric.
#[derive(Debug)]
pub enum Happened {
    /// A host has sent this.
    Letter(u16, Box<PeerLetter>),
    /// A host has sent a message for a task of ours.
    Load(u16, Load),
    /// The connection to a host is lost: why.
    Lost(u16, String),
    /// Something is wrong that concerns no host of ours.
    Odd(String),
}

/// This host's daemon among the others.
pub struct Peers {
    fabric: Fabric,
    hosts: BTreeMap<u16, Peer>,
    /// Messages that are not sent yet: to which host, how many bytes, and what they lie in.
    sending: HashMap<SendId, (u16, usize, Option<Loan>)>,
    /// Bytes of them, by host.
    pending: BTreeMap<u16, usize>,
}

/// The header of a message whose head goes in front of its data.
const WHOLE: &[u8] = b"w";

/// Whether a head can be a header of the fabric's.
fn fits(head: &[u8]) -> bool {
    head.len() <= USER_HEADER_BYTES_MAX
}

/// What a daemon is called on the fabric.
fn name(host: u16) -> u64 {
    Tid::daemon(host).0.into()
}

/// The host whose daemon is called this.
fn host(name: u64) -> Option<u16> {
    let tid = Tid(u32::try_from(name).ok()?);
    (tid.is_daemon() && tid.host() != 0).then(|| tid.host())
}

impl Peers {
    /// Opens the fabric. Errors: UCX is missing, or finds no network.
    pub fn open(own: u16, secret: [u8; 32]) -> Result<Peers, FabricError> {
        let fabric = Fabric::new(name(own), &Secret::new(secret))?;
        let (sending, pending) = Default::default();
        Ok(Peers { fabric, hosts: BTreeMap::new(), sending, pending })
    }

    /// Where others find us.
    pub fn address(&self) -> &[u8] {
        self.fabric.address()
    }

    /// Connects to a host, unless it has connected to us. Letters may be sent at once.
    pub fn connect(&mut self, host: u16, address: &[u8]) -> Result<(), FabricError> {
        if !self.hosts.contains_key(&host) {
            let peer = self.fabric.connect(address)?;
            self.hosts.insert(host, peer);
        }
        Ok(())
    }

    /// The host has left. What it was sent before still goes.
    pub fn leave(&mut self, host: u16) {
        if let Some(peer) = self.hosts.remove(&host) {
            self.fabric.close(peer);
        }
    }

    /// Sends a message for a task of that host; `loan` has its data, if it is a lent one. If the
    /// host is not connected, it is lost, and known to be soon.
    pub fn pass_on(&mut self, host: u16, load: Load, loan: Option<Loan>) {
        let Some(peer) = self.hosts.get(&host) else { return };
        let (head, data) = match (load, &loan) {
            (Load::Whole(bytes), _) => (WHOLE.to_vec(), Payload::from(bytes)),
            (Load::Apart(head, data), _) if fits(&head) => (head, Payload::from(data)),
            (Load::Apart(head, data), _) => (WHOLE.to_vec(), Payload::from([head, data].concat())),
            (Load::Lent(..), None) => return,
            (Load::Lent(head, _), Some(loan)) if fits(&head) => {
                // SAFETY: the loan is kept below until it is sent, and is read-only memory of
                // the window, which the post keeps.
                (head, unsafe { Payload::borrowed(loan.as_ptr(), loan.len()) })
            }
            (Load::Lent(head, _), Some(loan)) => {
                (WHOLE.to_vec(), Payload::from([&head[..], loan].concat()))
            }
        };
        let size = data.extent().1;
        if let Ok(Sending::Pending(id)) = self.fabric.send(*peer, &head, data) {
            *self.pending.entry(host).or_default() += size;
            self.sending.insert(id, (host, size, loan));
        }
    }

    /// Bytes of messages that wait to be sent to this host.
    pub fn pending(&self, host: u16) -> usize {
        self.pending.get(&host).copied().unwrap_or(0)
    }

    fn sent(&mut self, id: SendId) {
        let Some((host, size, _)) = self.sending.remove(&id) else { return };
        if let Some(pending) = self.pending.get_mut(&host) {
            *pending -= size;
            if *pending == 0 {
                self.pending.remove(&host);
            }
        }
    }

    /// Sends a letter. If the host is not connected, it is lost, and known to be soon.
    pub fn send(&mut self, host: u16, letter: &PeerLetter) {
        // Postcard refuses only what has no length.
        let bytes = postcard::to_allocvec(letter).expect("a letter");
        if let Some(peer) = self.hosts.get(&host) {
            // Who is gone is reported as an event.
            let _ = self.fabric.send(*peer, &[], bytes);
        }
    }

    /// What has happened next, if anything has.
    pub fn poll(&mut self) -> Option<Happened> {
        loop {
            match self.fabric.poll()? {
                Event::Connected(peer) => match host(peer.id) {
                    // Both sides may have connected: each keeps to one, for the order of letters.
                    Some(host) => {
                        self.hosts.entry(host).or_insert(peer);
                    }
                    None => self.fabric.abandon(peer),
                },
                Event::Message { from, header, payload } => {
                    let Some(host) = host(from.id) else { continue };
                    match header.len() {
                        0 => {}
                        1 => return Some(Happened::Load(host, Load::Whole(payload))),
                        _ => return Some(Happened::Load(host, Load::Apart(header, payload))),
                    }
                    return Some(match postcard::from_bytes(&payload) {
                        Ok(letter) => Happened::Letter(host, Box::new(letter)),
                        Err(error) => Happened::Odd(format!(
                            "host {host} sends a letter that is none ({error})"
                        )),
                    });
                }
                Event::Sent(id) | Event::Unsent(id) => self.sent(id),
                Event::Placed { .. } => {}
                Event::Closed(peer) => {
                    if let Some(host) = self.known(peer) {
                        return Some(Happened::Lost(host, "it has left".into()));
                    }
                }
                Event::Lost { peer, why } => {
                    if let Some(host) = self.known(peer) {
                        return Some(Happened::Lost(host, why));
                    }
                }
            }
        }
    }

    /// Closes all connections, and waits until the others have all that was sent to them, or
    /// the time is over. Whether they have.
    pub fn part(&mut self, end: Instant) -> bool {
        let mut open: Vec<Peer> = std::mem::take(&mut self.hosts).into_values().collect();
        for peer in &open {
            self.fabric.close(*peer);
        }
        while !open.is_empty() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            match self.fabric.wait(left) {
                Ok(Some(Event::Closed(gone) | Event::Lost { peer: gone, .. })) => {
                    open.retain(|peer| *peer != gone);
                }
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        open.is_empty()
    }

    /// The host at the other end, if it is one, which it then is no longer.
    fn known(&mut self, peer: Peer) -> Option<u16> {
        let host = host(peer.id)?;
        self.hosts.remove(&host).map(|_| host)
    }

    /// Whether one may sleep on the descriptor; if not, there is something to poll.
    pub fn may_sleep(&mut self) -> bool {
        // A fabric that cannot be armed is one to look at again and again.
        self.fabric.arm().unwrap_or(false)
    }

    /// When to poll though the descriptor is silent.
    pub fn deadline(&self) -> Option<Instant> {
        self.fabric.deadline()
    }
}

impl AsFd for Peers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fabric.descriptor()
    }
}
