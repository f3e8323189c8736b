//! Receives that senders find: a table in the receiver's port, of those for large messages. A
//! sender who finds there the receive for his message *claims* it and begins to copy, whatever
//! the receiver does meanwhile.
//!
//! Messages must find the receives that they would find if the receiver matched alone:
//!
//! - *The oldest receive that fits.* A receive is published only if no older one fits any of its
//!   messages, but for those that are published, too ([`Matching::publish`]). Each has a serial
//!   number; a sender reads how many there were, then looks at all that were published by then,
//!   and claims the oldest that fits. If somebody was faster, he looks again.
//! - *Messages of one sender in order.* Messages come by the ring. A sender looks at the table
//!   only when the receiver has taken in all that he has sent by the ring
//!   ([`Table::has_taken`]): those have their receives, or fit none that is here. A message
//!   whose receive was claimed need not be waited for, and what is sent after it finds that
//!   receive taken.
//! - *One message for one receive.* A slot's state is one word, which sender and receiver change
//!   by compare-and-swap; it has a part that no earlier use of the slot had (modulo 2³⁰).
//!
//! ```text
//!        ┌────────withdraw────────┐
//!        ↓                        │
//!      free ──────publish────→ posted ──claim──→ claimed by ──release──→ free
//! ```
//! The sender claims; all else the receiver does. Word of a message whose receive is claimed
//! goes by the ring, in lines that were reserved before. A sender that is killed in between
//! leaves a claim without a word: the state says whose it is, so the receiver finds out.
//!
//! Only messages that are worth cutting into [pieces](sync::pieces) go this way: to look at
//! another's table costs about as much as to tell him of a message. Nobody else pays for it: a
//! receive for shorter messages is not published, and to send one, nothing is read here.
//!
//! `tests/posted_model.rs` has it under loom.
//!
//! [`Matching::publish`]: crate::protocol::matching::Matching::publish

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sync::pieces::Pieces;
use sync::word::Word64;

use crate::protocol::cache;
use crate::protocol::place::{CLAIMED, POSTED, Place, STATE, USE};
use crate::protocol::receive::{Receive, fits};
use crate::protocol::wire::Kind;

/// Receives in a table.
pub const SLOTS: usize = 64;

/// A receive that is published.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Slot<W> {
    /// Which use of the slot it is, in what state, and who has claimed it.
    state: W,
    serial: W,
    /// Whose messages, and of which kind.
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
    /// How many were ever published.
    count: W,
    /// A bit for each slot that is not free.
    occupied: W,
    /// The number of the next message in the ring.
    taken: W,
    slots: [Slot<W>; N],
}

/// A receive that a sender has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimed {
    /// Where it is published.
    pub place: Place,
    /// Where to,
    pub address: u64,
    /// and how much room there is.
    pub length: u64,
}

/// Whose messages: of a kind, from somebody or from anybody.
fn from(kind: Kind, source: Option<u32>) -> u64 {
    (kind as u64) << 33 | source.map_or(0, |source| 1 << 32 | u64::from(source))
}

impl<W: Word64, const N: usize> Table<W, N> {
    /// An empty one of such words, which are 0.
    pub fn new(word: impl Fn() -> W) -> Self {
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

    /// Publishes a receive in one part, if there is a slot; `begin` is told what it will be
    /// before senders see it. Only one thread at a time does this, and the receiver's other
    /// steps.
    pub fn publish(
        &self,
        kind: Kind,
        receive: &Receive,
        begin: impl FnOnce(Place),
    ) -> Option<Place> {
        let occupied = self.occupied.load(Relaxed);
        let number = occupied.trailing_ones() as usize;
        let slot = self.slots.get(number)?;
        let count = self.count.load(Relaxed);
        let word = slot.state.load(Relaxed).wrapping_add(USE) & !(USE - 1);
        let place = Place::new(word | POSTED | number as u64)?;
        begin(place);
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
        slot.state.store(place.posted(), Release);
        self.occupied.store(occupied | 1 << number, Release);
        self.count.store(count + 1, Release);
        Some(place)
    }

    /// Takes a receive back. `false`: somebody has claimed it.
    #[inline]
    pub fn withdraw(&self, place: Place) -> bool {
        let state = &self.slots[place.slot()].state;
        if state.compare_exchange(place.posted(), place.free()).is_err() {
            return false;
        }
        self.vacate(place);
        true
    }

    /// Who has claimed a receive, by his ticket.
    pub fn claimed_by(&self, place: Place) -> Option<u32> {
        let word = self.slots[place.slot()].state.load(Acquire);
        (word & STATE == CLAIMED).then_some(word as u32)
    }

    /// Nobody needs a receive any more that was claimed.
    pub fn release(&self, place: Place) {
        self.slots[place.slot()].state.store(place.free(), Release);
        self.vacate(place);
    }

    fn vacate(&self, place: Place) {
        self.occupied.store(self.occupied.load(Relaxed) & !(1 << place.slot()), Release);
    }

    /// The receiver has taken in all messages before this.
    #[inline]
    pub fn take_in(&self, number: u32) {
        self.taken.store(number.into(), Release);
    }

    /// Whether the receiver has taken in all messages before this. (Numbers come round: after
    /// 2³¹ more it may seem so that it has not.)
    pub fn has_taken(&self, number: u32) -> bool {
        (self.taken.load(Acquire) as u32).wrapping_sub(number) as i32 >= 0
    }

    /// Says that `has_taken` and `claim` are going to be asked: what they mostly read comes from
    /// another core, and may come at once.
    #[inline]
    pub fn prepare(&self) {
        cache::will_read(&self.count);
        cache::will_write(&self.slots);
    }

    /// Claims the receive that a message gets, if it is here; `ticket` says for whom.
    pub fn claim(&self, kind: Kind, source: u32, tag: u64, ticket: u32) -> Option<Claimed> {
        let count = self.count.load(Acquire);
        loop {
            let mut oldest: Option<(u64, Place)> = None;
            let mut left = self.occupied.load(Acquire);
            while left != 0 {
                let number = left.trailing_zeros() as usize;
                left &= left - 1;
                let slot = self.slots.get(number)?;
                let word = slot.state.load(Acquire);
                // Where a later use of the slot is read, the state is another by now, too.
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
                    oldest = Some((serial, Place::new(word)?));
                }
            }
            let (_, place) = oldest?;
            let slot = self.slots.get(place.slot())?;
            let (address, length) = (slot.address.load(Acquire), slot.length.load(Acquire));
            if slot.state.compare_exchange(place.posted(), place.claimed(ticket)).is_ok() {
                return Some(Claimed { place, address, length });
            }
        }
    }
}

/// What others see of published receives: the table, and how far each message is.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Posted {
    /// The table.
    pub table: Table<AtomicU64>,
    /// Lines of their own: both sides write them while they copy.
    pieces: [Lines; SLOTS],
}

#[repr(C, align(64))]
#[derive(Debug)]
struct Lines(Pieces);

impl Posted {
    /// The pieces of the message that gets this receive.
    pub fn pieces(&self, place: Place) -> &Pieces {
        &self.pieces[place.slot()].0
    }
}
