//! What all hosts of the virtual machine know alike: who they are, mailboxes, groups,
//! plug-ins. It changes only by [`Machine::apply`], and all hosts apply the same changes in
//! the same order.

use pvm::tid::Tid;
use pvm::wire::{Answer, HostInfo};
use serde::{Deserialize, Serialize};

use crate::errand::Reply;
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
}

/// What a change has caused. Every host sees all effects, and acts on those that concern its
/// own tasks.
#[derive(Clone, Debug)]
pub enum Effect {
    /// This request is answered.
    Answer(Asker, Reply),
    /// This task has ended.
    Ended(Tid),
}

/// The virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    hosts: Vec<HostInfo>,
}

impl Machine {
    /// A virtual machine of one host.
    pub fn new(host: HostInfo) -> Machine {
        Machine { hosts: vec![host] }
    }

    /// Its hosts.
    pub fn hosts(&self) -> &[HostInfo] {
        &self.hosts
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
                Vec::new()
            }
        }
    }

    fn change(&mut self, change: Change) -> Vec<Effect> {
        let mut effects = Vec::new();
        let reply = match change.what {
            What::Ended(_) => Some(Ok(Answer::Done)),
        };
        if let (Some(asker), Some(reply)) = (change.asker, reply) {
            effects.push(Effect::Answer(asker, reply));
        }
        match change.what {
            // Its own answer goes before.
            What::Ended(tid) => effects.push(Effect::Ended(tid)),
        }
        effects
    }
}
