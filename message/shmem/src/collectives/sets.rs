//! Active sets: teams that a deprecated function names by its arguments.
//!
//! At the first operation on an active set, its PEs tell each other the slots that they have taken.
//! Each PE has a word in the memory of all others for that. All PEs of an active set take part in
//! all of its operations, so the first operation is the same for all. The work arrays of these
//! functions (`pSync`, `pWrk`) are not used.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

use sync::wait::Backoff;

use crate::atomic::{Op, perform};
use crate::collectives::{area, channel};
use crate::context;
use crate::fatal::fatal;
use crate::job::{self, Job};
use crate::team::{self, Config, Members, Team};
use crate::wait;

/// The arguments that name an active set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Set {
    /// The first PE.
    pub start: c_int,
    /// The logarithm of the distance from one PE to the next.
    pub log_stride: c_int,
    /// Number of PEs.
    pub size: c_int,
}

/// Bits of a slot in a greeting.
const SLOT_BITS: u32 = 11;
/// Bits of a number of PEs in a greeting.
const PE_BITS: u32 = 24;

impl Set {
    /// Returns the PEs of a valid set.
    fn members(self, job: &Job) -> Option<Members> {
        let stride = 1_i64.checked_shl(u32::try_from(self.log_stride).ok()?)?;
        let last =
            i64::from(self.size).checked_sub(1)?.checked_mul(stride)? + i64::from(self.start);
        let is_valid = self.start >= 0 && self.size >= 1 && stride > 0 && last < job.n as i64;
        let stride = if self.size == 1 { 1 } else { stride as c_int };
        is_valid.then_some(Members::Strided { start: self.start, stride, n: self.size })
    }

    /// Returns the word by which a PE announces its slot.
    fn greeting(self, slot: usize) -> u64 {
        let [start, size] = [self.start, self.size].map(|number| number as u64);
        let key = (self.log_stride as u64) << PE_BITS << PE_BITS | start << PE_BITS | size;
        // Never zero.
        key << SLOT_BITS | (slot as u64 + 1)
    }
}

static TEAMS: Mutex<Option<HashMap<Set, &'static Team>>> = Mutex::new(None);

thread_local! {
    /// The active set of this thread's last operation.
    static LAST: Cell<Option<(Set, &'static Team)>> = const { Cell::new(None) };
}

/// Returns the team of an active set.
#[inline]
pub fn team(f: &str, set: Set) -> &'static Team {
    match LAST.get() {
        Some((last, team)) if last == set => team,
        _ => find(f, set),
    }
}

#[cold]
fn find(f: &str, set: Set) -> &'static Team {
    let known = || TEAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known().get_or_insert_default().get(&set).copied();
    let team = found.unwrap_or_else(|| {
        let team = greet(f, set);
        known().get_or_insert_default().insert(set, team);
        team
    });
    LAST.set(Some((set, team)));
    team
}

/// Exchanges slots with the other PEs of the active set.
fn greet(f: &str, set: Set) -> &'static Team {
    let job = job::get(f);
    let Set { start, log_stride, size } = set;
    let Some(members) = set.members(job).filter(|_| job.n < 1 << PE_BITS) else {
        fatal!(
            f,
            "PE_start {start}, logPE_stride {log_stride} and PE_size {size} are no active set; the \
             job has {} PEs",
            job.n
        )
    };
    let Some(me) = members.number(job.me as c_int) else {
        fatal!(
            f,
            "PE {} is not in the active set of PE_start {start}, logPE_stride {log_stride} and \
             PE_size {size}",
            job.me
        )
    };
    let Some(slot) = area::take(job) else {
        fatal!(f, "this PE is in {} teams and active sets, and there can be no more", area::SLOTS)
    };
    let others = || (0..size).filter(|&pe| pe != me);
    let greeting = set.greeting(slot);
    let object = std::ptr::from_ref(area::greeting(job, job.me)).cast_mut().cast();
    for pe in others() {
        let world = members.world(pe).unwrap_or(0);
        let mut backoff = Backoff::default();
        let values = [greeting, 0];
        // The PE may not have read the greeting for another active set yet.
        while perform::<u64>(f, context::default(), Op::CompareSwap, object, values, world) != 0 {
            job.check_peers();
            backoff.pause();
        }
    }
    let mut slots = vec![slot; size as usize];
    for pe in others() {
        let word = area::greeting(job, members.world(pe).unwrap_or(0) as usize);
        let key = greeting >> SLOT_BITS;
        let found = wait::until(job, || {
            let value = word.load(Acquire);
            (value >> SLOT_BITS == key && value != 0).then_some(value)
        });
        word.store(0, Release);
        slots[pe as usize] = (found & ((1 << SLOT_BITS) - 1)) as usize - 1;
    }
    let team = team::create(members, me, slot, Config::default());
    drop(channel::open(f, team, &slots));
    team
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_name_the_set_and_the_slot() {
        let set = Set { start: 3, log_stride: 2, size: 5 };
        let other = Set { start: 3, log_stride: 1, size: 5 };
        let word = set.greeting(area::SLOTS - 1);
        assert_eq!((word & ((1 << SLOT_BITS) - 1)) as usize, area::SLOTS);
        assert_eq!(word >> SLOT_BITS, set.greeting(0) >> SLOT_BITS);
        assert_ne!(word >> SLOT_BITS, other.greeting(0) >> SLOT_BITS);
    }
}
