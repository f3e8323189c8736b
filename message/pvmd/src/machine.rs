//! What all hosts of the virtual machine know alike: who they are, mailboxes, groups,
//! plug-ins. It changes only by [`Machine::apply`], and all hosts apply the same changes in
//! the same order.

use pvm::slots::Count;
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupRequest, HostInfo};
use serde::{Deserialize, Serialize};

use crate::errand::Reply;
use crate::groups::{self, Closing, Groups, SlotChange};
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
}

impl Machine {
    /// A virtual machine of one host.
    pub fn new(host: HostInfo) -> Machine {
        Machine { hosts: vec![host], groups: Groups::default() }
    }

    /// Its hosts.
    pub fn hosts(&self) -> &[HostInfo] {
        &self.hosts
    }

    /// Its groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
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
                self.groups.host_left(host).into_iter().map(Effect::from).collect()
            }
        }
    }

    fn change(&mut self, Change { asker, what }: Change) -> Vec<Effect> {
        let effects = match what {
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
