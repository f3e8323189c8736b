//! Cache of group members. The task asks the daemon once, and again when the group's version in
//! the host's window has changed.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use pvm::error::Error;
use pvm::slots::{BARRIER_AT, GENERATION_AT, SLOT_SIZE, SLOTS, Slot, VERSION_AT};
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupInfo, GroupRequest};

use crate::pvm3::{self, Result};

/// Largest number of cached groups. The cache is emptied when it is full.
const CACHED_MAX: usize = 256;

static CACHE: Mutex<Vec<Arc<Group>>> = Mutex::new(Vec::new());

/// A group, as the daemon described it.
#[derive(Debug)]
pub struct Group {
    name: String,
    info: GroupInfo,
    size: usize,
    /// The tid of this process at the time of the request, and its instance if it is a member.
    task: c_int,
    instance: Option<usize>,
    /// Address of its slot. Valid while this process is that task.
    slot: Option<usize>,
}

/// Returns the name in the form of the wire protocol. Errors: NullGroup.
pub fn name(name: *const c_char) -> Result<String> {
    if name.is_null() {
        return Err(Error::NullGroup.code());
    }
    // SAFETY: a name that is not null is a string, required of the caller by each C function.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if bytes.is_empty() {
        return Err(Error::NullGroup.code());
    }
    Ok(match std::str::from_utf8(bytes) {
        Ok(name) => name.to_owned(),
        // A name may contain any bytes. Read as Latin-1, different names stay different.
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    })
}

/// Returns the current state of the group. Errors: NullGroup, NoGroup, SysErr.
pub fn group(name_given: *const c_char) -> Result<Arc<Group>> {
    let (task, slots) = match (name_given.is_null(), pvm3::slots()) {
        (false, Ok(found)) => found,
        (true, _) => return Err(Error::NullGroup.code()),
        // The error of an invalid name takes precedence.
        (_, Err(code)) => return name(name_given).and(Err(code)),
    };
    // SAFETY: a name that is not null is a string, required of the caller by each C function.
    let bytes = unsafe { CStr::from_ptr(name_given) }.to_bytes();
    let known = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().find(|group| group.name.as_bytes() == bytes);
    if let Some(group) = found
        && group.is_current(task, slots)
    {
        return Ok(group.clone());
    }
    drop(known);
    Group::ask(name(name_given)?, task, slots)
}

impl Group {
    /// Asks the daemon, and caches the answer.
    #[cold]
    fn ask(name: String, task: c_int, slots: *const u8) -> Result<Arc<Group>> {
        let forget = |known: &mut Vec<Arc<Group>>| known.retain(|group| group.name != name);
        let answer = pvm3::ask(&GroupRequest::Members(name.clone()));
        let mut known = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
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
        if known.len() == CACHED_MAX {
            known.clear();
        }
        // Recently used groups come first, since the search is linear.
        known.insert(0, group.clone());
        Ok(group)
    }

    /// Returns true if the cached description is current, for this task and these slots.
    fn is_current(&self, task: c_int, slots: *const u8) -> bool {
        let Some(slot) = self.slot() else { return false };
        self.task == task
            && (0..usize::from(SLOTS) * SLOT_SIZE).contains(&(slot.0.wrapping_sub(slots as usize)))
            && slot.words().version() == self.info.version
    }

    /// Returns its slot, if it has one.
    pub fn slot(&self) -> Option<At> {
        self.slot.map(At)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version of this description.
    pub fn version(&self) -> u32 {
        self.info.version
    }

    /// Checks that collective calls are possible. Errors: NoGroup.
    pub fn alive(&self) -> Result<()> {
        if self.info.dead { Err(Error::NoGroup.code()) } else { Ok(()) }
    }

    /// Returns the number of members.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the tid of this process, be it a member or not.
    pub fn task(&self) -> c_int {
        self.task
    }

    /// Returns this task's instance. Errors: NotInGroup.
    pub fn instance(&self) -> Result<usize> {
        self.instance.ok_or(Error::NotInGroup.code())
    }

    /// Returns the instance of another task. Errors: NotInGroup.
    pub fn instance_of(&self, tid: c_int) -> Result<usize> {
        let place = self.info.members.iter().position(|&member| member == tid as u32 && tid != 0);
        place.ok_or(Error::NotInGroup.code())
    }

    /// Returns the member with this instance. Errors: NoInst.
    pub fn tid(&self, instance: c_int) -> Result<c_int> {
        let place = usize::try_from(instance).ok();
        let tid = place.and_then(|place| self.info.members.get(place)).filter(|&&tid| tid != 0);
        tid.map(|&tid| tid as c_int).ok_or(Error::NoInst.code())
    }

    /// Returns the members in the order of their instances.
    pub fn members(&self) -> impl Iterator<Item = c_int> {
        self.info.members.iter().filter(|&&tid| tid != 0).map(|&tid| tid as c_int)
    }

    /// Does the same as [`Group::members`] if no instance is missing. Errors: NoInst.
    pub fn contiguous_members(&self) -> Result<Vec<c_int>> {
        let members: Vec<c_int> = self.members().collect();
        if members.len() == self.info.members.len() {
            Ok(members)
        } else {
            Err(Error::NoInst.code())
        }
    }

    /// Returns the members on one host.
    pub fn members_on(&self, host: u16) -> Vec<c_int> {
        self.members().filter(|&tid| Tid::from(tid).host() == host).collect()
    }

    /// Returns the hosts of the members, ascending.
    pub fn hosts(&self) -> Vec<u16> {
        let mut hosts: Vec<u16> = self.members().map(|tid| Tid::from(tid).host()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

/// The address of a slot.
#[derive(Clone, Copy)]
pub struct At(usize);

impl At {
    /// Returns its words.
    pub fn words(&self) -> Slot<'_, AtomicU64> {
        // SAFETY: the slot lies in the window, which stays mapped while the process is a task.
        // `group` has checked that it still is.
        unsafe {
            Slot {
                version: &*((self.0 + VERSION_AT) as *const AtomicU64),
                barrier: &*((self.0 + BARRIER_AT) as *const AtomicU64),
            }
        }
    }

    /// Returns the futex word on which waiters at the barrier sleep.
    pub fn generation(&self) -> *const u32 {
        (self.0 + GENERATION_AT) as *const u32
    }
}
