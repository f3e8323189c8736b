//! A rank among the ranks of a group: the steps that it takes with the others.

use std::cell::Cell;
use std::ptr;

use crate::outbox::{Location, Outbox, Publish, Published, SLOTS};

/// The way in which the ranks of a group wait for each other.
pub trait Wait: Publish {
    /// Waits until `ready` returns true for the outbox of a rank. `is_crowded`: there are more
    /// tasks than processors.
    fn wait(&mut self, outbox: &Outbox, is_crowded: bool, ready: impl Fn(&Outbox) -> bool);
}

/// A rank's part of a group.
pub struct Group<W> {
    /// The rank of this task.
    pub rank: usize,
    /// Number of ranks.
    pub ranks: usize,
    outboxes: Box<[&'static Outbox]>,
    /// There are more tasks than processors: ranks meet at rank 0, so that each wakes once.
    is_crowded: bool,
    /// The last step begun.
    number: u64,
    /// The step up to which all ranks are known to be done.
    all_done: u64,
    waiter: W,
}

impl<W: Wait> Group<W> {
    /// Returns this rank's part of a new group. All ranks must agree in `is_crowded`.
    pub fn new(rank: usize, outboxes: Box<[&'static Outbox]>, is_crowded: bool, waiter: W) -> Self {
        let ranks = outboxes.len();
        Self { rank, ranks, outboxes, is_crowded, number: 0, all_done: 0, waiter }
    }

    /// Reports that this rank does not read the others' outboxes any more: the group ends. Returns
    /// this rank's outbox.
    pub fn leave(&self) -> &'static Outbox {
        for other in self.others() {
            self.outboxes[other].leave();
        }
        self.outboxes[self.rank]
    }

    /// Returns the other ranks, from the next on, so that not all ranks read the same one at once.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<W> {
        let (rank, ranks) = (self.rank, self.ranks);
        (1..ranks).map(move |step| (rank + step) % ranks)
    }

    /// Begins a step. Returns its number.
    #[inline]
    pub fn step(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Waits until all ranks are done with the data in the slot of step `number`.
    #[inline]
    fn make_room(&mut self, number: u64) {
        if number > self.all_done + SLOTS {
            self.wait_done(number - SLOTS);
        }
        debug_assert!(number <= self.all_done + SLOTS, "a rank still reads the slot of {number}");
    }

    /// Publishes data in this step.
    ///
    /// # Safety
    /// `length` bytes at `data` are readable, and at most [`DATA_MAX`](crate::outbox::DATA_MAX).
    #[inline]
    pub unsafe fn publish_data(&mut self, number: u64, data: *const u8, length: usize) {
        self.make_room(number);
        // SAFETY: all ranks are done with the slot, and this function has the contract of the
        // called one otherwise.
        unsafe { self.outboxes[self.rank].publish_data::<W>(number, data, length) };
    }

    /// Publishes the location of data in this step.
    #[inline]
    pub fn publish_location(&mut self, number: u64, place: Location) {
        self.make_room(number);
        // SAFETY: all ranks are done with the slot.
        unsafe { self.outboxes[self.rank].publish_location::<W>(number, place) };
    }

    /// Publishes the arrival in this step, without data.
    #[inline]
    pub fn publish_nothing(&mut self, number: u64) {
        // SAFETY: no byte is read.
        unsafe { self.publish_data(number, ptr::null(), 0) };
    }

    /// Waits until a rank has published this step. Returns its data.
    #[inline]
    pub fn await_published(&mut self, rank: usize, number: u64) -> Published {
        let outbox = self.outboxes[rank];
        let ready = |outbox: &Outbox| outbox.has_published(number);
        self.waiter.wait(outbox, self.is_crowded, ready);
        outbox.published(number)
    }

    /// Returns a rank's data of this step, which all ranks have published.
    #[inline]
    pub fn published(&self, rank: usize, number: u64) -> Published {
        self.outboxes[rank].published(number)
    }

    /// Returns the outbox of a rank.
    pub fn outbox(&self, rank: usize) -> &'static Outbox {
        self.outboxes[rank]
    }

    /// Returns true if each task has a processor. Two ranks then copy faster than one.
    pub fn has_processors(&self) -> bool {
        !self.is_crowded
    }

    /// Waits until `ready` returns true. The rank rings its doorbell after each change.
    pub fn await_rank(&mut self, rank: usize, ready: impl Fn() -> bool) {
        self.waiter.wait(self.outboxes[rank], self.is_crowded, |_| ready());
    }

    /// Waits until all ranks have published this step.
    #[inline]
    pub fn meet(&mut self, number: u64) {
        self.await_all(move |outbox| outbox.has_published(number));
        // A rank that publishes a step is done with the steps before.
        self.all_done = self.all_done.max(number - 1);
    }

    /// Waits until `ready` returns true for all other ranks.
    ///
    /// With more tasks than processors, rank 0 waits for all ranks and then publishes a step, so
    /// that a sleeping rank wakes once. A rank that is awake also looks at all others itself: each
    /// rank then runs once for each operation. If all waited for rank 0, the others would run twice
    /// whenever rank 0 is not the last.
    #[inline]
    fn await_all(&mut self, ready: impl Fn(&Outbox) -> bool + Copy) {
        if !self.is_crowded {
            for other in self.others() {
                self.waiter.wait(self.outboxes[other], false, ready);
            }
            return;
        }
        let go = self.step();
        if self.rank == 0 {
            for other in self.others() {
                self.waiter.wait(self.outboxes[other], true, ready);
            }
            return self.publish_nothing(go);
        }
        let (rank, ranks, outboxes) = (self.rank, self.ranks, &self.outboxes);
        let next = Cell::new(1);
        let is_over = |first: &Outbox| {
            while next.get() < ranks && ready(outboxes[(rank + next.get()) % ranks]) {
                next.set(next.get() + 1);
            }
            next.get() == ranks || first.has_published(go)
        };
        self.waiter.wait(outboxes[0], true, is_over);
    }

    /// Reports that this rank is done with all data so far. Each operation ends with this call.
    #[inline]
    pub fn finish(&mut self) {
        self.outboxes[self.rank].set_done::<W>(self.number);
    }

    /// Does the same, and waits until no rank reads this rank's data any more.
    #[inline]
    pub fn finish_all(&mut self) {
        self.finish();
        let number = self.number;
        self.await_all(move |outbox| outbox.done() >= number);
        self.all_done = self.all_done.max(number);
    }

    /// Waits until all ranks are done with a step.
    pub fn wait_done(&mut self, number: u64) {
        let mut least = u64::MAX;
        for other in self.others() {
            let outbox = self.outboxes[other];
            let is_done = |outbox: &Outbox| outbox.done() >= number;
            self.waiter.wait(outbox, self.is_crowded, is_done);
            least = least.min(outbox.done());
        }
        self.all_done = least;
    }
}
