//! The place where a receive is published: a slot of the table, and one use of it.

use std::num::NonZeroU64;

pub(super) const POSTED: u64 = 1 << 32;
pub(super) const CLAIMED: u64 = 2 << 32;
pub(super) const STATE: u64 = 3 << 32;
/// Sets one use of a slot apart from others: these bits of its state.
pub(super) const USE: u64 = 1 << 34;

/// Where a receive is published: its slot's state, with the slot's number where it will say who
/// has claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(NonZeroU64);

impl Place {
    /// Returns the place that the state of a posted slot names. `None` for 0.
    pub(super) fn new(state: u64) -> Option<Self> {
        NonZeroU64::new(state).map(Self)
    }

    /// The slot's number.
    pub fn slot(self) -> usize {
        self.0.get() as u32 as usize
    }

    /// The tag under which the message's pieces are counted.
    pub fn tag(self) -> u32 {
        (self.0.get() >> 34) as u32
    }

    /// The state of the slot, posted.
    pub(super) fn posted(self) -> u64 {
        self.0.get()
    }

    /// The same, free.
    pub(super) fn free(self) -> u64 {
        self.0.get() & !(USE - 1)
    }

    /// The same, claimed.
    pub(super) fn claimed(self, ticket: u32) -> u64 {
        self.free() | CLAIMED | u64::from(ticket)
    }
}
