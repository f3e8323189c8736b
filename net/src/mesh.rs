//! The nodes of a job, each connected with each other: membership, sending, and failure detection.
//!
//! Each node watches the next one, which must send within a time limit. A node without other
//! messages sends a heartbeat. The fabric detects processes and hosts that are gone. This module
//! detects nodes that hang, for instance because a user has stopped them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sync::clock;

use crate::error::FabricError;
use crate::event::{Event, Peer};
use crate::fabric::Fabric;
use crate::secret::Secret;

/// A node's number, from 0.
pub type NodeId = u32;

/// Number of heartbeats in the time after which a silent node counts as lost.
const BEATS: u32 = 4;
/// Time limit for connecting all nodes.
const MEET_MAX: Duration = Duration::from_secs(30);
/// Pause before another call to a node that was not found.
const CALL_PAUSE: Duration = Duration::from_millis(50);
/// Interval of the checks whether connecting is still wanted.
const MEET_CHECK: Duration = Duration::from_millis(20);

/// A node among others.
pub struct Mesh {
    fabric: Fabric,
    peers: Vec<Option<Peer>>,
    /// The addresses of the others, and the deadline until which connecting is repeated.
    addresses: Vec<Vec<u8>>,
    until: Option<Instant>,
    /// The nodes that were not found, and when each is called again.
    missed: VecDeque<(Instant, NodeId)>,
    timeout: Option<Duration>,
    me: NodeId,
    watch: Option<Watch>,
    /// The header of a heartbeat.
    alive: Vec<u8>,
}

struct Watch {
    timeout: Duration,
    /// Time of the last message from the next node.
    last_received: Instant,
    /// Time of the next heartbeat and check.
    next: Instant,
}

/// The reason why another node is gone.
pub enum Gone {
    /// It has closed its connection in order.
    Left(NodeId),
    /// It is lost, for this reason.
    Lost(NodeId, String),
}

/// A message from another node.
pub struct Received {
    /// The sender.
    pub from: NodeId,
    /// The header.
    pub header: Vec<u8>,
    /// And the rest.
    pub body: Vec<u8>,
}

/// The part of [`Mesh::meet`] that never waits.
pub struct Meeting {
    until: Instant,
    /// The messages that arrived in the meantime.
    pub early: Vec<Received>,
}

impl Meeting {
    /// Starts the time limit.
    pub fn begin() -> Self {
        Self { until: clock::now() + MEET_MAX, early: Vec::new() }
    }

    /// Returns the result of [`Mesh::meet`], or `None` if the node must wait for the others.
    pub fn step(
        &mut self,
        mesh: &mut Mesh,
        names: &[&str],
        is_over: impl Fn() -> bool,
    ) -> Option<Result<(), String>> {
        let me = names[mesh.me as usize];
        while !mesh.is_whole() {
            return match mesh.receive() {
                // Others may have connected to all nodes earlier.
                Some(Ok(message)) => {
                    self.early.push(message);
                    continue;
                }
                Some(Err(Gone::Lost(node, why))) => {
                    Some(Err(format!("{me} does not find {}: {why}", names[node as usize])))
                }
                // Nodes end together, so it has failed.
                Some(Err(Gone::Left(node))) => {
                    Some(Err(format!("{me} does not find all: {} has left", names[node as usize])))
                }
                // The last one has connected.
                _ if mesh.is_whole() => break,
                _ if is_over() => Some(Err("the command that starts the nodes has ended".into())),
                _ if clock::now() > self.until => {
                    Some(Err(format!("{me} does not find the others")))
                }
                _ => None,
            };
        }
        Some(Ok(()))
    }
}

impl Mesh {
    /// Creates node `me`, which has not yet sent its address to the others. With a timeout, a node
    /// that is silent for that long counts as lost. `alive` is the header of a heartbeat.
    /// Heartbeats are delivered like other messages.
    pub fn new(
        me: NodeId,
        secret: &Secret,
        timeout: Option<Duration>,
        alive: Vec<u8>,
    ) -> Result<Self, FabricError> {
        Ok(Self::with_fabric(Fabric::new(me.into(), secret)?, timeout, alive))
    }

    /// The same, if all nodes are on this host: unless `NAGAYA_NET` names carriers, no port is
    /// opened.
    pub fn within_host(
        me: NodeId,
        secret: &Secret,
        timeout: Option<Duration>,
        alive: Vec<u8>,
    ) -> Result<Self, FabricError> {
        Ok(Self::with_fabric(Fabric::within_host(me.into(), secret)?, timeout, alive))
    }

    /// The same, over a fabric whose id is the node's number.
    pub(crate) fn with_fabric(fabric: Fabric, timeout: Option<Duration>, alive: Vec<u8>) -> Self {
        let now = clock::now();
        let me = NodeId::try_from(fabric.id()).expect("made of a node's number");
        let watch = timeout.map(|timeout| Watch { timeout, last_received: now, next: now });
        let (peers, addresses, missed) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { fabric, peers, addresses, until: None, missed, timeout, me, watch, alive }
    }

    /// Returns the address at which others connect.
    pub fn address(&self) -> &[u8] {
        self.fabric.address()
    }

    /// Connects to all others. [`is_whole`](Self::is_whole) returns true once that is done.
    pub fn connect(&mut self, addresses: &[&[u8]]) -> Result<(), FabricError> {
        self.peers = vec![None; addresses.len()];
        self.addresses = addresses.iter().map(|address| address.to_vec()).collect();
        self.until = self.timeout.map(|timeout| clock::now() + timeout);
        let others = || (0..).zip(addresses).filter(|(node, _)| *node != self.me);
        self.fabric.expect(&others().map(|(_, address)| *address).collect::<Vec<_>>());
        for (_, address) in others() {
            self.fabric.connect(address)?;
        }
        if self.is_whole() {
            self.fabric.stop_listening(); // it is the only node
        }
        if let Some(watch) = &mut self.watch {
            watch.last_received = clock::now();
        }
        Ok(())
    }

    /// All others are connected.
    pub fn is_whole(&self) -> bool {
        self.peers.iter().flatten().count() + 1 == self.peers.len()
    }

    /// Waits until all others, with the given names, are connected. Returns the messages that
    /// arrived in the meantime. Returns an error text if one is not found in time, or when
    /// `is_over` returns true because the result is no longer wanted.
    pub fn meet(
        &mut self,
        names: &[&str],
        is_over: impl Fn() -> bool,
    ) -> Result<Vec<Received>, String> {
        let mut meeting = Meeting::begin();
        loop {
            if let Some(result) = meeting.step(self, names, &is_over) {
                return result.map(|()| meeting.early);
            }
            let slept = self.fabric.sleep(clock::now() + MEET_CHECK);
            let me = names[self.me as usize];
            slept.map_err(|why| format!("{me} cannot wait for the others: {why}"))?;
        }
    }

    /// No other is connected.
    pub fn is_empty(&self) -> bool {
        self.peers.iter().all(Option::is_none)
    }

    /// Sends to a node. Returns the number of bytes.
    pub fn send(&mut self, to: NodeId, header: &[u8], body: Vec<u8>) -> Result<u64, FabricError> {
        let peer = self.peers[to as usize].ok_or(FabricError::Gone)?;
        let bytes = (header.len() + body.len()) as u64;
        self.fabric.send(peer, header, body).map(|_| bytes)
    }

    /// Sends to all that are connected, as far as that goes.
    pub fn send_all(&mut self, header: &[u8], body: &[u8]) {
        for node in 0..self.peers.len() as NodeId {
            let _ = self.send(node, header, body.to_vec());
        }
    }

    /// Returns whether messages wait for their connection, or for the transport to take them.
    pub fn has_unsent(&self) -> bool {
        self.fabric.has_unsent()
    }

    /// Returns the next message, if there is one. Never waits. A peer that holds the secret and is
    /// not one of the nodes is ignored.
    pub fn receive(&mut self) -> Option<Result<Received, Gone>> {
        self.call_missed();
        loop {
            match self.fabric.poll()? {
                Event::Connected(peer) => match self.node_of(peer) {
                    Some(node) => {
                        self.peers[node as usize] = Some(peer);
                        if self.is_whole() {
                            self.fabric.stop_listening();
                        }
                    }
                    None => self.fabric.abandon(peer),
                },
                Event::Message { from, header, payload } => {
                    let Some(node) = self.node_of(from) else { continue };
                    let next = self.next_node();
                    if let Some(watch) = self.watch.as_mut().filter(|_| node == next) {
                        watch.last_received = clock::now();
                    }
                    return Some(Ok(Received { from: node, header, body: payload }));
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

    /// Waits for the next message until `end`; `None` without one, or if the fabric fails.
    pub fn wait(&mut self, end: Instant) -> Option<Result<Received, Gone>> {
        loop {
            let received = self.receive();
            let is_over = received.is_some() || clock::now() >= end;
            let until = self.deadline().map_or(end, |deadline| deadline.min(end));
            if is_over || self.fabric.rest(until).is_err() {
                self.fabric.waited(received.is_some());
                return received;
            }
        }
    }

    /// Returns the node of a peer, if it is one of the others.
    fn node_of(&self, peer: Peer) -> Option<NodeId> {
        let node = NodeId::try_from(peer.id).ok()?;
        (node != self.me && (node as usize) < self.peers.len()).then_some(node)
    }

    /// Sends a heartbeat when it is due. Returns the next node and the time of its silence if that
    /// is too long.
    pub fn beat(&mut self, now: Instant) -> Option<(NodeId, Duration)> {
        let (next, before) = (self.next_node(), self.node_before());
        let watch = self.watch.as_mut().filter(|watch| now >= watch.next)?;
        let beat = watch.timeout / BEATS;
        // A node that was itself stopped did not receive: it must not blame the next one.
        if now > watch.next + watch.timeout / 2 {
            watch.last_received = now;
        }
        watch.next = now + beat;
        let silent = now.saturating_duration_since(watch.last_received);
        let is_silent = silent > watch.timeout && self.peers.get(next as usize)?.is_some();
        let alive = std::mem::take(&mut self.alive);
        let _ = self.send(before, &alive, Vec::new());
        self.alive = alive;
        is_silent.then_some((next, silent))
    }

    /// When [`beat`](Self::beat) or the fabric has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let beat = self.watch.as_ref().map(|watch| watch.next);
        let call = self.missed.front().map(|(due, _)| *due);
        self.fabric.deadline().into_iter().chain(beat).chain(call).min()
    }

    /// For poll(2), after [`may_sleep`](Self::may_sleep).
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fabric.descriptor()
    }

    /// Returns true if there is nothing to [`receive`](Self::receive) until the descriptor is
    /// readable.
    pub fn may_sleep(&mut self) -> Result<bool, FabricError> {
        self.fabric.arm()
    }

    /// Returns true if UCX is one of the carriers.
    pub fn has_ucx(&self) -> bool {
        self.fabric.has_ucx()
    }

    /// Returns true if sent messages stay where their receiver finds them when this process exits.
    pub fn keeps_messages(&self) -> bool {
        self.fabric.keeps_messages()
    }

    /// See [`Fabric::remains`].
    #[cfg(feature = "simulation")]
    pub fn remains(&self) -> [usize; 3] {
        self.fabric.remains()
    }

    /// See [`Fabric::slept_out`].
    pub fn slept_out(&mut self) {
        self.fabric.slept_out();
    }

    /// See [`Fabric::late_wakes`].
    pub fn late_wakes(&self) -> u64 {
        self.fabric.late_wakes()
    }

    /// Ends all connections, after all that was sent.
    pub fn leave(&mut self) {
        self.watch = None;
        for peer in self.peers.iter().flatten() {
            self.fabric.close(*peer);
        }
    }

    /// Removes an ended connection. Returns true if it was the current one to its node.
    fn forget(&mut self, peer: Peer) -> bool {
        let place = self.peers.get_mut(peer.id as usize);
        place.is_some_and(|place| place.take_if(|it| *it == peer).is_some())
    }

    /// A node that was not connected yet has not answered: on a busy machine it may still. Returns
    /// false if it is too late for another call.
    fn call_again(&mut self, node: NodeId) -> bool {
        let now = clock::now();
        let is_early = self.until.is_none_or(|until| now < until);
        if is_early && !self.is_connected(node) {
            self.missed.push_back((now + CALL_PAUSE, node));
        }
        is_early
    }

    /// Calls the nodes whose pause is over. An address without a process fails at once, and a call
    /// without a pause would fail without end.
    fn call_missed(&mut self) {
        if self.missed.is_empty() {
            return;
        }
        let now = clock::now();
        while self.missed.front().is_some_and(|(due, _)| *due <= now) {
            let (_, node) = self.missed.pop_front().expect("the first");
            if !self.is_connected(node) {
                let called = self.fabric.connect(&self.addresses[node as usize]);
                called.expect("the address was right before");
            }
        }
    }

    fn is_connected(&self, node: NodeId) -> bool {
        self.peers.get(node as usize).is_some_and(Option::is_some)
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
        let mut is_received = false;
        while !(is_received && theirs.iter().all(|&is_lost| is_lost)) {
            assert!(Instant::now() < until, "received: {is_received}, strangers lost: {theirs:?}");
            match mesh.receive() {
                Some(Ok(message)) => {
                    assert_eq!((message.from, &message.header[..]), (1, &[7][..]));
                    is_received = true;
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
