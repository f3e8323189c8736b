//! Groups of tasks (libgpvm3), as all hosts know them: they change only in the total order,
//! so there is no group server whose end would be theirs.
//!
//! Numbers, refusals and what a member's end does to those who wait are those of stock PVM's
//! group server: a member's place goes to who joins next; an arrival at a barrier counts even
//! if who arrived is dead; a static group dies with its first member that goes. (Stock PVM
//! then forgets those who wait at a barrier; they get `PvmNoGroup`, as its manual has it.)
//!
//! While all members are on one host they count at their barriers themselves, in the group's
//! [slot](pvm::slots) there. When a member arrives that cannot, because it is on another host
//! or wants a strange number, the host closes the slot and proposes what was counted
//! ([`Groups::counted`]); meanwhile arrivals queue up here. The slot is opened again when
//! nobody waits.

use std::collections::{BTreeMap, BTreeSet};

use pvm::error::Error;
use pvm::slots::{self, SLOTS};
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupInfo, GroupRequest};
use serde::{Deserialize, Serialize};

use crate::errand::Reply;
use crate::machine::Asker;

/// What a change of groups asks of the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This request is answered.
    Answer(Asker, Reply),
    /// Of every host: something happens to this slot.
    Slot(u16, SlotChange),
}

/// What happens to a slot; the names are those of [`slots::Slot`]'s functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// It becomes another group's, with this version, or nobody's.
    Clear(u32),
    /// Its group has this version now.
    Changed(u32),
    /// In the window of this host, tasks count from now on.
    Open(u16),
    /// In the window of this host, they no longer do. What was counted is to be proposed.
    Close(u16, Closing),
    /// All are there. Who sleeps is woken.
    Complete,
    /// The group is dead. Who sleeps is woken.
    Kill,
    /// Who sleeps is woken, to look again.
    Wake,
}

impl SlotChange {
    /// The only host that it concerns.
    pub fn host(&self) -> Option<u16> {
        match self {
            SlotChange::Open(host) | SlotChange::Close(host, _) => Some(*host),
            _ => None,
        }
    }
}

/// Which slot was closed, for whom: [`Groups::counted`] wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    name: String,
    born: u32,
}

/// The groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
    /// The last that was given.
    version: u32,
    used_slots: BTreeSet<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    /// Its first version: a group of the same name that comes later has another.
    born: u32,
    version: u32,
    slot: Option<u16>,
    phase: Phase,
    members: Vec<Option<Tid>>,
    counting: Counting,
    /// Here, for a barrier.
    barrier: Option<Count>,
    /// To become static. Never forgotten, so that nobody can do it twice.
    freezing: Option<Count>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Dynamic,
    Static,
    /// Static once; has lost a member.
    Dead,
}

/// Where arrivals at a barrier are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Counting {
    Here,
    /// In the slot on this host.
    Slot(u16),
    /// That was asked for what it has counted; these wait to be counted.
    Closing(u16, Vec<(Asker, i32)>),
}

/// How many have come of how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    wanted: i32,
    reached: i32,
    /// Those of them who wait for an answer.
    waiting: Vec<Asker>,
}

impl Count {
    /// One more comes. Who waits, when all are there.
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
            // As in stock PVM: nobody gets past a count that cannot be.
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

    /// The host of all members.
    fn host(&self) -> Option<u16> {
        let mut hosts = self.members().map(Tid::host);
        let host = hosts.next()?;
        hosts.all(|other| other == host).then_some(host)
    }
}

impl Groups {
    /// What is known of a group. Errors: NullGroup, NoGroup.
    pub fn info(&self, name: &str) -> Result<GroupInfo, Error> {
        let group = self.find(name)?;
        Ok(GroupInfo {
            members: group.members.iter().map(|tid| tid.map_or(0, |tid| tid.0)).collect(),
            version: group.version,
            dead: group.phase == Phase::Dead,
            slot: group.slot,
        })
    }

    /// What makes the slots of a new host's window what they are on others.
    pub fn slots(&self) -> Vec<(u16, SlotChange)> {
        let groups = self.groups.values();
        groups.filter_map(|group| Some((group.slot?, SlotChange::Clear(group.version)))).collect()
    }

    /// Does what a task wants of a group.
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
        effects.push(Effect::Answer(asker, answer.map_err(Error::code)));
        effects
    }

    /// A host has closed a slot, and this had been counted.
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

    /// A task is one no longer.
    pub fn ended(&mut self, tid: Tid) -> Vec<Effect> {
        let mut effects = Vec::new();
        let names = self.groups.iter().filter(|(_, group)| group.has(tid));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.leave(tid, &name, &mut effects).expect("it is a member");
            // It may have been the last to arrive, and killed before it woke the others.
            if let Some(Group { slot: Some(slot), .. }) = self.groups.get(&name) {
                effects.push(Effect::Slot(*slot, SlotChange::Wake));
            }
        }
        effects
    }

    /// A host is lost, with all its tasks.
    pub fn host_left(&mut self, host: u16) -> Vec<Effect> {
        let mut effects = Vec::new();
        let members = self.groups.values().flat_map(Group::members);
        let tids: BTreeSet<Tid> = members.filter(|tid| tid.host() == host).collect();
        for tid in tids {
            effects.extend(self.ended(tid));
        }
        for group in self.groups.values_mut() {
            // What was counted in its slot is lost with those who came.
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

    /// The new member's instance.
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

/// Other members than before.
fn changed(group: &mut Group, version: u32, effects: &mut Vec<Effect>) {
    group.version = version;
    if let Some(slot) = group.slot {
        effects.push(Effect::Slot(slot, SlotChange::Changed(version)));
    }
    open(group, effects);
}

/// Has the members count, if they can and nobody waits.
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

/// Has the members count no longer.
fn close(name: &str, group: &mut Group, effects: &mut Vec<Effect>) {
    if let (Counting::Slot(host), Some(slot)) = (&group.counting, group.slot) {
        let closing = Closing { name: name.to_owned(), born: group.born };
        effects.push(Effect::Slot(slot, SlotChange::Close(*host, closing)));
        group.counting = Counting::Closing(*host, Vec::new());
    }
}

/// Goes on counting here.
fn take_over(group: &mut Group, count: slots::Count, effects: &mut Vec<Effect>) {
    let counting = std::mem::replace(&mut group.counting, Counting::Here);
    let Counting::Closing(_, queue) = counting else { unreachable!("the callers looked") };
    if count.arrived > 0 {
        group.barrier = Some(Count {
            wanted: count.wanted.into(),
            reached: count.arrived.into(),
            waiting: Vec::new(), // at the slot
        });
    }
    for (asker, wanted) in queue {
        arrive(group, asker, wanted, effects);
    }
    open(group, effects);
}

/// A member arrives at a barrier that is counted here.
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

/// A static group has lost a member.
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
