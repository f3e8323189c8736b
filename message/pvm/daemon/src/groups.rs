//! Groups of tasks (libgpvm3). They are replicated on all hosts and change only in the total
//! order, so there is no group server whose loss would end them.
//!
//! Instance numbers, errors and the effects of a member's end are those of stock PVM's group
//! server. A new member gets the lowest free instance. An arrival at a barrier counts even if
//! the member has ended since. A static group dies with the first member that leaves. (Stock PVM
//! then forgets the members waiting at a barrier; here they get `PvmNoGroup`, as its manual
//! documents.)
//!
//! While all members are on one host, they count barrier arrivals themselves, in the group's
//! [slot](pvm::slots) there. A member on another host, or one with a count that the slot cannot
//! hold, does not use the slot. When it arrives, the host closes the slot and proposes the
//! slot's count ([`Groups::counted`]); arrivals queue here meanwhile. The slot is opened again
//! when nobody waits.

use std::collections::{BTreeMap, BTreeSet};

use pvm::error::Error;
use pvm::slots::{self, SLOTS};
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupInfo, GroupRequest};
use serde::{Deserialize, Serialize};

use crate::errand::{Asker, Reply};

/// An effect that a change of groups has on the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This request is answered.
    Answer(Asker, Reply),
    /// This slot changes on every host.
    Slot(u16, SlotChange),
}

/// A change of a slot; the names are those of [`slots::Slot`]'s functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// The slot is assigned to another group with this version, or freed.
    Clear(u32),
    /// Its group has this version now.
    Changed(u32),
    /// From now on, tasks of this host count arrivals in its window.
    Open(u16),
    /// Tasks of this host no longer count in its window. The host proposes the slot's count.
    Close(u16, Closing),
    /// The barrier is complete. Wakes the waiters.
    Complete,
    /// The group is dead. Wakes the waiters.
    Kill,
    /// Wakes the waiters, so that they check the slot again.
    Wake,
}

impl SlotChange {
    /// Returns the only host that the change concerns; `None` if it concerns all.
    pub fn host(&self) -> Option<u16> {
        match self {
            SlotChange::Open(host) | SlotChange::Close(host, _) => Some(*host),
            _ => None,
        }
    }
}

/// Identifies a closed slot's group, for [`Groups::counted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    name: String,
    born: u32,
}

/// All groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
    /// The last version assigned.
    version: u32,
    used_slots: BTreeSet<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    /// Its first version; distinguishes it from a later group with the same name.
    born: u32,
    version: u32,
    slot: Option<u16>,
    phase: Phase,
    members: Vec<Option<Tid>>,
    counting: Counting,
    /// Arrivals at a barrier that is counted here.
    barrier: Option<Count>,
    /// Arrivals at pvm_freezegroup. Never removed, so that a group is frozen at most once.
    freezing: Option<Count>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Dynamic,
    Static,
    /// Was static, and has lost a member.
    Dead,
}

/// The location that counts arrivals at a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Counting {
    Here,
    /// In the slot on this host.
    Slot(u16),
    /// The slot on this host is being closed; these arrivals wait for its count.
    Closing(u16, Vec<(Asker, i32)>),
}

/// Arrivals at a barrier or freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    wanted: i32,
    reached: i32,
    /// Members that wait for an answer.
    waiting: Vec<Asker>,
}

impl Count {
    /// Counts one arrival. Returns the waiters if the count is complete.
    fn arrive(
        count: &mut Option<Count>,
        wanted: i32,
        asker: Asker,
    ) -> Result<Option<Vec<Asker>>, Error> {
        let count = count.get_or_insert(Count { wanted, reached: 0, waiting: Vec::new() });
        if count.wanted != wanted {
            return Err(Error::Mismatch);
        }
        count.reached = count.reached.saturating_add(1);
        if count.reached > wanted {
            // As in stock PVM, a count of zero or less is never complete.
            return Err(Error::Mismatch);
        }
        count.waiting.push(asker);
        Ok((count.reached == wanted).then(|| std::mem::take(&mut count.waiting)))
    }
}

impl Group {
    fn size(&self) -> i32 {
        self.members().count() as i32
    }

    fn members(&self) -> impl Iterator<Item = Tid> {
        self.members.iter().copied().flatten()
    }

    fn has(&self, tid: Tid) -> bool {
        self.members().any(|member| member == tid)
    }

    /// Returns the host of all members, if it is the same.
    fn host(&self) -> Option<u16> {
        let mut hosts = self.members().map(Tid::host);
        let host = hosts.next()?;
        hosts.all(|other| other == host).then_some(host)
    }
}

impl Groups {
    /// Returns the members and state of a group. Errors: NullGroup, NoGroup.
    pub fn info(&self, name: &str) -> Result<GroupInfo, Error> {
        let group = self.find(name)?;
        Ok(GroupInfo {
            members: group.members.iter().map(|tid| tid.map_or(0, |tid| tid.0)).collect(),
            version: group.version,
            dead: group.phase == Phase::Dead,
            slot: group.slot,
        })
    }

    /// Returns the changes that initialize the slots of a new host's window.
    pub fn slots(&self) -> Vec<(u16, SlotChange)> {
        let groups = self.groups.values();
        groups.filter_map(|group| Some((group.slot?, SlotChange::Clear(group.version)))).collect()
    }

    /// Executes a task's group request.
    pub fn request(&mut self, asker: Asker, request: &GroupRequest) -> Vec<Effect> {
        let mut effects = Vec::new();
        let answer = match request {
            GroupRequest::Join(name) => {
                self.join(asker.tid, name, &mut effects).map(Answer::Number)
            }
            GroupRequest::Leave(name) => {
                self.leave(asker.tid, name, &mut effects).map(|()| Answer::Done)
            }
            GroupRequest::Members(name) => self.info(name).map(Answer::Group),
            GroupRequest::Freeze(name, size) => match self.freeze(asker, name, *size, &mut effects)
            {
                Ok(()) => return effects,
                Err(error) => Err(error),
            },
            GroupRequest::Barrier(name, wanted) => {
                match self.barrier(asker, name, *wanted, &mut effects) {
                    Ok(()) => return effects,
                    Err(error) => Err(error),
                }
            }
        };
        debug_assert!(self.slots_are_distinct(), "each slot in use belongs to one group");
        effects.push(Effect::Answer(asker, answer.map_err(Error::code)));
        effects
    }

    fn slots_are_distinct(&self) -> bool {
        let slots: Vec<u16> = self.groups.values().filter_map(|group| group.slot).collect();
        let used: BTreeSet<u16> = slots.iter().copied().collect();
        slots.len() == used.len() && used == self.used_slots
    }

    /// Takes over the count of a slot that a host has closed.
    pub fn counted(&mut self, host: u16, closing: &Closing, count: slots::Count) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(group) = self.groups.get_mut(&closing.name)
            && group.born == closing.born
            && matches!(group.counting, Counting::Closing(closing, _) if closing == host)
        {
            take_over(group, count, &mut effects);
        }
        effects
    }

    /// Removes a task that has ended from its groups.
    pub fn ended(&mut self, tid: Tid) -> Vec<Effect> {
        let mut effects = Vec::new();
        let names = self.groups.iter().filter(|(_, group)| group.has(tid));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.leave(tid, &name, &mut effects).expect("it is a member");
            // The task may have been the last to arrive, and killed before it woke the others.
            if let Some(Group { slot: Some(slot), .. }) = self.groups.get(&name) {
                effects.push(Effect::Slot(*slot, SlotChange::Wake));
            }
        }
        effects
    }

    /// Removes the tasks of a lost host.
    pub fn host_left(&mut self, host: u16) -> Vec<Effect> {
        let mut effects = Vec::new();
        let members = self.groups.values().flat_map(Group::members);
        let tids: BTreeSet<Tid> = members.filter(|tid| tid.host() == host).collect();
        for tid in tids {
            effects.extend(self.ended(tid));
        }
        for group in self.groups.values_mut() {
            // The count of its slot is lost, and so are the tasks that it counted.
            match group.counting {
                Counting::Slot(counting) if counting == host => {
                    group.counting = Counting::Here;
                    open(group, &mut effects);
                }
                Counting::Closing(counting, _) if counting == host => {
                    take_over(group, slots::Count::default(), &mut effects);
                }
                _ => {}
            }
        }
        effects
    }

    fn find(&self, name: &str) -> Result<&Group, Error> {
        if name.is_empty() {
            return Err(Error::NullGroup);
        }
        self.groups.get(name).ok_or(Error::NoGroup)
    }

    fn find_mut(&mut self, name: &str) -> Result<&mut Group, Error> {
        if name.is_empty() {
            return Err(Error::NullGroup);
        }
        self.groups.get_mut(name).ok_or(Error::NoGroup)
    }

    fn next_version(&mut self) -> u32 {
        self.version = self.version.wrapping_add(1);
        self.version
    }

    /// Adds a member and returns its instance.
    fn join(&mut self, tid: Tid, name: &str, effects: &mut Vec<Effect>) -> Result<i32, Error> {
        match self.find(name) {
            Ok(group) if group.phase != Phase::Dynamic => return Err(Error::NotInGroup),
            Ok(group) if group.has(tid) => return Err(Error::DupGroup),
            Ok(_) | Err(Error::NoGroup) => {}
            Err(error) => return Err(error),
        }
        let version = self.next_version();
        if !self.groups.contains_key(name) {
            let slot = (0..SLOTS).find(|slot| !self.used_slots.contains(slot));
            if let Some(slot) = slot {
                self.used_slots.insert(slot);
                effects.push(Effect::Slot(slot, SlotChange::Clear(version)));
            }
            let group = Group {
                born: version,
                version,
                slot,
                phase: Phase::Dynamic,
                members: Vec::new(),
                counting: Counting::Here,
                barrier: None,
                freezing: None,
            };
            self.groups.insert(name.to_owned(), group);
        }
        let group = self.groups.get_mut(name).expect("made if it was not there");
        let instance = group.members.iter().position(Option::is_none).unwrap_or_else(|| {
            group.members.push(None);
            group.members.len() - 1
        });
        group.members[instance] = Some(tid);
        changed(group, version, effects);
        Ok(instance as i32)
    }

    fn leave(&mut self, tid: Tid, name: &str, effects: &mut Vec<Effect>) -> Result<(), Error> {
        let group = self.find(name)?;
        let place = group.members.iter().position(|&member| member == Some(tid));
        let place = place.ok_or(Error::NotInGroup)?;
        let version = self.next_version();
        let group = self.groups.get_mut(name).expect("found");
        group.members[place] = None;
        while let Some(None) = group.members.last() {
            group.members.pop();
        }
        if group.phase == Phase::Static {
            die(group, effects);
        }
        if group.members.is_empty() {
            if let Some(slot) = group.slot {
                self.used_slots.remove(&slot);
                effects.push(Effect::Slot(slot, SlotChange::Clear(version)));
            }
            self.groups.remove(name);
        } else {
            changed(group, version, effects);
        }
        Ok(())
    }

    fn freeze(
        &mut self,
        asker: Asker,
        name: &str,
        size: i32,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Error> {
        let group = self.find_mut(name)?;
        if group.phase == Phase::Static {
            return Err(Error::DupGroup);
        }
        if !group.has(asker.tid) {
            return Err(Error::NotInGroup);
        }
        let size = if size == -1 { group.size() } else { size };
        if let Some(waiting) = Count::arrive(&mut group.freezing, size, asker)? {
            group.phase = Phase::Static;
            answer_all(waiting, Ok(Answer::Number(size)), effects);
        }
        Ok(())
    }

    fn barrier(
        &mut self,
        asker: Asker,
        name: &str,
        wanted: i32,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Error> {
        let group = self.find_mut(name)?;
        if group.phase == Phase::Dead {
            return Err(Error::NoGroup);
        }
        if !group.has(asker.tid) {
            return Err(Error::NotInGroup);
        }
        let wanted = if wanted == -1 { group.size() } else { wanted };
        close(name, group, effects);
        match &mut group.counting {
            Counting::Closing(_, queue) => queue.push((asker, wanted)),
            _ => arrive(group, asker, wanted, effects),
        }
        Ok(())
    }
}

fn answer_all(askers: Vec<Asker>, reply: Reply, effects: &mut Vec<Effect>) {
    effects.extend(askers.into_iter().map(|asker| Effect::Answer(asker, reply.clone())));
}

/// Publishes a new version of the member list.
fn changed(group: &mut Group, version: u32, effects: &mut Vec<Effect>) {
    group.version = version;
    if let Some(slot) = group.slot {
        effects.push(Effect::Slot(slot, SlotChange::Changed(version)));
    }
    open(group, effects);
}

/// Opens the slot, if all members are on one host and nobody waits.
fn open(group: &mut Group, effects: &mut Vec<Effect>) {
    if group.counting == Counting::Here
        && group.phase != Phase::Dead
        && group.barrier.is_none()
        && let (Some(slot), Some(host)) = (group.slot, group.host())
    {
        group.counting = Counting::Slot(host);
        effects.push(Effect::Slot(slot, SlotChange::Open(host)));
    }
}

/// Closes the slot if it is open.
fn close(name: &str, group: &mut Group, effects: &mut Vec<Effect>) {
    if let (Counting::Slot(host), Some(slot)) = (&group.counting, group.slot) {
        let closing = Closing { name: name.to_owned(), born: group.born };
        effects.push(Effect::Slot(slot, SlotChange::Close(*host, closing)));
        group.counting = Counting::Closing(*host, Vec::new());
    }
}

/// Continues the count of a closed slot here.
fn take_over(group: &mut Group, count: slots::Count, effects: &mut Vec<Effect>) {
    let counting = std::mem::replace(&mut group.counting, Counting::Here);
    let Counting::Closing(_, queue) = counting else { unreachable!("checked by the callers") };
    if count.arrived > 0 {
        group.barrier = Some(Count {
            wanted: count.wanted.into(),
            reached: count.arrived.into(),
            waiting: Vec::new(), // they wait at the slot
        });
    }
    for (asker, wanted) in queue {
        arrive(group, asker, wanted, effects);
    }
    open(group, effects);
}

/// Handles an arrival at a barrier that is counted here.
fn arrive(group: &mut Group, asker: Asker, wanted: i32, effects: &mut Vec<Effect>) {
    match Count::arrive(&mut group.barrier, wanted, asker) {
        Err(error) => effects.push(Effect::Answer(asker, Err(error.code()))),
        Ok(None) => {}
        Ok(Some(waiting)) => {
            group.barrier = None;
            answer_all(waiting, Ok(Answer::Number(wanted)), effects);
            if let Some(slot) = group.slot {
                effects.push(Effect::Slot(slot, SlotChange::Complete));
            }
            open(group, effects);
        }
    }
}

/// Marks a static group as dead; it has lost a member.
fn die(group: &mut Group, effects: &mut Vec<Effect>) {
    group.phase = Phase::Dead;
    let counting = std::mem::replace(&mut group.counting, Counting::Here);
    let mut waiting = group.barrier.take().map_or_else(Vec::new, |count| count.waiting);
    if let Counting::Closing(_, queue) = counting {
        waiting.extend(queue.into_iter().map(|(asker, _)| asker));
    }
    answer_all(waiting, Err(Error::NoGroup.code()), effects);
    if let Some(slot) = group.slot {
        effects.push(Effect::Slot(slot, SlotChange::Kill));
    }
}
