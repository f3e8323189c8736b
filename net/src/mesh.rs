//! Nodes of a job, each connected with each: who is there, what is sent to them, and whether
//! they still live.
//!
//! Every node watches the next one: it must hear from it, and a node with nothing to say
//! says so. The fabric notices processes and hosts that are gone; this notices nodes that
//! hang, be it because somebody has stopped them.

use std::time::{Duration, Instant};

use crate::error::FabricError;
use crate::event::{Event, Peer};
use crate::fabric::Fabric;
use crate::secret::Secret;

/// A node's number, from 0.
pub type NodeId = u32;

/// How often a node says that it lives, in the time after which it is given up.
const BEATS: u32 = 4;
/// How long nodes may take to meet.
const MEET_MAX: Duration = Duration::from_secs(30);

/// A node among others.
pub struct Mesh {
    fabric: Fabric,
    peers: Vec<Option<Peer>>,
    /// Where the others are, and until when they are called again that do not answer.
    addresses: Vec<Vec<u8>>,
    until: Option<Instant>,
    timeout: Option<Duration>,
    me: NodeId,
    watch: Option<Watch>,
    /// The header that says no more than that we live.
    alive: Vec<u8>,
}

struct Watch {
    timeout: Duration,
    /// When the next node was last heard.
    heard: Instant,
    /// When we next say that we live, and look.
    next: Instant,
}

/// What became of another node.
pub enum Gone {
    /// It has left, and said so.
    Left(NodeId),
    /// It is lost, for this reason.
    Lost(NodeId, String),
}

/// What another node says.
pub struct Said {
    /// Who says it.
    pub from: NodeId,
    /// What.
    pub header: Vec<u8>,
    /// And the rest.
    pub body: Vec<u8>,
}

impl Mesh {
    /// Node `me`, with its address still to be told to the others. It is given up, if there is
    /// a timeout, when it has been silent for so long; `alive` is the header that it sends
    /// when it has nothing to say, and hears like any other.
    pub fn new(
        me: NodeId,
        secret: &Secret,
        timeout: Option<Duration>,
        alive: Vec<u8>,
    ) -> Result<Self, FabricError> {
        let now = Instant::now();
        let watch = timeout.map(|timeout| Watch { timeout, heard: now, next: now });
        let fabric = Fabric::new(me.into(), secret)?;
        let (peers, addresses) = (Vec::new(), Vec::new());
        Ok(Self { fabric, peers, addresses, until: None, timeout, me, watch, alive })
    }

    /// Where others find it.
    pub fn address(&self) -> &[u8] {
        self.fabric.address()
    }

    /// Connects to all others; [`is_whole`](Self::is_whole) says when that is done.
    pub fn connect(&mut self, addresses: &[&[u8]]) -> Result<(), FabricError> {
        self.peers = vec![None; addresses.len()];
        self.addresses = addresses.iter().map(|address| address.to_vec()).collect();
        self.until = self.timeout.map(|timeout| Instant::now() + timeout);
        for (node, address) in addresses.iter().enumerate() {
            if node as NodeId != self.me {
                self.fabric.connect(address)?;
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.heard = Instant::now();
        }
        Ok(())
    }

    /// All others are connected.
    pub fn is_whole(&self) -> bool {
        self.peers.iter().flatten().count() + 1 == self.peers.len()
    }

    /// Waits until all others are connected, which are called so; what they have said meanwhile. An
    /// error, in words, where one is not found in time, or when `is_over` says that nobody
    /// waits for us any more.
    pub fn meet(
        &mut self,
        names: &[&str],
        is_over: impl Fn() -> bool,
    ) -> Result<Vec<Said>, String> {
        let (me, mut early) = (names[self.me as usize], Vec::new());
        let until = Instant::now() + MEET_MAX;
        while !self.is_whole() {
            match self.hear() {
                // Others may have found all before us.
                Some(Ok(said)) => early.push(said),
                Some(Err(Gone::Lost(node, why))) => {
                    return Err(format!("{me} does not find {}: {why}", names[node as usize]));
                }
                _ if is_over() => return Err("who starts the nodes is gone".into()),
                _ if Instant::now() > until => {
                    return Err(format!("{me} does not find the others"));
                }
                _ => std::thread::yield_now(),
            }
        }
        Ok(early)
    }

    /// No other is connected.
    pub fn is_empty(&self) -> bool {
        self.peers.iter().all(Option::is_none)
    }

    /// Sends to a node; how many bytes that were.
    pub fn send(&mut self, to: NodeId, header: &[u8], body: Vec<u8>) -> Result<u64, FabricError> {
        let peer = self.peers[to as usize].ok_or(FabricError::Gone)?;
        let bytes = (header.len() + body.len()) as u64;
        self.fabric.send(peer, header, body).map(|_| bytes)
    }

    /// Sends to all that are connected, as far as that goes.
    pub fn tell_all(&mut self, header: &[u8], body: &[u8]) {
        for node in 0..self.peers.len() as NodeId {
            let _ = self.send(node, header, body.to_vec());
        }
    }

    /// Returns whether messages wait for their connection, or for the transport to take them.
    pub fn has_unsent(&self) -> bool {
        self.fabric.has_unsent()
    }

    /// What was said next, if anything was. Never waits. Who knows the secret and is none of the
    /// nodes is not heard.
    pub fn hear(&mut self) -> Option<Result<Said, Gone>> {
        loop {
            match self.fabric.poll()? {
                Event::Connected(peer) => match self.node_of(peer) {
                    Some(node) => self.peers[node as usize] = Some(peer),
                    None => self.fabric.abandon(peer),
                },
                Event::Message { from, header, payload } => {
                    let Some(node) = self.node_of(from) else { continue };
                    let next = self.next_node();
                    if let Some(watch) = self.watch.as_mut().filter(|_| node == next) {
                        watch.heard = Instant::now();
                    }
                    return Some(Ok(Said { from: node, header, body: payload }));
                }
                Event::Closed(peer) if self.forget(peer) => {
                    return Some(Err(Gone::Left(peer.id as NodeId)));
                }
                Event::Lost { peer, why } => {
                    let Some(node) = self.node_of(peer) else { continue };
                    let is_begun = self.forget(peer);
                    if is_begun || !self.call_again(node) {
                        return Some(Err(Gone::Lost(node, why)));
                    }
                }
                Event::Closed(_) => {}
                Event::Placed { .. } | Event::Sent(_) | Event::Unsent(_) => {}
            }
        }
    }

    /// Which of the other nodes it is, if it is one.
    fn node_of(&self, peer: Peer) -> Option<NodeId> {
        let node = NodeId::try_from(peer.id).ok()?;
        (node != self.me && (node as usize) < self.peers.len()).then_some(node)
    }

    /// Says that we live, when it is time; and whether the next node has been silent for too
    /// long: for how long.
    pub fn beat(&mut self, now: Instant) -> Option<(NodeId, Duration)> {
        let (next, before) = (self.next_node(), self.node_before());
        let watch = self.watch.as_mut().filter(|watch| now >= watch.next)?;
        let beat = watch.timeout / BEATS;
        // Who was stopped himself has not listened.
        if now > watch.next + watch.timeout / 2 {
            watch.heard = now;
        }
        watch.next = now + beat;
        let silent = now.saturating_duration_since(watch.heard);
        let is_silent = silent > watch.timeout && self.peers.get(next as usize)?.is_some();
        let alive = std::mem::take(&mut self.alive);
        let _ = self.send(before, &alive, Vec::new());
        self.alive = alive;
        is_silent.then_some((next, silent))
    }

    /// When [`beat`](Self::beat) or the fabric has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let beat = self.watch.as_ref().map(|watch| watch.next);
        self.fabric.deadline().into_iter().chain(beat).min()
    }

    /// For poll(2), after [`may_sleep`](Self::may_sleep).
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fabric.descriptor()
    }

    /// Whether there is nothing to [`hear`](Self::hear) until the descriptor says so.
    pub fn may_sleep(&mut self) -> Result<bool, FabricError> {
        self.fabric.arm()
    }

    /// Ends all connections, after all that was sent.
    pub fn leave(&mut self) {
        self.watch = None;
        for peer in self.peers.iter().flatten() {
            self.fabric.close(*peer);
        }
    }

    /// The connection is over; whether it was the one to its node.
    fn forget(&mut self, peer: Peer) -> bool {
        let place = self.peers.get_mut(peer.id as usize);
        place.is_some_and(|place| place.take_if(|it| *it == peer).is_some())
    }

    /// A node that was not connected yet has not answered: on a busy machine it may still.
    fn call_again(&mut self, node: NodeId) -> bool {
        let is_early = self.until.is_none_or(|until| Instant::now() < until);
        let connected = self.peers.get(node as usize).is_some_and(Option::is_some);
        let Some(address) = self.addresses.get(node as usize).filter(|_| is_early) else {
            return false;
        };
        connected || self.fabric.connect(address).is_ok()
    }

    fn next_node(&self) -> NodeId {
        (self.me + 1) % self.peers.len().max(1) as NodeId
    }

    fn node_before(&self) -> NodeId {
        let nodes = self.peers.len().max(1) as NodeId;
        (self.me + nodes - 1) % nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its number would name no node, or, cut off, another one.
    #[test]
    fn messages_of_unknown_nodes_are_ignored() {
        let secret = Secret::random();
        let mut mesh = Mesh::new(0, &secret, None, vec![0]).expect("a mesh");
        let mut node = Fabric::new(1, &secret).expect("a fabric");
        mesh.connect(&[&[], node.address()]).expect("a node");
        let mut strangers = [2, (1 << 32) + 1].map(|id| Fabric::new(id, &secret).expect("another"));
        let mut theirs = Vec::new();
        for stranger in &mut strangers {
            let peer = stranger.connect(mesh.address()).expect("a way");
            stranger.send(peer, &[1], vec![]).expect("it is queued");
            theirs.push(false);
        }
        let until = Instant::now() + Duration::from_secs(20);
        let mut is_heard = false;
        while !(is_heard && theirs.iter().all(|&is_lost| is_lost)) {
            assert!(Instant::now() < until, "heard: {is_heard}, strangers lost: {theirs:?}");
            match mesh.hear() {
                Some(Ok(said)) => {
                    assert_eq!((said.from, &said.header[..]), (1, &[7][..]));
                    is_heard = true;
                }
                Some(Err(_)) => panic!("no node is lost"),
                None => {}
            }
            if let Some(Event::Connected(peer)) = node.poll() {
                node.send(peer, &[7], vec![]).expect("it stands");
            }
            for (stranger, is_lost) in strangers.iter_mut().zip(&mut theirs) {
                *is_lost |= matches!(stranger.poll(), Some(Event::Lost { .. }));
            }
        }
        assert!(mesh.is_whole());
    }
}
