//! The other hosts' daemons, on the fabric.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use fabric::error::FabricError;
use fabric::event::{Event, Peer};
use fabric::fabric::Fabric;
use fabric::secret::Secret;
use pvm::tid::Tid;

use crate::event::PeerLetter;

/// What has happened on the fabric.
#[derive(Debug)]
pub enum Happened {
    /// A host has sent this.
    Letter(u16, Box<PeerLetter>),
    /// The connection to a host is lost: why.
    Lost(u16, String),
    /// Something is wrong that concerns no host of ours.
    Odd(String),
}

/// This host's daemon among the others.
pub struct Peers {
    fabric: Fabric,
    hosts: BTreeMap<u16, Peer>,
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
        Ok(Peers { fabric, hosts: BTreeMap::new() })
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
                Event::Message { from, payload, .. } => {
                    let Some(host) = host(from.id) else { continue };
                    return Some(match postcard::from_bytes(&payload) {
                        Ok(letter) => Happened::Letter(host, Box::new(letter)),
                        Err(error) => Happened::Odd(format!(
                            "host {host} sends a letter that is none ({error})"
                        )),
                    });
                }
                Event::Sent(_) | Event::Unsent(_) | Event::Placed { .. } => {}
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
