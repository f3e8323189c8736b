//! One use of a slot in the table of published receives.

use std::num::NonZeroU64;

pub(super) const POSTED: u64 = 1 << 32;
pub(super) const CLAIMED: u64 = 2 << 32;
pub(super) const STATE: u64 = 3 << 32;
/// The lowest bit of the use's number in a slot's state.
pub(super) const USE: u64 = 1 << 34;

/// A use of a slot: the slot's state while the receive is posted. Its low half is the number of the
/// slot. In a claimed state the ticket of the sender is there instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUse(NonZeroU64);

impl SlotUse {
    /// Returns the use of a posted slot with this state. `None` for 0.
    pub(super) fn new(state: u64) -> Option<Self> {
        NonZeroU64::new(state).map(Self)
    }

    /// Returns the number of the slot.
    pub fn slot(self) -> usize {
        self.0.get() as u32 as usize
    }

    /// Returns the tag for the message's pieces, which differs from that of earlier uses.
    pub fn tag(self) -> u32 {
        (self.0.get() >> 34) as u32
    }

    /// Returns the state of the slot while the receive is posted.
    pub(super) fn posted(self) -> u64 {
        self.0.get()
    }

    /// Returns the state after the receive is withdrawn or complete.
    pub(super) fn free(self) -> u64 {
        self.0.get() & !(USE - 1)
    }

    /// Returns the state after a sender with this ticket has claimed the receive.
    pub(super) fn claimed(self, ticket: u32) -> u64 {
        self.free() | CLAIMED | u64::from(ticket)
    }
}
