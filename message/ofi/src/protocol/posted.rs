//! Published receives: a table in the receiver's port with posted receives for large messages. A
//! sender that finds the receive for its message there *claims* it and starts to copy at once. The
//! receiver may compute meanwhile.
//!
//! Messages must match the receives that they would match if only the receiver matched:
//!
//! - *The oldest receive that fits.* A receive is published only if no older, unpublished receive
//!   could match one of its messages ([`Matching::publish`]). Each published receive has a serial
//!   number. A sender reads the count, looks at all receives that were published by then, and
//!   claims the oldest that fits. If another sender was faster, it looks again.
//! - *Messages of one sender in order.* A sender looks at the table only when the receiver has
//!   taken all its earlier messages out of the ring ([`Table::has_taken`]). Those have their
//!   receives, or fit none in the table. A sender need not wait for messages that have claimed
//!   their receives: later messages find these receives taken.
//! - *One message for one receive.* The state of a slot is one word that both sides change by
//!   compare-and-swap. It contains a number for the use of the slot (modulo 2³⁰).
//!
//! ```text
//!        ┌────────withdraw────────┐
//!        ↓                        │
//!      free ──────publish────→ posted ──claim──→ claimed by ──release──→ free
//! ```
//! The sender claims; the receiver takes all other steps. A message with a claimed receive also
//! goes through the ring, in lines that the sender has reserved before. A sender that is killed in
//! between leaves a claim without a message. The state names the sender, so the receiver detects
//! this.
//!
//! Only messages that are worth cutting into [pieces](sync::pieces) use the table, because a look
//! at it costs about as much as a message. Other messages pay nothing: receives for shorter
//! messages are not published, and senders of shorter messages do not read the table.
//!
//! `tests/posted_model.rs` models it with loom.
//!
//! [`Matching::publish`]: crate::protocol::matching::Matching::publish

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sync::pieces::Pieces;
use sync::word::Word64;

use crate::protocol::cache;
use crate::protocol::receive::{Receive, fits};
use crate::protocol::slot_use::{CLAIMED, POSTED, STATE, SlotUse, USE};
use crate::protocol::wire::Kind;

/// Number of slots.
pub const SLOTS: usize = 64;

/// A slot.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Slot<W> {
    /// The use of the slot, its state, and the ticket of the sender that has claimed it.
    state: W,
    serial: W,
    /// The kind and the sender of its messages.
    from: W,
    tag: W,
    ignore: W,
    address: W,
    length: W,
}

/// The table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Table<W, const N: usize = SLOTS> {
    /// Number of receives that were ever published.
    count: W,
    /// One bit for each slot that is not free.
    occupied: W,
    /// Number of the next message in the ring.
    taken: W,
    slots: [Slot<W>; N],
}

/// A receive that a sender has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// The use of the slot.
    pub slot_use: SlotUse,
    /// Address of the buffer.
    pub address: u64,
    /// Number of bytes of the buffer.
    pub length: u64,
}

/// Returns the kind and the sender of messages as a word. `None`: any sender.
fn from(kind: Kind, source: Option<u32>) -> u64 {
    (kind as u64) << 33 | source.map_or(0, |source| 1 << 32 | u64::from(source))
}

impl<W: Word64, const N: usize> Table<W, N> {
    /// Makes an empty table. `word` returns words with value 0.
    pub fn new(word: impl Fn() -> W) -> Self {
        const { assert!(N <= u64::BITS as usize, "`occupied` has a bit for each slot") };
        let slot = |_| Slot {
            state: word(),
            serial: word(),
            from: word(),
            tag: word(),
            ignore: word(),
            address: word(),
            length: word(),
        };
        Self { count: word(), occupied: word(), taken: word(), slots: std::array::from_fn(slot) }
    }

    /// Publishes a receive in one part, if a slot is free. `begin` gets the use of the slot before
    /// senders can see it. Only one thread at a time takes this or another step of the receiver.
    pub fn publish(
        &self,
        kind: Kind,
        receive: &Receive,
        begin: impl FnOnce(SlotUse),
    ) -> Option<SlotUse> {
        let occupied = self.occupied.load(Relaxed);
        let number = occupied.trailing_ones() as usize;
        let slot = self.slots.get(number)?;
        debug_assert_eq!(receive.buffer.list().len(), 1, "senders copy to one address");
        debug_assert_eq!(slot.state.load(Relaxed) & STATE, 0, "the slot is free");
        let count = self.count.load(Relaxed);
        let word = slot.state.load(Relaxed).wrapping_add(USE) & !(USE - 1);
        let slot_use = SlotUse::new(word | POSTED | number as u64)?;
        begin(slot_use);
        let values = [
            (&slot.serial, count),
            (&slot.from, from(kind, receive.source)),
            (&slot.tag, receive.tag),
            (&slot.ignore, receive.ignore),
            (&slot.address, receive.buffer.address()),
            (&slot.length, receive.buffer.length()),
        ];
        for (word, value) in values {
            word.store(value, Release);
        }
        slot.state.store(slot_use.posted(), Release);
        self.occupied.store(occupied | 1 << number, Release);
        self.count.store(count + 1, Release);
        Some(slot_use)
    }

    /// Withdraws a receive. Returns false if a sender has claimed it.
    #[inline]
    pub fn withdraw(&self, slot_use: SlotUse) -> bool {
        let state = &self.slots[slot_use.slot()].state;
        if state.compare_exchange(slot_use.posted(), slot_use.free()).is_err() {
            return false;
        }
        self.vacate(slot_use);
        true
    }

    /// Returns the ticket of the sender that has claimed a receive.
    pub fn claimed_by(&self, slot_use: SlotUse) -> Option<u32> {
        let word = self.slots[slot_use.slot()].state.load(Acquire);
        (word & STATE == CLAIMED).then_some(word as u32)
    }

    /// Frees the slot of a claimed receive.
    pub fn release(&self, slot_use: SlotUse) {
        debug_assert!(self.claimed_by(slot_use).is_some(), "only claimed slots are released");
        self.slots[slot_use.slot()].state.store(slot_use.free(), Release);
        self.vacate(slot_use);
    }

    fn vacate(&self, slot_use: SlotUse) {
        self.occupied.store(self.occupied.load(Relaxed) & !(1 << slot_use.slot()), Release);
    }

    /// Notes that the receiver has taken all messages before this number.
    #[inline]
    pub fn set_taken(&self, number: u32) {
        self.taken.store(number.into(), Release);
    }

    /// Returns true if the receiver has taken all messages before this number. Numbers wrap around:
    /// it may return false after 2³¹ further messages.
    pub fn has_taken(&self, number: u32) -> bool {
        (self.taken.load(Acquire) as u32).wrapping_sub(number) as i32 >= 0
    }

    /// Prefetches the lines that `has_taken` and `claim` read: another core has them.
    #[inline]
    pub fn prepare(&self) {
        cache::will_read(&self.count);
        cache::will_write(&self.slots);
    }

    /// Claims the receive for a message, if it is in the table. `ticket` identifies the sender.
    pub fn claim(&self, kind: Kind, source: u32, tag: u64, ticket: u32) -> Option<Claimed> {
        let count = self.count.load(Acquire);
        loop {
            let mut oldest: Option<(u64, SlotUse)> = None;
            let mut left = self.occupied.load(Acquire);
            while left != 0 {
                let number = left.trailing_zeros() as usize;
                left &= left - 1;
                let slot = self.slots.get(number)?;
                let word = slot.state.load(Acquire);
                // If these fields belong to a later use of the slot, the exchange below fails.
                let serial = slot.serial.load(Acquire);
                let whose = slot.from.load(Acquire);
                let is_from = [from(kind, None), from(kind, Some(source))].contains(&whose);
                let is_ours =
                    is_from && fits(tag, slot.tag.load(Acquire), slot.ignore.load(Acquire));
                if word & STATE == POSTED
                    && serial < count
                    && is_ours
                    && oldest.is_none_or(|(other, _)| serial < other)
                {
                    oldest = Some((serial, SlotUse::new(word)?));
                }
            }
            let (_, slot_use) = oldest?;
            let slot = self.slots.get(slot_use.slot())?;
            let (address, length) = (slot.address.load(Acquire), slot.length.load(Acquire));
            if slot.state.compare_exchange(slot_use.posted(), slot_use.claimed(ticket)).is_ok() {
                return Some(Claimed { slot_use, address, length });
            }
        }
    }
}

/// Published receives as peers see them: the table, and the progress of each message.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Posted {
    /// The table.
    pub table: Table<AtomicU64>,
    /// Both sides write them while they copy, so each has a cache line of its own.
    pieces: [Lines; SLOTS],
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Lines(Pieces);

impl Posted {
    /// Returns the pieces of the message that gets this receive.
    pub fn pieces(&self, slot_use: SlotUse) -> &Pieces {
        &self.pieces[slot_use.slot()].0
    }
}
