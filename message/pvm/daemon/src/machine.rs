//! The replicated state of the virtual machine: hosts, mailboxes, groups, plug-ins. It changes
//! only by [`Machine::apply`], and all hosts apply the same changes in the same order.

use std::collections::BTreeMap;

use pvm::constants::{PVMNORESETCLASS, PvmMboxMultiInstance};
use pvm::error::Error;
use pvm::parcel::Data;
use pvm::slots::Count;
use pvm::tid::{HOST_MAX, Tid};
use pvm::wire::{Answer, GroupRequest, HostInfo, Inheritance, MailboxRequest, Parcel};
use serde::{Deserialize, Serialize};

use crate::errand::{Asker, Reply};
use crate::groups::{self, Closing, Groups, SlotChange};
use crate::invitation::Place;
use crate::mailboxes::Mailboxes;
use crate::order::Item;

/// A change of the replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The request to answer once the change is applied.
    pub asker: Option<Asker>,
    /// The change itself.
    pub operation: Operation,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// The host has this fabric address.
    Address(u16, Vec<u8>),
    /// Reserve this number of host numbers for the asker's host, which starts those hosts.
    Reserve(u16),
    /// A host joins.
    Joined(Place),
    /// A task ended.
    Ended(Tid),
    /// Execute the asker's mailbox request.
    Mailbox(MailboxRequest),
    /// Set or clear the asker's exemption from resets.
    NoReset(bool),
    /// Kill all tasks but the asker and those exempt from resets.
    Reset,
    /// Execute the asker's group request.
    Group(GroupRequest),
    /// Make this task resource manager.
    Manager(Tid),
    /// A host closed a group's slot, with this count.
    Counted(u16, Closing, Count),
    /// Make the asker the tracer, with the attributes that tasks inherit; or clear the tracer.
    Tracer(Option<Inheritance>),
}

/// An effect of a change. Every host sees all effects, and acts on those that concern its own
/// tasks.
#[derive(Clone, Debug)]
pub enum Effect {
    /// This request is answered.
    Answer(Asker, Reply),
    /// This task ended.
    Ended(Tid),
    /// All tasks but these are to be killed.
    Reset(Vec<Tid>),
    /// A group's slot changes.
    Slot(u16, SlotChange),
    /// The first of the host numbers reserved for the asker; `None` if there are too few left.
    Reserved(Asker, Option<u16>),
    /// This host joined.
    Joined(Place),
    /// This host left, or is lost.
    Left(u16),
    /// This resource manager ended.
    ManagerGone(Tid),
}

impl From<groups::Effect> for Effect {
    fn from(effect: groups::Effect) -> Effect {
        match effect {
            groups::Effect::Answer(asker, reply) => Effect::Answer(asker, reply),
            groups::Effect::Slot(slot, change) => Effect::Slot(slot, change),
        }
    }
}

/// The replicated state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    hosts: Vec<HostInfo>,
    groups: Groups,
    mailboxes: Mailboxes,
    /// Fabric addresses of the hosts. Empty while there is only one host.
    addresses: BTreeMap<u16, Vec<u8>>,
    /// The last number reserved for a host. No number is used twice.
    last_host: u16,
    /// Current and former resource managers that live. The last one is the current one.
    managers: Vec<Tid>,
    /// The tracer, and the attributes of tasks that name no tracer or output sink of their own.
    tracer: Option<(Tid, Inheritance)>,
}

impl Machine {
    /// Returns a virtual machine of one host.
    pub fn new(host: HostInfo) -> Machine {
        Machine {
            last_host: host.tid.host(),
            hosts: vec![host],
            groups: Groups::default(),
            mailboxes: Mailboxes::default(),
            addresses: BTreeMap::new(),
            managers: Vec::new(),
            tracer: None,
        }
    }

    /// Returns the hosts.
    pub fn hosts(&self) -> &[HostInfo] {
        &self.hosts
    }

    /// Returns the groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the mailboxes.
    pub fn mailboxes(&self) -> &Mailboxes {
        &self.mailboxes
    }

    /// Returns the tasks exempt from resets.
    pub fn no_resets(&self) -> Vec<Tid> {
        self.mailboxes.owners(PVMNORESETCLASS)
    }

    /// Returns the fabric addresses of the hosts.
    pub fn addresses(&self) -> &BTreeMap<u16, Vec<u8>> {
        &self.addresses
    }

    /// Returns the resource manager.
    pub fn manager(&self) -> Option<Tid> {
        self.managers.last().copied()
    }

    /// Returns the attributes of a task that inherits `inherited`. The tracer takes the trace
    /// events and the output for which `inherited` names no receiver.
    pub fn traced(&self, inherited: &Inheritance) -> Inheritance {
        let mut traced = inherited.clone();
        if let Some((_, wanted)) = &self.tracer {
            if traced.trace.tid == 0 && wanted.trace.tag != 0 {
                traced.trace = wanted.trace;
                traced.trace_mask.clone_from(&wanted.trace_mask);
                traced.trace_buffer = wanted.trace_buffer;
                traced.trace_options = wanted.trace_options;
            }
            if traced.output.tid == 0 && wanted.output.tag != 0 {
                traced.output = wanted.output;
            }
        }
        traced
    }

    /// Removes the current and former resource managers that `fits` selects; they have ended.
    fn managers_end(&mut self, fits: impl Fn(Tid) -> bool) -> Vec<Effect> {
        let gone = self.managers.iter().copied().filter(|tid| fits(*tid));
        let gone = gone.map(Effect::ManagerGone).collect();
        self.managers.retain(|tid| !fits(*tid));
        gone
    }

    /// Returns the host with this number.
    pub fn host(&self, host: u16) -> Option<&HostInfo> {
        self.hosts.iter().find(|info| info.tid.host() == host)
    }

    /// Returns the host with this name; `.` is the asker's own.
    pub fn named(&self, name: &str, own: u16) -> Option<&HostInfo> {
        match name {
            "." => self.host(own),
            _ => self.hosts.iter().find(|info| info.name == name),
        }
    }

    /// Applies an item of the total order.
    pub fn apply(&mut self, item: Item<Change>) -> Vec<Effect> {
        match item {
            Item::Change(change) | Item::Join(_, change) => self.change(change),
            Item::Leave(host) => {
                self.hosts.retain(|info| info.tid.host() != host);
                self.addresses.remove(&host);
                self.mailboxes.ended(|tid| tid.host() == host);
                let managers = self.managers_end(|tid| tid.host() == host);
                self.tracer.take_if(|(tracer, _)| tracer.host() == host);
                let left = self.groups.host_left(host).into_iter().map(Effect::from);
                left.chain(managers).chain([Effect::Left(host)]).collect()
            }
        }
    }

    fn change(&mut self, Change { asker, operation }: Change) -> Vec<Effect> {
        let answer = |reply: Reply| asker.map(|asker| Effect::Answer(asker, reply));
        let by = asker.map_or(Tid(0), |asker| asker.tid);
        let done = Ok(Answer::Done);
        match operation {
            Operation::Ended(tid) => {
                self.mailboxes.ended(|owner| owner == tid);
                let managers = self.managers_end(|manager| manager == tid);
                self.tracer.take_if(|(tracer, _)| *tracer == tid);
                let left = self.groups.ended(tid).into_iter().map(Effect::from).chain(managers);
                // The task's own request is answered before its end is announced.
                answer(done).into_iter().chain(left).chain([Effect::Ended(tid)]).collect()
            }
            Operation::Address(host, address) => {
                self.addresses.insert(host, address);
                Vec::new()
            }
            Operation::Reserve(count) => {
                let first = self.last_host + 1;
                let enough = count <= HOST_MAX - self.last_host;
                if enough {
                    self.last_host += count;
                }
                let reserved = |asker| Effect::Reserved(asker, enough.then_some(first));
                asker.map(reserved).into_iter().collect()
            }
            Operation::Joined(place) => {
                let host = place.info.tid.host();
                if self.host(host).is_some() {
                    return Vec::new();
                }
                self.hosts.push(place.info.clone());
                self.hosts.sort_by_key(|info| info.tid.host());
                self.addresses.insert(host, place.address.clone());
                vec![Effect::Joined(place)]
            }
            Operation::Mailbox(request) => match asker {
                Some(asker) => self.mailbox(asker, request),
                None => Vec::new(),
            },
            Operation::NoReset(on) => {
                self.no_reset(by, on);
                answer(done).into_iter().collect()
            }
            Operation::Reset => {
                let kept: Vec<Tid> = self.no_resets().into_iter().chain([by]).collect();
                self.mailboxes.reset(|owner| kept.contains(&owner));
                answer(done).into_iter().chain([Effect::Reset(kept)]).collect()
            }
            Operation::Group(request) => match asker {
                Some(asker) => {
                    let effects = self.groups.request(asker, &request);
                    effects.into_iter().map(Effect::from).collect()
                }
                None => Vec::new(),
            },
            Operation::Manager(tid) => {
                self.managers.retain(|manager| *manager != tid);
                self.managers.push(tid);
                answer(done).into_iter().collect()
            }
            Operation::Tracer(wanted) => match &self.tracer {
                Some((other, _)) if *other != by => {
                    answer(Err(Error::Already.code())).into_iter().collect()
                }
                _ => {
                    self.tracer = wanted.map(|wanted| (by, wanted));
                    answer(done).into_iter().collect()
                }
            },
            Operation::Counted(host, closing, count) => {
                let effects = self.groups.counted(host, &closing, count);
                effects.into_iter().map(Effect::from).collect()
            }
        }
    }

    /// Sets or clears a task's exemption from resets, which is an entry of a mailbox.
    fn no_reset(&mut self, tid: Tid, on: bool) {
        let listed = self.mailboxes.list(|name| name == PVMNORESETCLASS);
        let mut entries = listed.iter().flat_map(|class| &class.entries);
        let own = entries.find(|&&(_, owner, _)| owner == tid).map(|entry| entry.0);
        match own {
            None if on => {
                let parcel = Parcel { bytes: Data::default().int(tid.as_int()).parcel(tid) };
                let flags = PvmMboxMultiInstance;
                let _ = self.mailboxes.put(tid, PVMNORESETCLASS, None, flags, parcel);
            }
            Some(index) if !on => {
                let _ = self.mailboxes.delete(tid, PVMNORESETCLASS, index);
            }
            _ => {}
        }
    }

    fn mailbox(&mut self, asker: Asker, request: MailboxRequest) -> Vec<Effect> {
        let entry = |got: Result<(i32, Parcel), Error>| {
            got.map(|(index, parcel)| Answer::Entry(index, parcel)).map_err(Error::code)
        };
        let number = |done: Result<i32, Error>| done.map(Answer::Number).map_err(Error::code);
        let reply = match request {
            MailboxRequest::Put { class, index, flags, parcel } => {
                let wanted = (index >= 0).then_some(index);
                Some(number(self.mailboxes.put(asker.tid, &class, wanted, flags, parcel)))
            }
            MailboxRequest::Get { class, index, flags } => {
                self.mailboxes.get(asker, &class, index, flags).map(entry)
            }
            MailboxRequest::Delete { class, index, .. } => {
                Some(number(self.mailboxes.delete(asker.tid, &class, index)))
            }
            MailboxRequest::List(_) => None, // not ordered, see `Daemon::request`
        };
        let answer = reply.map(|reply| Effect::Answer(asker, reply));
        let served = self.mailboxes.served();
        let served = served.into_iter().map(|(asker, got)| Effect::Answer(asker, entry(got)));
        answer.into_iter().chain(served).collect()
    }
}
