//! What this task knows of groups: it asks the daemon once, and again when the group's version
//! in the host's window has changed.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use pvm::error::Error;
use pvm::slots::{BARRIER_AT, GENERATION_AT, SLOT_SIZE, SLOTS, Slot, VERSION_AT};
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupInfo, GroupRequest};

use crate::pvm3::{self, Result};

/// Most groups that are remembered. When there are more, all are forgotten.
const KNOWN_MAX: usize = 256;

static KNOWN: Mutex<Vec<Arc<Group>>> = Mutex::new(Vec::new());

/// A group as the daemon has told of it.
#[derive(Debug)]
pub struct Group {
    name: String,
    info: GroupInfo,
    size: usize,
    /// This task when it asked, and its instance if it is a member.
    task: c_int,
    instance: Option<usize>,
    /// Where its slot is, as long as this process is that task.
    slot: Option<usize>,
}

/// The name as the wire has it. Errors: NullGroup.
pub fn name(name: *const c_char) -> Result<String> {
    if name.is_null() {
        return Err(Error::NullGroup.code());
    }
    // SAFETY: the program says that it is a string.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.is_empty() {
        return Err(Error::NullGroup.code());
    }
    Ok(match std::str::from_utf8(bytes) {
        Ok(name) => name.to_owned(),
        // Names may be any bytes. As Latin-1, no two become one.
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    })
}

/// The group as it is now. Errors: NullGroup, NoGroup, SysErr.
pub fn group(name_given: *const c_char) -> Result<Arc<Group>> {
    let (task, slots) = match (name_given.is_null(), pvm3::slots()) {
        (false, Ok(found)) => found,
        (true, _) => return Err(Error::NullGroup.code()),
        // A wrong name is told first.
        (_, Err(code)) => return name(name_given).and(Err(code)),
    };
    // SAFETY: the program says that it is a string.
    let bytes = unsafe { CStr::from_ptr(name_given) }.to_bytes();
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|group| group.name.as_bytes() == bytes);
    if let Some(group) = found
        && group.is_still(task, slots)
    {
        return Ok(group.clone());
    }
    drop(known);
    Group::ask(name(name_given)?, task, slots)
}

impl Group {
    /// Asks the daemon, and remembers.
    #[cold]
    fn ask(name: String, task: c_int, slots: *const u8) -> Result<Arc<Group>> {
        let forget = |known: &mut Vec<Arc<Group>>| known.retain(|group| group.name != name);
        let answer = pvm3::ask(&GroupRequest::Members(name.clone()));
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        forget(&mut known);
        let Answer::Group(info) = answer? else { return Err(Error::DSysErr.code()) };
        let slot = info.slot.filter(|&slot| slot < SLOTS).map(usize::from);
        let group = Arc::new(Group {
            size: info.members.iter().filter(|&&tid| tid != 0).count(),
            instance: info.members.iter().position(|&tid| tid == task as u32),
            task,
            slot: slot.map(|slot| slots as usize + slot * SLOT_SIZE),
            info,
            name,
        });
        if known.len() == KNOWN_MAX {
            known.clear();
        }
        // Groups that are used often are found soon.
        known.insert(0, group.clone());
        Ok(group)
    }

    fn is_still(&self, task: c_int, slots: *const u8) -> bool {
        let Some(slot) = self.slot() else { return false };
        self.task == task
            && (0..usize::from(SLOTS) * SLOT_SIZE).contains(&(slot.0.wrapping_sub(slots as usize)))
            && slot.words().version() == self.info.version
    }

    /// Its slot, if it has one.
    pub fn slot(&self) -> Option<At> {
        self.slot.map(At)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which version this is.
    pub fn version(&self) -> u32 {
        self.info.version
    }

    /// Whether all members can be called together. Errors: NoGroup.
    pub fn alive(&self) -> Result<()> {
        if self.info.dead { Err(Error::NoGroup.code()) } else { Ok(()) }
    }

    /// How many members it has.
    pub fn size(&self) -> usize {
        self.size
    }

    /// This task, member or not.
    pub fn task(&self) -> c_int {
        self.task
    }

    /// This task's instance. Errors: NotInGroup.
    pub fn instance(&self) -> Result<usize> {
        self.instance.ok_or(Error::NotInGroup.code())
    }

    /// Another's instance. Errors: NotInGroup.
    pub fn instance_of(&self, tid: c_int) -> Result<usize> {
        let place = self.info.members.iter().position(|&member| member == tid as u32 && tid != 0);
        place.ok_or(Error::NotInGroup.code())
    }

    /// Who has this instance. Errors: NoInst.
    pub fn tid(&self, instance: c_int) -> Result<c_int> {
        let place = usize::try_from(instance).ok();
        let tid = place.and_then(|place| self.info.members.get(place)).filter(|&&tid| tid != 0);
        tid.map(|&tid| tid as c_int).ok_or(Error::NoInst.code())
    }

    /// The members in the order of their instances.
    pub fn members(&self) -> impl Iterator<Item = c_int> {
        self.info.members.iter().filter(|&&tid| tid != 0).map(|&tid| tid as c_int)
    }

    /// As [`Group::members`], if no instance is missing. Errors: NoInst.
    pub fn members_in_a_row(&self) -> Result<Vec<c_int>> {
        let members: Vec<c_int> = self.members().collect();
        if members.len() == self.info.members.len() {
            Ok(members)
        } else {
            Err(Error::NoInst.code())
        }
    }

    /// The members of one host.
    pub fn members_on(&self, host: u16) -> Vec<c_int> {
        self.members().filter(|&tid| Tid::from(tid).host() == host).collect()
    }

    /// The hosts of members, ascending.
    pub fn hosts(&self) -> Vec<u16> {
        let mut hosts: Vec<u16> = self.members().map(|tid| Tid::from(tid).host()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

/// Where a slot is.
#[derive(Clone, Copy)]
pub struct At(usize);

impl At {
    /// Its words.
    pub fn words(&self) -> Slot<'_, AtomicU64> {
        // SAFETY: in the window, which is mapped as long as the process is a task: whoever has
        // a slot has just asked for it.
        unsafe {
            Slot {
                version: &*((self.0 + VERSION_AT) as *const AtomicU64),
                barrier: &*((self.0 + BARRIER_AT) as *const AtomicU64),
            }
        }
    }

    /// The word on which those sleep who wait at the barrier.
    pub fn generation(&self) -> *const u32 {
        (self.0 + GENERATION_AT) as *const u32
    }
}
