//! What all hosts of the virtual machine know alike: who they are, mailboxes, groups,
//! plug-ins. It changes only by [`Machine::apply`], and all hosts apply the same changes in
//! the same order.

use std::collections::BTreeMap;

use pvm::slots::Count;
use pvm::tid::{HOST_MAX, Tid};
use pvm::wire::{Answer, GroupRequest, HostInfo};
use serde::{Deserialize, Serialize};

use crate::errand::Reply;
use crate::groups::{self, Closing, Groups, SlotChange};
use crate::invitation::Place;
use crate::order::Item;

/// A task's request that is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asker {
    /// Who asks.
    pub tid: Tid,
    /// Its number for the request.
    pub id: u32,
}

/// A change of the virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Who is to be told what came of it.
    pub asker: Option<Asker>,
    /// What changes.
    pub what: What,
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Where a host is on the fabric.
    Address(u16, Vec<u8>),
    /// So many hosts are to be started; the asker's host gets numbers for them.
    Reserve(u16),
    /// A host joins.
    Joined(Place),
    /// A task is one no longer.
    Ended(Tid),
    /// The asker wants something of a group.
    Group(GroupRequest),
    /// A host has closed a group's slot.
    Counted(u16, Closing, Count),
}

/// What a change has caused. Every host sees all effects, and acts on those that concern its
/// own tasks.
#[derive(Clone, Debug)]
pub enum Effect {
    /// This request is answered.
    Answer(Asker, Reply),
    /// This task has ended.
    Ended(Tid),
    /// Something happens to a group's slot.
    Slot(u16, SlotChange),
    /// The first of the numbers for the hosts that the asker wants; nothing if there are not
    /// so many.
    Reserved(Asker, Option<u16>),
    /// This host has joined.
    Joined(Place),
    /// This host has left, or is lost.
    Left(u16),
}

impl From<groups::Effect> for Effect {
    fn from(effect: groups::Effect) -> Effect {
        match effect {
            groups::Effect::Answer(asker, reply) => Effect::Answer(asker, reply),
            groups::Effect::Slot(slot, change) => Effect::Slot(slot, change),
        }
    }
}

/// The virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    hosts: Vec<HostInfo>,
    groups: Groups,
    /// Where hosts are on the fabric; of a single host, nowhere.
    addresses: BTreeMap<u16, Vec<u8>>,
    /// The last number that was reserved for a host. None is used twice.
    last_host: u16,
}

impl Machine {
    /// A virtual machine of one host.
    pub fn new(host: HostInfo) -> Machine {
        let last_host = host.tid.host();
        let (groups, addresses) = (Groups::default(), BTreeMap::new());
        Machine { hosts: vec![host], groups, addresses, last_host }
    }

    /// Its hosts.
    pub fn hosts(&self) -> &[HostInfo] {
        &self.hosts
    }

    /// Its groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Where its hosts are on the fabric.
    pub fn addresses(&self) -> &BTreeMap<u16, Vec<u8>> {
        &self.addresses
    }

    /// The host with this number.
    pub fn host(&self, host: u16) -> Option<&HostInfo> {
        self.hosts.iter().find(|info| info.tid.host() == host)
    }

    /// The host with this name; `.` is the asker's own.
    pub fn named(&self, name: &str, own: u16) -> Option<&HostInfo> {
        match name {
            "." => self.host(own),
            _ => self.hosts.iter().find(|info| info.name == name),
        }
    }

    /// Changes it.
    pub fn apply(&mut self, item: Item<Change>) -> Vec<Effect> {
        match item {
            Item::Change(change) | Item::Join(_, change) => self.change(change),
            Item::Leave(host) => {
                self.hosts.retain(|info| info.tid.host() != host);
                self.addresses.remove(&host);
                let groups = self.groups.host_left(host);
                groups.into_iter().map(Effect::from).chain([Effect::Left(host)]).collect()
            }
        }
    }

    fn change(&mut self, Change { asker, what }: Change) -> Vec<Effect> {
        let effects = match what {
            What::Address(host, address) => {
                self.addresses.insert(host, address);
                Vec::new()
            }
            What::Reserve(count) => {
                let first = self.last_host + 1;
                let enough = count <= HOST_MAX - self.last_host;
                if enough {
                    self.last_host += count;
                }
                let reserved = |asker| Effect::Reserved(asker, enough.then_some(first));
                return asker.map(reserved).into_iter().collect();
            }
            What::Joined(place) => {
                let host = place.info.tid.host();
                if self.host(host).is_some() {
                    return Vec::new();
                }
                self.hosts.push(place.info.clone());
                self.hosts.sort_by_key(|info| info.tid.host());
                self.addresses.insert(host, place.address.clone());
                return vec![Effect::Joined(place)];
            }
            What::Ended(tid) => {
                // Its own answer goes before its end.
                let answer = asker.map(|asker| Effect::Answer(asker, Ok(Answer::Done)));
                let left = self.groups.ended(tid);
                return answer
                    .into_iter()
                    .chain(left.into_iter().map(Effect::from))
                    .chain([Effect::Ended(tid)])
                    .collect();
            }
            What::Group(request) => match asker {
                Some(asker) => self.groups.request(asker, &request),
                None => Vec::new(),
            },
            What::Counted(host, closing, count) => self.groups.counted(host, &closing, count),
        };
        effects.into_iter().map(Effect::from).collect()
    }
}
