//! VCL: a window of memory that processes share, whatever the memory is made of.
//!
//! ```text
//! header │ member table │ messages: a receive buffer for each member │ plain memory │
//! loans: for each member, slots and the memory that it can lend
//! ```
//! Each process may map the window at another address, so the window holds offsets, never
//! pointers. A process trusts a window no further than its bounds: writes of others can make
//! results wrong, but cause no access outside. (A process that may map the window may also shrink
//! the file below it; only anonymous memory is sealed against that.)
//!
//! The memory that members can lend may be large, and a process needs little of it. So the pages
//! of a file are mapped member by member, when they are first needed.
//!
//! In a window for FCP and FCP plus (`fcp-classic`), a table that lists the receive buffers comes
//! before them.

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::WindowError;
use crate::header::{Agreed, Header, Plan};
use crate::mapping::Mapping;
use crate::memory::{Kind, Memory, PAGE_SIZE};
use crate::ofd;
use sync::mapped::{Mapped, size_of_ring};
use sync::pieces::Exposed;
use sync::ring::{LINE_SIZE, LINES_MAX};

/// Bytes of the header.
const HEADER_SIZE: usize = PAGE_SIZE;
/// Bytes of an entry of the member table: three cache lines.
pub const ENTRY_SIZE: usize = 3 * LINE_SIZE;
/// Offset of the member's exposed buffer in its entry, in bytes.
pub(crate) const EXPOSED: usize = 2 * LINE_SIZE;
const _: () = assert!(EXPOSED + size_of::<Exposed>() <= ENTRY_SIZE);
/// Largest number of members of a window.
pub const MEMBERS_MAX: u16 = 4096;
/// Least number of bytes that a member can lend.
pub const LENDABLE_MIN: usize = 1 << 16;
/// Words of an entry of the table that lists receive buffers.
pub const TABLE_ENTRY_WORDS: usize = 4;
/// Least number of lines of a ring.
const LINES_MIN: u32 = 4;

/// A mapped window.
#[derive(Debug)]
pub struct Window {
    mapping: Mapping,
    memory: Memory,
    plan: Plan,
    /// The loans of each member, unless `mapping` includes them. `None` if they cannot be mapped.
    loans: Box<[OnceLock<Option<Mapping>>]>,
}

impl Window {
    /// Maps the memory. Makes a window of it if it is empty and there is a plan; an existing window
    /// must have the same plan. Several processes may call this at once.
    pub fn open(memory: Memory, plan: Option<Plan>) -> Result<Self, WindowError> {
        let size = memory.size();
        let place = || memory.place().to_owned();
        if let Some(plan) = plan
            && !(plan.is_encodable() && fits(plan, size))
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

    /// Makes the memory zero, so that it can become a window; a device keeps its old contents.
    /// Fails while members live in it. (Members on other machines cannot be seen.)
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
        // The magic number goes first: half-erased memory is no window.
        mapping.word64(0).store(0, SeqCst);
        if !memory.give_back(all_of_it) {
            let base = mapping.address(0, memory.size());
            // SAFETY: `mapping` covers all bytes of the memory, and `address` has checked that.
            unsafe { ptr::write_bytes(base.as_ptr(), 0, memory.size()) };
        }
        // A child that another thread has just forked may share the description.
        ofd::unlock(guard.as_fd(), ofd::MEMBERS, all);
        Ok(())
    }

    /// Returns the plan.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Returns the memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the offsets of the message memory, in bytes.
    pub fn messages(&self) -> Range<usize> {
        messages(self.plan)
    }

    /// Returns the offsets of the program's own memory, in bytes.
    pub fn plain(&self) -> Range<usize> {
        self.messages().end..self.memory.size() - lent_by_all(self.plan)
    }

    /// Returns the number of slots of each member. Slot 0 holds the number of slots that were
    /// ever used; each of the others stands for one loan.
    pub(crate) fn slots(&self) -> usize {
        slots(self.plan)
    }

    /// Returns slot `number` of member `index`, if its loans can be mapped (`slot`).
    pub(crate) fn slot(&self, index: u16, number: usize) -> Option<&AtomicU64> {
        assert!(number < self.slots(), "slot {number}");
        let (mapping, start) = self.loans(index)?;
        Some(mapping.word64(start + number * size_of::<u64>()))
    }

    /// Returns the bytes that each member can lend.
    pub(crate) fn lendable(&self) -> usize {
        self.plan.lendable - table(self.plan)
    }

    /// Returns the local address of `length` bytes, `at` bytes into the memory that member `index`
    /// can lend.
    pub(crate) fn lendable_at(&self, index: u16, at: usize, length: usize) -> Option<NonNull<u8>> {
        if at.checked_add(length)? > self.lendable() {
            return None;
        }
        let (mapping, start) = self.loans(index)?;
        Some(mapping.address(start + table(self.plan) + at, length))
    }

    /// Populates pages that member `index` can lend. Returns false if the system has none.
    pub(crate) fn populate(&self, index: u16, part: Range<usize>) -> bool {
        let first = table(self.plan);
        self.loans(index).is_some_and(|(mapping, start)| {
            mapping.populate(start + first + part.start..start + first + part.end)
        })
    }

    /// Returns pages that member `index` can lend to the system.
    pub(crate) fn give_back(&self, index: u16, part: Range<usize>) {
        let first = self.loans_at(index) + table(self.plan);
        self.memory.give_back(first + part.start..first + part.end);
    }

    /// Makes the slots of member `index` zero, and returns the memory that it could lend.
    pub(crate) fn clear_loans(&self, index: u16) {
        // A process that cannot map them lends nothing, so nothing need be cleared for it.
        if self.plan.lendable > 0 && self.slot(index, 0).is_some() {
            self.give_back(index, 0..self.lendable());
            let used = self.slots_used(index);
            let slots = (1..=used).chain([0]).filter_map(|number| self.slot(index, number));
            slots.for_each(|slot| slot.store(0, Release));
        }
    }

    /// Returns the number of slots of member `index` that were ever used.
    pub(crate) fn slots_used(&self, index: u16) -> usize {
        match self.slots() {
            0 => 0,
            slots => {
                let used = self.slot(index, 0).map_or(0, |used| used.load(Acquire) as usize);
                used.min(slots - 1)
            }
        }
    }

    /// Returns the offset of the loans of member `index` in the window.
    fn loans_at(&self, index: u16) -> usize {
        self.memory.size() - lent_by_all(self.plan) + usize::from(index) * self.plan.lendable
    }

    /// Returns the mapping of the loans of member `index`, and their offset in it.
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

    /// Returns offset and bytes of the memory for the receive buffer of member `index`: whole cache
    /// lines, all of them equally long.
    fn buffer_memory(&self, index: u16) -> Option<(usize, usize)> {
        let Plan { members, messages, listed, .. } = self.plan;
        let table = if listed { size_of_table(members) } else { 0 };
        let each = messages.checked_sub(table)? / usize::from(members.max(1));
        let each = each - each % LINE_SIZE;
        let start = self.messages().start + table + usize::from(index) * each;
        (index < members).then_some((start, each))
    }

    /// Returns offset and lines of the ring of member `index`. They are computed, so that a sender
    /// needs no table (FCP II). `None` in a window that lists buffers or has no room for them.
    pub fn buffer(&self, index: u16) -> Option<(usize, u32)> {
        let (at, bytes) = self.buffer_memory(index).filter(|_| !self.plan.listed)?;
        let mut lines = LINES_MAX;
        while size_of_ring(lines) > bytes {
            if lines == LINES_MIN {
                return None;
            }
            lines /= 2;
        }
        Some((at, lines))
    }

    /// Returns local address and bytes of the receive buffer of member `index`, in a window that
    /// lists buffers (FCP and FCP plus).
    pub fn listed_buffer(&self, index: u16) -> Option<(NonNull<u8>, usize)> {
        let (at, bytes) = self.buffer_memory(index).filter(|_| self.plan.listed)?;
        Some((self.mapping.address(at, bytes), bytes))
    }

    /// Returns the entry of member `index` in the table that lists receive buffers. Its first word
    /// is zero while no buffer is listed.
    ///
    /// # Panics
    /// If the window has no such table, or no such member.
    pub fn table_entry(&self, index: u16) -> &[AtomicU32; TABLE_ENTRY_WORDS] {
        assert!(self.plan.listed && index < self.plan.members, "no entry {index}");
        let bytes = TABLE_ENTRY_WORDS * size_of::<u32>();
        let entry = self.mapping.address(self.messages().start + usize::from(index) * bytes, bytes);
        // SAFETY: `address` has checked that the entry lies in the mapping, which `self` keeps. The
        // message memory begins at a page, so the words are aligned; all access is atomic.
        unsafe { entry.cast().as_ref() }
    }

    /// Returns the ring of member `index`.
    ///
    /// # Safety
    /// Neither the ring nor a copy is used once the window is unmapped. A sender holds the
    /// member ([`Membership::hold`](crate::member::Membership::hold)) while it sends.
    pub unsafe fn ring(&self, index: u16) -> Option<Mapped> {
        let (at, lines) = self.buffer(index)?;
        // SAFETY: `buffer` and `address` bound the ring by the mapping, which the caller keeps.
        // `Members::join` has made it zero.
        Some(unsafe { Mapped::at(self.mapping.address(at, size_of_ring(lines)), lines) })
    }

    /// Returns the local address of `length` bytes of the program's own memory.
    pub fn address(&self, at: usize, length: usize) -> Option<NonNull<u8>> {
        let plain = self.plain();
        let inside = at >= plain.start && at.checked_add(length)? <= plain.end;
        inside.then(|| self.mapping.address(at, length))
    }

    /// Returns a 32-bit word of the program's own memory; `at` is a multiple of 4.
    pub fn word32(&self, at: usize) -> Option<&AtomicU32> {
        let address = self.address(at, size_of::<u32>())?.cast::<AtomicU32>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: `address` has checked the bounds, and the line above the alignment. The mapping
        // lives as long as `self`.
        Some(unsafe { address.as_ref() })
    }

    /// Returns a 64-bit word of the program's own memory; `at` is a multiple of 8.
    pub fn word64(&self, at: usize) -> Option<&AtomicU64> {
        let address = self.address(at, size_of::<u64>())?.cast::<AtomicU64>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: `address` has checked the bounds, and the line above the alignment. The mapping
        // lives as long as `self`.
        Some(unsafe { address.as_ref() })
    }

    /// Returns a word of a member's entry.
    #[inline]
    pub(crate) fn entry_word(&self, index: u16, word: usize) -> &AtomicU64 {
        assert!(index < self.plan.members && word < ENTRY_SIZE / size_of::<u64>());
        self.mapping.word64(HEADER_SIZE + usize::from(index) * ENTRY_SIZE + word * size_of::<u64>())
    }

    /// Returns the exposed buffer of a member's entry.
    pub(crate) fn exposed(&self, index: u16) -> &Exposed {
        assert!(index < self.plan.members, "no entry {index}");
        let at = HEADER_SIZE + usize::from(index) * ENTRY_SIZE + EXPOSED;
        let exposed = self.mapping.address(at, size_of::<Exposed>()).cast::<Exposed>();
        debug_assert!(exposed.is_aligned());
        // SAFETY: `address` has checked the bounds. The mapping is page-aligned, and the offset a
        // multiple of 64. All fields are atomics, for which any bytes are valid.
        unsafe { exposed.as_ref() }
    }

    /// Makes the receive buffer of member `index` empty.
    ///
    /// # Safety
    /// No other thread or process uses it.
    pub(crate) unsafe fn clear_buffer(&self, index: u16) {
        if self.plan.listed {
            self.table_entry(index)[0].store(0, Release);
            // The buffer's first line is its management: without it, there is no queue.
            if let Some((at, bytes)) = self.buffer_memory(index) {
                let words = (0..bytes.min(LINE_SIZE)).step_by(size_of::<u64>());
                words.for_each(|word| self.mapping.word64(at + word).store(0, Release));
            }
        } else if let Some((at, lines)) = self.buffer(index) {
            let ring = self.mapping.address(at, size_of_ring(lines));
            // SAFETY: `address` has checked the bounds; the caller guarantees exclusive access.
            unsafe { ptr::write_bytes(ring.as_ptr(), 0, size_of_ring(lines)) };
        }
    }
}

fn messages(plan: Plan) -> Range<usize> {
    let table = (usize::from(plan.members) * ENTRY_SIZE).next_multiple_of(PAGE_SIZE);
    let start = HEADER_SIZE + table;
    start..start.saturating_add(plan.messages)
}

/// Returns the bytes of the table that lists receive buffers in a window for `members` members.
pub fn size_of_table(members: u16) -> usize {
    (usize::from(members) * TABLE_ENTRY_WORDS * size_of::<u32>()).next_multiple_of(LINE_SIZE)
}

/// Returns the least size of a window with this plan, in bytes, without memory for the program.
pub fn least_size(plan: Plan) -> usize {
    messages(plan).end.saturating_add(lent_by_all(plan))
}

/// Returns the bytes of all loans, with their slots: the end of the window.
fn lent_by_all(plan: Plan) -> usize {
    plan.lendable.saturating_mul(plan.members.into())
}

/// Returns the slots of a member: one for each 64 KiB that it can lend, and at most 64 KiB of them.
fn slots(plan: Plan) -> usize {
    (plan.lendable >> 16).next_multiple_of(PAGE_SIZE / size_of::<u64>()).min(1 << 13)
}

/// Returns the bytes of a member's slots.
fn table(plan: Plan) -> usize {
    slots(plan) * size_of::<u64>()
}

/// Returns true if the plan fits into `size` bytes. Its numbers may come from an untrusted header.
fn fits(plan: Plan, size: usize) -> bool {
    (1..=MEMBERS_MAX).contains(&plan.members)
        && least_size(plan) <= size
        && (plan.lendable == 0 || plan.lendable >= LENDABLE_MIN)
        && (!plan.listed || plan.messages >= usize::from(plan.members) * TABLE_ENTRY_WORDS * 4)
}

fn describe(plan: Plan) -> String {
    let Plan { members, messages, lendable, listed } = plan;
    let lends = match lendable {
        0 => String::new(),
        bytes => format!(", {bytes} bytes to lend for each member"),
    };
    let table = if listed { ", a table of buffers" } else { "" };
    format!("{members} members, {messages} bytes of messages{table}{lends}")
}
