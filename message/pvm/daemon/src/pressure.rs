//! Back-pressure: only a sender that is faster than its receiver has to wait. This bounds the
//! bytes queued for a task or in flight to a host. Above the limit, the daemon stops reading the
//! connection or output that brought more.
//!
//! A daemon notifies the other hosts that send to such a task, and they do the same. Messages
//! between daemons, and the daemon's own messages to tasks, are always sent.

use std::collections::{BTreeMap, BTreeSet};

use pvm::tid::Tid;

use crate::delivery::Delivery;
use crate::event::PeerMessage;
use crate::network::Network;
use crate::poll::Poll;
use crate::source::Source;

/// Bytes in flight to a host above which its senders are stopped.
const PENDING_FULL_BYTES: usize = 16 << 20;
/// Bytes in flight to a host below which stopped senders resume.
const PENDING_ROOM_BYTES: usize = 4 << 20;

/// The bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bottleneck {
    /// A task does not take its messages.
    Task(Tid),
    /// Messages to a host are sent too slowly.
    Host(u16),
}

/// The sources that are not read, and the reasons.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Poll sources that are paused, by bottleneck.
    paused: BTreeMap<Bottleneck, BTreeSet<u64>>,
    /// Hosts that were notified that a task of ours is full.
    notified: BTreeMap<Tid, BTreeSet<u16>>,
    /// Full tasks of other hosts.
    full: BTreeSet<Tid>,
    /// The bottleneck that the last message met.
    met: Option<Bottleneck>,
}

impl Pressure {
    /// Starts a new event. Messages that it causes count for its source.
    pub(crate) fn begin(&mut self) {
        self.met = None;
    }

    /// Records a delivery to this task of ours.
    pub(crate) fn delivered(&mut self, delivery: &Delivery, tid: Tid) {
        if delivery.is_full(tid) {
            self.met = Some(Bottleneck::Task(tid));
        }
    }

    /// Records a message to this task of another host.
    pub(crate) fn forwarded(&mut self, network: &Network, tid: Tid) {
        let host = tid.host();
        if self.full.contains(&tid) {
            self.met = Some(Bottleneck::Task(tid));
        } else if network.pending(host) > PENDING_FULL_BYTES {
            self.met = Some(Bottleneck::Host(host));
        }
    }

    /// Stops reading `source` for now, if one of its messages met a bottleneck.
    pub(crate) fn hold_back(&mut self, poll: &Poll<Source>, source: u64) {
        if let Some(bottleneck) = self.met.take() {
            poll.pause(source);
            self.paused.entry(bottleneck).or_default().insert(source);
        }
    }

    /// Notifies `host`, if one of its messages met a bottleneck.
    pub(crate) fn hold_back_host(&mut self, network: &mut Network, host: u16) {
        if let Some(Bottleneck::Task(tid)) = self.met.take()
            && self.notified.entry(tid).or_default().insert(host)
        {
            network.send(host, &PeerMessage::Full(tid));
        }
    }

    /// Records another host's notice that a task is full or has room.
    pub(crate) fn received(&mut self, message: &PeerMessage) {
        match message {
            PeerMessage::Full(tid) => self.full.insert(*tid),
            PeerMessage::Room(tid) => self.full.remove(tid),
            _ => false,
        };
    }

    /// Forgets the tasks of a lost host.
    pub(crate) fn lost(&mut self, host: u16) {
        self.full.retain(|tid| tid.host() != host);
        self.notified.values_mut().for_each(|hosts| {
            hosts.remove(&host);
        });
    }

    /// Resumes the sources and hosts whose bottleneck is gone. `own` is this host's number.
    pub(crate) fn resume(
        &mut self,
        own: u16,
        delivery: &Delivery,
        network: &mut Network,
        poll: &Poll<Source>,
    ) {
        if !self.paused.is_empty() {
            let is_free = |bottleneck: &Bottleneck| match *bottleneck {
                Bottleneck::Task(tid) if tid.host() == own => delivery.has_room(tid),
                Bottleneck::Task(tid) => !self.full.contains(&tid),
                Bottleneck::Host(host) => network.pending(host) <= PENDING_ROOM_BYTES,
            };
            let free: Vec<Bottleneck> = self.paused.keys().copied().filter(is_free).collect();
            for bottleneck in free {
                for source in self.paused.remove(&bottleneck).unwrap_or_default() {
                    poll.resume(source);
                }
            }
        }
        if !self.notified.is_empty() {
            let notified = self.notified.keys().copied();
            let free: Vec<Tid> = notified.filter(|tid| delivery.has_room(*tid)).collect();
            for tid in free {
                for host in self.notified.remove(&tid).unwrap_or_default() {
                    network.send(host, &PeerMessage::Room(tid));
                }
            }
        }
    }
}
