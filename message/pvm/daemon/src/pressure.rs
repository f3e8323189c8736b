//! Back-pressure: only a sender that is faster than its receiver has to wait. This bounds the
//! bytes queued for a task or in flight to a host. Above the limit, the daemon stops reading the
//! connection or output that brought more.
//!
//! A daemon notifies the other hosts that send to such a task, and they do the same. Messages
//! between daemons, and the daemon's own messages to tasks, are always sent.

use std::collections::{BTreeMap, BTreeSet};

use pvm::tid::Tid;

use crate::event::PeerLetter;
use crate::run::Running;

/// Bytes in flight to a host above which its senders are stopped, and below which they resume.
const PENDING_FULL: usize = 16 << 20;
const PENDING_ROOM: usize = 4 << 20;

/// The bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Narrow {
    /// A task does not take its messages.
    Task(Tid),
    /// Messages to a host are sent too slowly.
    Host(u16),
}

/// The sources that are not read, and the reasons.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Poll sources that are paused, by bottleneck.
    waiting: BTreeMap<Narrow, BTreeSet<u64>>,
    /// Hosts that were notified that a task of ours is full.
    told: BTreeMap<Tid, BTreeSet<u16>>,
    /// Full tasks of other hosts.
    full: BTreeSet<Tid>,
    /// The bottleneck that the last message met.
    met: Option<Narrow>,
}

impl Pressure {
    /// Starts a new event. Messages that it causes count for its source.
    pub(crate) fn begin(&mut self) {
        self.met = None;
    }
}

impl Running {
    /// Records a delivery to this task of ours.
    pub(crate) fn went_to(&mut self, tid: Tid) {
        if self.post.is_full(tid) {
            self.pressure.met = Some(Narrow::Task(tid));
        }
    }

    /// Records a message to this task of another host.
    pub(crate) fn went_far(&mut self, tid: Tid) {
        let host = tid.host();
        if self.pressure.full.contains(&tid) {
            self.pressure.met = Some(Narrow::Task(tid));
        } else if self.pending(host) > PENDING_FULL {
            self.pressure.met = Some(Narrow::Host(host));
        }
    }

    fn pending(&self, host: u16) -> usize {
        self.network.peers.as_ref().map_or(0, |peers| peers.pending(host))
    }

    /// Stops reading `source` for now, if one of its messages met a bottleneck.
    pub(crate) fn hold_back(&mut self, source: u64) {
        if let Some(narrow) = self.pressure.met.take() {
            self.poll.pause(source);
            self.pressure.waiting.entry(narrow).or_default().insert(source);
        }
    }

    /// Notifies `host`, if one of its messages met a bottleneck.
    pub(crate) fn hold_back_host(&mut self, host: u16) {
        if let Some(Narrow::Task(tid)) = self.pressure.met.take()
            && self.pressure.told.entry(tid).or_default().insert(host)
        {
            self.write(host, &PeerLetter::Full(tid));
        }
    }

    /// Records another host's notice that a task is full or has room.
    pub(crate) fn told(&mut self, letter: &PeerLetter) {
        match letter {
            PeerLetter::Full(tid) => self.pressure.full.insert(*tid),
            PeerLetter::Room(tid) => self.pressure.full.remove(tid),
            _ => false,
        };
    }

    /// Forgets the tasks of a lost host.
    pub(crate) fn lost(&mut self, host: u16) {
        self.pressure.full.retain(|tid| tid.host() != host);
        self.pressure.told.values_mut().for_each(|hosts| {
            hosts.remove(&host);
        });
    }

    /// Resumes the sources and hosts whose bottleneck is gone.
    pub(crate) fn let_go(&mut self) {
        let own = self.own_host();
        if !self.pressure.waiting.is_empty() {
            let is_free = |narrow: &Narrow| match *narrow {
                Narrow::Task(tid) if tid.host() == own => self.post.has_room(tid),
                Narrow::Task(tid) => !self.pressure.full.contains(&tid),
                Narrow::Host(host) => self.pending(host) <= PENDING_ROOM,
            };
            let free: Vec<Narrow> = self.pressure.waiting.keys().copied().filter(is_free).collect();
            for narrow in free {
                for source in self.pressure.waiting.remove(&narrow).unwrap_or_default() {
                    self.poll.resume(source);
                }
            }
        }
        if !self.pressure.told.is_empty() {
            let told = self.pressure.told.keys().copied();
            let free: Vec<Tid> = told.filter(|tid| self.post.has_room(*tid)).collect();
            for tid in free {
                for host in self.pressure.told.remove(&tid).unwrap_or_default() {
                    self.write(host, &PeerLetter::Room(tid));
                }
            }
        }
    }

    fn write(&mut self, host: u16, letter: &PeerLetter) {
        if let Some(peers) = &mut self.network.peers {
            peers.send(host, letter);
        }
    }
}
