//! A group's slot in its host's window. Tasks check there whether their copy of the member list
//! is valid, and meet at a barrier.
//!
//! A slot is one cache line. It has the group's version, and the barrier in one word:
//! ```text
//! generation 32 │ wanted 14 │ arrived 14 │ … │ sleepers 1 │ dead 1 │ closed 1
//! ```
//! An arrival is one compare-and-swap, so a task that is killed has either arrived or not. The
//! last arrival starts the next generation. The waiters wait for it, and can sleep on the
//! generation as on a futex.
//!
//! The slot is open only while all members are on this host. When a member arrives that the slot
//! cannot count, the daemon *closes* the slot and takes over the count. From then on the daemon
//! counts, and tasks arrive by [`GroupRequest::Barrier`](crate::wire::GroupRequest). Earlier
//! arrivals keep waiting for the end of the generation; the daemon ends it when the count is
//! complete. So no arrival is counted twice, and none is lost. A group keeps its slot until it
//! ends.
//!
//! This file makes no system call. The words are [`Word64`]s, which loom models
//! (`tests/slots_model.rs`).

use std::sync::atomic::Ordering::{Acquire, Release};

use serde::{Deserialize, Serialize};
use sync::word::Word64;

/// Slots in a window. Groups without a slot send every request to the daemon.
pub const SLOTS: u16 = 1024;
/// Bytes of a slot: one cache line.
pub const SLOT_SIZE: usize = 64;
/// Bytes of all slots. They lie at the start of the window's plain memory.
pub const SLOTS_SIZE: usize = SLOTS as usize * SLOT_SIZE;
/// Offset of the version in a slot, in bytes.
pub const VERSION_AT: usize = 0;
/// Offset of the barrier word in a slot, in bytes.
pub const BARRIER_AT: usize = 8;
/// Offset of the generation in a slot, in bytes. It has 32 bits.
pub const GENERATION_AT: usize = BARRIER_AT + if cfg!(target_endian = "little") { 4 } else { 0 };
/// Largest count of a barrier in a slot.
pub const WANTED_MAX: u16 = (1 << 14) - 1;

const CLOSED: u64 = 1 << 0;
const DEAD: u64 = 1 << 1;
const SLEEPERS: u64 = 1 << 2;
const ARRIVED_SHIFT: u32 = 4;
const ARRIVED: u64 = (WANTED_MAX as u64) << ARRIVED_SHIFT;
const WANTED_SHIFT: u32 = 18;
const WANTED: u64 = (WANTED_MAX as u64) << WANTED_SHIFT;
const GENERATION_SHIFT: u32 = 32;

/// The words of one slot.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a, W> {
    /// The group's [version](crate::wire::GroupInfo::version).
    pub version: &'a W,
    /// The barrier.
    pub barrier: &'a W,
}

/// The result of an attempt to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// All have arrived. The caller must wake the sleepers, if there are any.
    Last {
        /// True if some waiters sleep.
        sleepers: bool,
    },
    /// More arrivals are to come.
    Waits(Ticket),
    /// Earlier arrivals passed another count.
    Mismatch,
    /// The group has another version now.
    Changed,
    /// The slot is closed: the daemon counts.
    Closed,
    /// The group was static and has lost a member; no task can arrive any more.
    Dead,
}

/// A task's arrival, with which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The generation in which the task arrived.
    pub generation: u32,
}

/// The state of a barrier for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Arrivals are missing.
    Waiting,
    /// All have arrived.
    Done,
    /// The group is dead.
    Dead,
}

/// The count of a slot when it was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The number of arrivals.
    pub arrived: u16,
    /// The count at which the barrier is complete; 0 without arrivals.
    pub wanted: u16,
}

fn generation(word: u64) -> u32 {
    (word >> GENERATION_SHIFT) as u32
}

/// Returns the word of the next generation, without arrivals.
fn next(word: u64) -> u64 {
    u64::from(generation(word).wrapping_add(1)) << GENERATION_SHIFT | word & (CLOSED | DEAD)
}

impl<W: Word64> Slot<'_, W> {
    /// Returns the group's current version.
    pub fn version(&self) -> u32 {
        self.version.load(Acquire) as u32
    }

    /// Arrives at the barrier of the group as it was at `version`. The barrier is complete after
    /// `wanted` arrivals, from 1 to [`WANTED_MAX`].
    pub fn arrive(&self, version: u32, wanted: u16) -> Arrival {
        let wanted = u64::from(wanted);
        assert!((1..=u64::from(WANTED_MAX)).contains(&wanted));
        let mut now = self.barrier.load(Acquire);
        loop {
            // Check after loading `now`. If the exchange succeeds, nobody arrived in between, so
            // a change of the group in between does not matter.
            if self.version() != version {
                return Arrival::Changed;
            }
            if now & DEAD != 0 {
                return Arrival::Dead;
            }
            if now & CLOSED != 0 {
                return Arrival::Closed;
            }
            let arrived = (now & ARRIVED) >> ARRIVED_SHIFT;
            if arrived != 0 && (now & WANTED) >> WANTED_SHIFT != wanted {
                return Arrival::Mismatch;
            }
            let last = arrived + 1 == wanted;
            let then = if last {
                next(now)
            } else {
                now & !(ARRIVED | WANTED) | (arrived + 1) << ARRIVED_SHIFT | wanted << WANTED_SHIFT
            };
            match self.barrier.compare_exchange(now, then) {
                Ok(_) if last => return Arrival::Last { sleepers: now & SLEEPERS != 0 },
                Ok(_) => return Arrival::Waits(Ticket { generation: generation(now) }),
                Err(changed) => now = changed,
            }
        }
    }

    /// Returns the state of the barrier for this ticket.
    pub fn look(&self, ticket: Ticket) -> Found {
        let now = self.barrier.load(Acquire);
        match generation(now).wrapping_sub(ticket.generation) {
            0 => Found::Waiting,
            // A group dies once, and has no generation after that.
            1 if now & DEAD != 0 => Found::Dead,
            _ => Found::Done,
        }
    }

    /// Announces that the ticket's task is about to sleep while the ticket's generation lasts.
    pub fn about_to_sleep(&self, ticket: Ticket) {
        let mut now = self.barrier.load(Acquire);
        while generation(now) == ticket.generation && now & SLEEPERS == 0 {
            match self.barrier.compare_exchange(now, now | SLEEPERS) {
                Ok(_) => return,
                Err(changed) => now = changed,
            }
        }
    }

    /// Daemon: assigns the slot to another group, or frees it. It is closed then.
    pub fn clear(&self, version: u32) {
        self.version.store(version.into(), Release);
        self.change(|now| next(now) & !DEAD | CLOSED);
    }

    /// Daemon: publishes the group's new version.
    pub fn changed(&self, version: u32) {
        self.version.store(version.into(), Release);
    }

    /// Daemon: opens the slot. Nobody may be waiting.
    pub fn open(&self) {
        self.change(|now| now & !CLOSED);
    }

    /// Daemon: closes the slot and takes over its count.
    pub fn close(&self) -> Count {
        let before = self.change(|now| now & !(ARRIVED | WANTED) | CLOSED);
        Count {
            arrived: ((before & ARRIVED) >> ARRIVED_SHIFT) as u16,
            wanted: ((before & WANTED) >> WANTED_SHIFT) as u16,
        }
    }

    /// Daemon: completes the barrier of a closed slot. The caller must wake the sleepers.
    pub fn complete(&self) {
        self.change(next);
    }

    /// Daemon: marks the group as dead. The caller must wake the sleepers.
    pub fn kill(&self) {
        self.change(|now| next(now) | CLOSED | DEAD);
    }

    fn change(&self, change: impl Fn(u64) -> u64) -> u64 {
        let mut now = self.barrier.load(Acquire);
        loop {
            match self.barrier.compare_exchange(now, change(now)) {
                Ok(_) => return now,
                Err(changed) => now = changed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    #[derive(Default)]
    struct Words {
        version: AtomicU64,
        barrier: AtomicU64,
    }

    impl Words {
        fn slot(&self) -> Slot<'_, AtomicU64> {
            Slot { version: &self.version, barrier: &self.barrier }
        }
    }

    #[track_caller]
    fn waits(arrival: Arrival) -> Ticket {
        let Arrival::Waits(ticket) = arrival else { panic!("{arrival:?}") };
        ticket
    }

    #[test]
    fn a_new_slot_is_closed_until_the_daemon_opens_it() {
        let words = Words::default();
        let slot = words.slot();
        slot.clear(7);
        assert_eq!(slot.version(), 7);
        assert_eq!(slot.arrive(7, 1), Arrival::Closed);
        slot.open();
        assert_eq!(slot.arrive(7, 1), Arrival::Last { sleepers: false });
    }

    #[test]
    fn the_last_ends_the_barrier_for_all() {
        let words = Words::default();
        let slot = words.slot();
        let tickets = [waits(slot.arrive(0, 3)), waits(slot.arrive(0, 3))];
        assert_eq!(slot.look(tickets[0]), Found::Waiting);
        assert_eq!(slot.arrive(0, 3), Arrival::Last { sleepers: false });
        assert_eq!(tickets.map(|ticket| slot.look(ticket)), [Found::Done, Found::Done]);
        waits(slot.arrive(0, 3));
    }

    #[test]
    fn another_count_is_refused_and_not_counted() {
        let words = Words::default();
        let slot = words.slot();
        waits(slot.arrive(0, 2));
        assert_eq!(slot.arrive(0, 3), Arrival::Mismatch);
        assert_eq!(slot.arrive(0, 1), Arrival::Mismatch);
        assert_eq!(slot.arrive(0, 2), Arrival::Last { sleepers: false });
    }

    #[test]
    fn no_task_arrives_at_a_changed_group() {
        let words = Words::default();
        let slot = words.slot();
        let ticket = waits(slot.arrive(0, 2));
        slot.changed(1);
        assert_eq!(slot.arrive(0, 2), Arrival::Changed);
        assert_eq!(slot.look(ticket), Found::Waiting);
        assert_eq!(slot.arrive(1, 2), Arrival::Last { sleepers: false });
        assert_eq!(slot.look(ticket), Found::Done);
    }

    #[test]
    fn the_daemon_takes_the_count_and_ends_the_barrier() {
        let words = Words::default();
        let slot = words.slot();
        let ticket = waits(slot.arrive(0, 3));
        waits(slot.arrive(0, 3));
        assert_eq!(slot.close(), Count { arrived: 2, wanted: 3 });
        assert_eq!(slot.arrive(0, 3), Arrival::Closed);
        assert_eq!(slot.look(ticket), Found::Waiting);
        slot.complete();
        assert_eq!(slot.look(ticket), Found::Done);
        assert_eq!(slot.close(), Count::default());
        slot.open();
        waits(slot.arrive(0, 3));
    }

    #[test]
    fn a_dead_group_lets_nobody_wait() {
        let words = Words::default();
        let slot = words.slot();
        let through = waits(slot.arrive(0, 2));
        slot.arrive(0, 2);
        let ticket = waits(slot.arrive(0, 3));
        slot.kill();
        assert_eq!([through, ticket].map(|ticket| slot.look(ticket)), [Found::Done, Found::Dead]);
        assert_eq!(slot.arrive(0, 3), Arrival::Dead);
        slot.clear(1);
        slot.open();
        waits(slot.arrive(1, 3));
    }

    #[test]
    fn the_last_is_told_of_sleepers_of_this_generation_only() {
        let words = Words::default();
        let slot = words.slot();
        let ticket = waits(slot.arrive(0, 2));
        slot.about_to_sleep(ticket);
        assert_eq!(slot.arrive(0, 2), Arrival::Last { sleepers: true });
        slot.about_to_sleep(ticket);
        waits(slot.arrive(0, 2));
        assert_eq!(slot.arrive(0, 2), Arrival::Last { sleepers: false });
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_eq!(GENERATION_AT + size_of::<u32>(), BARRIER_AT + size_of::<u64>());
        let words = Words::default();
        let slot = words.slot();
        words.barrier.fetch_or(u64::from(u32::MAX) << GENERATION_SHIFT, SeqCst);
        for _ in 1..WANTED_MAX {
            waits(slot.arrive(0, WANTED_MAX));
        }
        let count = Count { arrived: WANTED_MAX - 1, wanted: WANTED_MAX };
        assert_eq!(slot.arrive(0, WANTED_MAX), Arrival::Last { sleepers: false });
        assert_eq!(generation(words.barrier.load(SeqCst)), 0);
        for _ in 1..WANTED_MAX {
            waits(slot.arrive(0, WANTED_MAX));
        }
        assert_eq!(slot.close(), count);
    }
}
