//! VCL: a window of memory that processes share, whatever it is made of.
//!
//! ```text
//! header │ member table │ messages: a receive buffer for each member │ plain memory │
//! loans: for each member, slots and the memory that it can lend
//! ```
//! Each process may have it at another address, so the window holds offsets, never
//! pointers. A window is trusted no further than its bounds: what others write into it can
//! make results wrong, but no access outside. (Who may map it may also shrink the file
//! below it; only anonymous memory is sealed against that.) What members can lend may be
//! much, and a process needs little of it: files' pages are mapped member by member, when
//! they are first needed.

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::WindowError;
use crate::header::{Agreed, Header, Plan};
use crate::listed::{ENTRY_WORDS, Table};
use crate::locked::Words;
use crate::mapping::Mapping;
use crate::memory::{Kind, Memory, PAGE_SIZE};
use crate::ofd;
use sync::mapped::{Mapped, size_of_ring};
use sync::ring::{LINE_SIZE, LINES_MAX};
use sync::word::Word64;

/// Bytes of the header.
const HEADER_SIZE: usize = PAGE_SIZE;
/// Bytes of an entry of the member table: two lines.
pub const ENTRY_SIZE: usize = 2 * LINE_SIZE;
/// Most members of a window.
pub const MEMBERS_MAX: u16 = 4096;
/// Fewest bytes for a member to lend.
pub const LENDABLE_MIN: usize = 1 << 16;
/// Fewest lines of a ring.
const LINES_MIN: u32 = 4;

/// A window, mapped.
#[derive(Debug)]
pub struct Window {
    mapping: Mapping,
    memory: Memory,
    plan: Plan,
    /// What the mapping does not reach: the loans of each member, where they can be mapped.
    loans: Box<[OnceLock<Option<Mapping>>]>,
}

impl Window {
    /// Maps the memory; makes a window of it if it holds nothing and there is a plan. A
    /// window that is there must have the same plan. Several processes may do so at once.
    pub fn open(memory: Memory, plan: Option<Plan>) -> Result<Self, WindowError> {
        let size = memory.size();
        let place = || memory.place().to_owned();
        if let Some(plan) = plan
            && !(plan.can_be_told() && fits(plan, size))
        {
            return Err(WindowError::Differs {
                place: place(),
                found: format!("{size} bytes"),
                wanted: describe(plan),
            });
        }
        let is_file = memory.kind() == Kind::File;
        let head = Mapping::of(&memory, 0..if is_file { HEADER_SIZE } else { size })?;
        let header = Header {
            magic: head.word64(0),
            plan: head.word64(LINE_SIZE),
            size: head.word64(LINE_SIZE + size_of::<u64>()),
        };
        let found = match header.agree(plan, size as u64) {
            Agreed::Window(found, has) if has == size as u64 && fits(found, size) => found,
            Agreed::Empty => return Err(WindowError::Empty { place: place() }),
            Agreed::Window(..) | Agreed::Foreign => {
                return Err(WindowError::NotAWindow { place: place() });
            }
        };
        if let Some(wanted) = plan
            && wanted != found
        {
            let (found, wanted) = (describe(found), describe(wanted));
            return Err(WindowError::Differs { place: place(), found, wanted });
        }
        let loans = (0..found.members).map(|_| OnceLock::new()).collect();
        let mapping =
            if is_file { Mapping::of(&memory, 0..size - lent_by_all(found))? } else { head };
        Ok(Self { mapping, memory, plan: found, loans })
    }

    /// Makes the memory zero, so that it can become a window: a device keeps what was on
    /// it. Refused while members live in it (on this machine: nobody can tell of others).
    pub fn erase(memory: &Memory) -> Result<(), WindowError> {
        let place = || memory.place().to_owned();
        let guard = memory.reopen()?;
        let all = i64::from(u16::MAX) + 1;
        match ofd::try_lock(guard.as_fd(), ofd::MEMBERS, all) {
            Ok(true) => {}
            Ok(false) => return Err(WindowError::Busy { place: place() }),
            Err(error) => {
                return Err(WindowError::System { doing: "lock", place: place(), error });
            }
        }
        let all_of_it = 0..memory.size();
        let mapping = Mapping::of(memory, all_of_it.clone())
            .inspect_err(|_| ofd::unlock(guard.as_fd(), ofd::MEMBERS, all))?;
        // The magic goes first, so that nobody takes for a window what is half erased.
        mapping.word64(0).store(0, SeqCst);
        if !memory.give_back(all_of_it) {
            let base = mapping.address(0, memory.size());
            // SAFETY: mapped just now, this large.
            unsafe { ptr::write_bytes(base.as_ptr(), 0, memory.size()) };
        }
        // A child that another thread has just forked may have the description, too.
        ofd::unlock(guard.as_fd(), ofd::MEMBERS, all);
        Ok(())
    }

    /// What it is for.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// What it is made of.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Where messages lie: offsets in bytes.
    pub fn messages(&self) -> Range<usize> {
        messages(self.plan)
    }

    /// Where the program's own memory lies: offsets in bytes.
    pub fn plain(&self) -> Range<usize> {
        self.messages().end..self.memory.size() - lent_by_all(self.plan)
    }

    /// How many loans of each member there can be at once, and 1: slot 0 tells how many
    /// have ever been used.
    pub(crate) fn slots(&self) -> usize {
        slots(self.plan)
    }

    /// Slot `number` of member `index`, if its loans can be mapped (`slot`).
    pub(crate) fn slot(&self, index: u16, number: usize) -> Option<&AtomicU64> {
        assert!(number < self.slots());
        let (mapping, start) = self.loans(index)?;
        Some(mapping.word64(start + number * size_of::<u64>()))
    }

    /// How many bytes each member can lend.
    pub(crate) fn lendable(&self) -> usize {
        self.plan.lendable - table(self.plan)
    }

    /// The address, here, of `length` bytes, `at` bytes into what member `index` can lend.
    pub(crate) fn lendable_at(&self, index: u16, at: usize, length: usize) -> Option<NonNull<u8>> {
        if at.checked_add(length)? > self.lendable() {
            return None;
        }
        let (mapping, start) = self.loans(index)?;
        Some(mapping.address(start + table(self.plan) + at, length))
    }

    /// Makes pages of what member `index` can lend be there. Whether the system has them.
    pub(crate) fn populate(&self, index: u16, part: Range<usize>) -> bool {
        let first = table(self.plan);
        self.loans(index).is_some_and(|(mapping, start)| {
            mapping.populate(start + first + part.start..start + first + part.end)
        })
    }

    /// Gives back the pages of what member `index` can lend.
    pub(crate) fn give_back(&self, index: u16, part: Range<usize>) {
        let first = self.loans_at(index) + table(self.plan);
        self.memory.give_back(first + part.start..first + part.end);
    }

    /// Makes the slots of member `index` zero, and gives back what it could lend.
    pub(crate) fn clear_loans(&self, index: u16) {
        // Where they cannot be mapped, we lend nothing, and what is there stays.
        if self.plan.lendable > 0 && self.slot(index, 0).is_some() {
            self.give_back(index, 0..self.lendable());
            let used = self.slots_used(index);
            let slots = (1..=used).chain([0]).filter_map(|number| self.slot(index, number));
            slots.for_each(|slot| slot.store(0, Release));
        }
    }

    /// How many slots of member `index` have ever been used.
    pub(crate) fn slots_used(&self, index: u16) -> usize {
        match self.slots() {
            0 => 0,
            slots => {
                let used = self.slot(index, 0).map_or(0, |used| used.load(Acquire) as usize);
                used.min(slots - 1)
            }
        }
    }

    /// Where the loans of member `index` are in the window.
    fn loans_at(&self, index: u16) -> usize {
        self.memory.size() - lent_by_all(self.plan) + usize::from(index) * self.plan.lendable
    }

    /// Where the loans of member `index` are mapped: in which mapping, and where in it.
    fn loans(&self, index: u16) -> Option<(&Mapping, usize)> {
        let own = self.loans.get(usize::from(index))?;
        let at = self.loans_at(index);
        if at < self.mapping.length() {
            return Some((&self.mapping, at));
        }
        let mapping = own.get_or_init(|| {
            let mapping = Mapping::of(&self.memory, at..at + self.plan.lendable).ok()?;
            mapping.spare_core_files();
            Some(mapping)
        });
        Some((mapping.as_ref()?, 0))
    }

    /// Offset and lines of the receive buffer of member `index`; computed, so that a sender
    /// needs no table (FCP II). Nothing where there is no room for messages.
    pub fn buffer(&self, index: u16) -> Option<(usize, u32)> {
        if self.plan.listed {
            return None;
        }
        let slot = self.plan.messages / usize::from(self.plan.members.max(1));
        let slot = slot - slot % LINE_SIZE;
        let mut lines = LINES_MAX;
        while size_of_ring(lines) > slot {
            if lines == LINES_MIN {
                return None;
            }
            lines /= 2;
        }
        let at = self.messages().start + usize::from(index) * slot;
        (index < self.plan.members).then_some((at, lines))
    }

    /// The address of `length` bytes, `at` bytes into the memory for messages.
    pub(crate) fn message_memory(&self, at: usize, length: usize) -> NonNull<u8> {
        assert!(at + length <= self.plan.messages);
        self.mapping.address(self.messages().start + at, length)
    }

    /// The receive buffer of member `index`.
    ///
    /// # Safety
    /// Neither this nor a copy is used once the window is unmapped. A sender holds the
    /// member ([`Membership::hold`](crate::member::Membership::hold)) while it sends.
    pub unsafe fn ring(&self, index: u16) -> Option<Mapped> {
        let (at, lines) = self.buffer(index)?;
        // SAFETY: in the window, which the caller keeps; `join` made it zero.
        Some(unsafe { Mapped::at(self.mapping.address(at, size_of_ring(lines)), lines) })
    }

    /// The address, here, of `length` bytes of the program's own memory.
    pub fn address(&self, at: usize, length: usize) -> Option<NonNull<u8>> {
        let plain = self.plain();
        let inside = at >= plain.start && at.checked_add(length)? <= plain.end;
        inside.then(|| self.mapping.address(at, length))
    }

    /// A 32-bit word of the program's own memory; `at` is a multiple of 4.
    pub fn word32(&self, at: usize) -> Option<&AtomicU32> {
        let address = self.address(at, size_of::<u32>())?.cast::<AtomicU32>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: in the window, aligned.
        Some(unsafe { address.as_ref() })
    }

    /// A 64-bit word of the program's own memory; `at` is a multiple of 8.
    pub fn word64(&self, at: usize) -> Option<&AtomicU64> {
        let address = self.address(at, size_of::<u64>())?.cast::<AtomicU64>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: in the window, aligned.
        Some(unsafe { address.as_ref() })
    }

    /// A word of a member's entry.
    #[inline]
    pub(crate) fn entry_word(&self, index: u16, word: usize) -> &AtomicU64 {
        assert!(index < self.plan.members && word < ENTRY_SIZE / size_of::<u64>());
        self.mapping.word64(HEADER_SIZE + usize::from(index) * ENTRY_SIZE + word * size_of::<u64>())
    }

    /// Makes the receive buffer of member `index` zero.
    ///
    /// # Safety
    /// Nobody else uses it.
    pub(crate) unsafe fn clear_buffer(&self, index: u16) {
        if self.plan.listed {
            // The queue is made anew when it is listed anew.
            Table(self).remove(index);
            if let Some(area) = Table(self).area(index) {
                Word64::store(area.lock(), 0, Release);
            }
        } else if let Some((at, lines)) = self.buffer(index) {
            let ring = self.mapping.address(at, size_of_ring(lines));
            // SAFETY: in the window; the caller says that nobody else is there.
            unsafe { ptr::write_bytes(ring.as_ptr(), 0, size_of_ring(lines)) };
        }
    }
}

fn messages(plan: Plan) -> Range<usize> {
    let table = (usize::from(plan.members) * ENTRY_SIZE).next_multiple_of(PAGE_SIZE);
    let start = HEADER_SIZE + table;
    start..start.saturating_add(plan.messages)
}

/// The fewest bytes of a window with this plan, with no memory for the program.
pub fn least_size(plan: Plan) -> usize {
    messages(plan).end.saturating_add(lent_by_all(plan))
}

/// What all members can lend, with their slots: the end of the window.
fn lent_by_all(plan: Plan) -> usize {
    plan.lendable.saturating_mul(plan.members.into())
}

/// Slots of a member: one for 64 KiB that it can lend, and at most 64 KiB of them.
fn slots(plan: Plan) -> usize {
    (plan.lendable >> 16).next_multiple_of(PAGE_SIZE / size_of::<u64>()).min(1 << 13)
}

/// Bytes of a member's slots.
fn table(plan: Plan) -> usize {
    slots(plan) * size_of::<u64>()
}

/// Whether there is room for the plan. Its numbers may come from anybody.
fn fits(plan: Plan, size: usize) -> bool {
    (1..=MEMBERS_MAX).contains(&plan.members)
        && least_size(plan) <= size
        && (plan.lendable == 0 || plan.lendable >= LENDABLE_MIN)
        && (!plan.listed || plan.messages >= usize::from(plan.members) * ENTRY_WORDS * 4)
}

fn describe(plan: Plan) -> String {
    let Plan { members, messages, lendable, listed } = plan;
    let lends = if lendable > 0 { format!(", {lendable} to lend each") } else { String::new() };
    let how = if listed { ", listed" } else { "" };
    format!("{members} members and {messages} bytes of messages{how}{lends}")
}
