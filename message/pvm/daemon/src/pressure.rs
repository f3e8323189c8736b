//! Back-pressure: who sends faster than it is taken has to wait, and only who does. What waits
//! for a task, or to go to another host, is bounded by that: while it is too much, the
//! connection or output that brought more is not read.
//!
//! A daemon tells others whose messages come for such a task, and they do the same. Letters
//! between daemons, and what the daemon itself has to say, always go.

use std::collections::{BTreeMap, BTreeSet};

use pvm::tid::Tid;

use crate::event::PeerLetter;
use crate::run::Running;

/// Bytes of messages that may wait to go to a host before those who send more must wait, too;
/// and so few must be left before they go on.
const PENDING_FULL: usize = 16 << 20;
const PENDING_ROOM: usize = 4 << 20;

/// Where it is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Narrow {
    /// What comes for a task is not taken.
    Task(Tid),
    /// What goes to a host does not go fast enough.
    Host(u16),
}

/// Who waits, for what.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// What is not read.
    waiting: BTreeMap<Narrow, BTreeSet<u64>>,
    /// Hosts that were told that a task of ours is full.
    told: BTreeMap<Tid, BTreeSet<u16>>,
    /// Tasks of other hosts that are full.
    full: BTreeSet<Tid>,
    /// Where something has just gone that should not have more.
    met: Option<Narrow>,
}

impl Pressure {
    /// Something has happened; what goes by that is its source's doing.
    pub(crate) fn begin(&mut self) {
        self.met = None;
    }
}

impl Running {
    /// Something has gone to this task of ours.
    pub(crate) fn went_to(&mut self, tid: Tid) {
        if self.post.is_full(tid) {
            self.pressure.met = Some(Narrow::Task(tid));
        }
    }

    /// Something has gone to this task of another host.
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

    /// All that this source brought is on its way: if that was too much, it is not read any
    /// more for now.
    pub(crate) fn hold_back(&mut self, source: u64) {
        if let Some(narrow) = self.pressure.met.take() {
            self.poll.pause(source);
            self.pressure.waiting.entry(narrow).or_default().insert(source);
        }
    }

    /// The same for what another host brought: it is told.
    pub(crate) fn hold_back_host(&mut self, host: u16) {
        if let Some(Narrow::Task(tid)) = self.pressure.met.take()
            && self.pressure.told.entry(tid).or_default().insert(host)
        {
            self.write(host, &PeerLetter::Full(tid));
        }
    }

    /// What another host says of its tasks.
    pub(crate) fn told(&mut self, letter: &PeerLetter) {
        match letter {
            PeerLetter::Full(tid) => self.pressure.full.insert(*tid),
            PeerLetter::Room(tid) => self.pressure.full.remove(tid),
            _ => false,
        };
    }

    /// Nobody waits for what is on this host.
    pub(crate) fn lost(&mut self, host: u16) {
        self.pressure.full.retain(|tid| tid.host() != host);
        self.pressure.told.values_mut().for_each(|hosts| {
            hosts.remove(&host);
        });
    }

    /// Lets those go on for whom there is room again.
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
