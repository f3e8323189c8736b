//! Connections to the daemons of the other hosts, over the fabric.

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

use crate::event::PeerMessage;
use crate::task_message::TaskMessage;

/// An event of the fabric.
#[derive(Debug)]
pub enum PeerEvent {
    /// A daemon message arrived from this host.
    Message(u16, Box<PeerMessage>),
    /// A message for a task of this host arrived from another host.
    TaskMessage(u16, TaskMessage),
    /// The connection to this host is lost, with the reason.
    Lost(u16, String),
    /// An error that concerns no known host.
    Malformed(String),
}

/// The connections of this host's daemon to the others.
pub struct Peers {
    fabric: Fabric,
    hosts: BTreeMap<u16, Peer>,
    /// Messages in flight: destination host, size in bytes, and the exposed buffer that holds
    /// the data.
    sending: HashMap<SendId, (u16, usize, Option<Loan>)>,
    /// Bytes in flight, by host.
    pending: BTreeMap<u16, usize>,
}

/// Fabric header of a message whose head stands before its data in the payload.
const WHOLE: &[u8] = b"w";

/// Returns true if `head` is short enough for a header of the fabric.
fn fits(head: &[u8]) -> bool {
    head.len() <= USER_HEADER_BYTES_MAX
}

/// Returns the fabric ID of a host's daemon.
fn name(host: u16) -> u64 {
    Tid::daemon(host).0.into()
}

/// Returns the host whose daemon has this fabric ID.
fn host(name: u64) -> Option<u16> {
    let tid = Tid(u32::try_from(name).ok()?);
    (tid.is_daemon() && tid.host() != 0).then(|| tid.host())
}

impl Peers {
    /// Opens the fabric.
    ///
    /// # Errors
    ///
    /// The carriers find no network.
    pub fn open(own: u16, secret: [u8; 32]) -> Result<Peers, FabricError> {
        let fabric = Fabric::new(name(own), &Secret::new(secret))?;
        let (sending, pending) = Default::default();
        Ok(Peers { fabric, hosts: BTreeMap::new(), sending, pending })
    }

    /// Returns our address on the fabric.
    pub fn address(&self) -> &[u8] {
        self.fabric.address()
    }

    /// Connects to a host, unless it has connected to us. Messages can be sent at once.
    pub fn connect(&mut self, host: u16, address: &[u8]) -> Result<(), FabricError> {
        if !self.hosts.contains_key(&host) {
            let peer = self.fabric.connect(address)?;
            self.hosts.insert(host, peer);
        }
        Ok(())
    }

    /// Closes the connection to a host that has left. Messages sent before are still delivered.
    pub fn leave(&mut self, host: u16) {
        if let Some(peer) = self.hosts.remove(&host) {
            self.fabric.close(peer);
        }
    }

    /// Sends a message to a task of that host. `loan` is the exposed buffer with its data, if
    /// the message has one. Drops the message if the host is not connected; its loss will be
    /// reported.
    pub fn forward(&mut self, host: u16, message: TaskMessage, loan: Option<Loan>) {
        let Some(peer) = self.hosts.get(&host) else { return };
        let (head, data) = match (message, &loan) {
            (TaskMessage::Whole(bytes), _) => (WHOLE.to_vec(), Payload::from(bytes)),
            (TaskMessage::Split(head, data), _) if fits(&head) => (head, Payload::from(data)),
            (TaskMessage::Split(head, data), _) => {
                (WHOLE.to_vec(), Payload::from([head, data].concat()))
            }
            (TaskMessage::Exposed(..), None) => return,
            (TaskMessage::Exposed(head, _), Some(loan)) if fits(&head) => {
                // SAFETY: `loan` is read-only memory of the window, which `Delivery` keeps mapped.
                // If the send is pending, `self.sending` holds the loan until the fabric reports
                // it as sent.
                (head, unsafe { Payload::borrowed(loan.as_ptr(), loan.len()) })
            }
            (TaskMessage::Exposed(head, _), Some(loan)) => {
                (WHOLE.to_vec(), Payload::from([&head[..], loan].concat()))
            }
        };
        let size = data.extent().1;
        if let Ok(Sending::Pending(id)) = self.fabric.send(*peer, &head, data) {
            *self.pending.entry(host).or_default() += size;
            self.sending.insert(id, (host, size, loan));
        }
    }

    /// Returns the bytes of messages in flight to this host.
    pub fn pending(&self, host: u16) -> usize {
        self.pending.get(&host).copied().unwrap_or(0)
    }

    fn sent(&mut self, id: SendId) {
        let Some((host, size, _)) = self.sending.remove(&id) else { return };
        if let Some(pending) = self.pending.get_mut(&host) {
            assert!(*pending >= size, "sent bytes were pending");
            *pending -= size;
            if *pending == 0 {
                self.pending.remove(&host);
            }
        }
    }

    /// Sends a daemon message. Drops it if the host is not connected; its loss will be reported.
    pub fn send(&mut self, host: u16, message: &PeerMessage) {
        // Postcard fails only on data of unknown length; every part of a message has a length.
        let bytes = postcard::to_allocvec(message).expect("a message");
        if let Some(peer) = self.hosts.get(&host) {
            // The fabric reports a lost peer as an event.
            let _ = self.fabric.send(*peer, &[], bytes);
        }
    }

    /// Returns the next event of the fabric, if there is one.
    pub fn poll(&mut self) -> Option<PeerEvent> {
        loop {
            match self.fabric.poll()? {
                Event::Connected(peer) => match host(peer.id) {
                    // If both sides have connected, each keeps one connection, so that messages
                    // stay in order.
                    Some(host) => {
                        self.hosts.entry(host).or_insert(peer);
                    }
                    None => self.fabric.abandon(peer),
                },
                Event::Message { from, header, payload } => {
                    let Some(host) = host(from.id) else { continue };
                    match header.len() {
                        0 => {}
                        1 => {
                            return Some(PeerEvent::TaskMessage(host, TaskMessage::Whole(payload)));
                        }
                        _ => {
                            return Some(PeerEvent::TaskMessage(
                                host,
                                TaskMessage::Split(header, payload),
                            ));
                        }
                    }
                    return Some(match postcard::from_bytes(&payload) {
                        Ok(message) => PeerEvent::Message(host, Box::new(message)),
                        Err(error) => PeerEvent::Malformed(format!(
                            "host {host} sent an invalid message ({error})"
                        )),
                    });
                }
                Event::Sent(id) | Event::Unsent(id) => self.sent(id),
                Event::Placed { .. } => {}
                Event::Closed(peer) => {
                    if let Some(host) = self.known(peer) {
                        return Some(PeerEvent::Lost(host, "it has left".into()));
                    }
                }
                Event::Lost { peer, why } => {
                    if let Some(host) = self.known(peer) {
                        return Some(PeerEvent::Lost(host, why));
                    }
                }
            }
        }
    }

    /// Closes all connections, and waits until `end` for the others to receive all pending
    /// messages. Returns true if all have.
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

    /// Forgets the host behind `peer`, and returns its number if it was known.
    fn known(&mut self, peer: Peer) -> Option<u16> {
        let host = host(peer.id)?;
        self.hosts.remove(&host).map(|_| host)
    }

    /// Returns true if the caller may sleep on the descriptor. Otherwise there are events to
    /// poll.
    pub fn may_sleep(&mut self) -> bool {
        // If arming fails, keep polling.
        self.fabric.arm().unwrap_or(false)
    }

    /// Returns the time of the next poll that is due without a wake-up of the descriptor.
    pub fn deadline(&self) -> Option<Instant> {
        self.fabric.deadline()
    }
}

impl AsFd for Peers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fabric.descriptor()
    }
}
