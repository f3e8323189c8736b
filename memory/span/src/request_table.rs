//! The request table: the slots of a node's threads, and the doorbell by which they wake the agent.
//!
//! The threads' side uses no libc and no thread area, since both are the program's.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::raw;
use crate::request::Request;
use crate::slot::{Awaited, Entries, SLOTS_PER_BLOCK, Slot};

/// Threads that a program may have at once: about as many as Linux allows with its default
/// `vm.max_map_count`.
pub const THREADS_MAX: usize = 32 << 10;
const BLOCKS: usize = THREADS_MAX / SLOTS_PER_BLOCK;

/// Drives the engine for the thread of a slot, until it has what it waits for or should sleep.
/// Returns false if another thread drives.
pub type Driver = fn(&Slot, Awaited) -> bool;

/// All slots of a node. They are allocated when they are first needed, and never freed.
pub struct RequestTable {
    blocks: [OnceLock<Box<[Slot]>>; BLOCKS],
    /// A bit for each slot that holds a request.
    requested: [AtomicU64; BLOCKS],
    /// A bit for each word of `requested` that may have bits.
    summary: [AtomicU64; BLOCKS / 64],
    /// All slots below this index have been allocated.
    allocated: AtomicU32,
    /// The agent sleeps: the next request must ring the doorbell.
    agent_sleeps: AtomicU32,
    /// All nodes have begun. At the origin only.
    all_have_begun: AtomicBool,
    /// An eventfd, by its number in the threads' descriptor table.
    doorbell: i32,
    entries: Entries,
    /// On nodes whose threads drive the engine: the function that does.
    driver: OnceLock<Driver>,
}

impl RequestTable {
    /// Makes the table of this process, which is never freed. The threads' descriptors hold the
    /// eventfd `doorbell` under this number.
    pub fn new(doorbell: i32, entries: Entries) -> std::io::Result<&'static Self> {
        let table = Box::leak(Box::new(Self {
            blocks: [const { OnceLock::new() }; BLOCKS],
            requested: [const { AtomicU64::new(0) }; BLOCKS],
            summary: [const { AtomicU64::new(0) }; BLOCKS / 64],
            allocated: AtomicU32::new(0),
            agent_sleeps: AtomicU32::new(0),
            all_have_begun: AtomicBool::new(false),
            doorbell,
            entries,
            driver: OnceLock::new(),
        }));
        table.allocate(0)?;
        Ok(table)
    }

    /// By the agent: allocates the slot of this index, if that has not been done yet.
    ///
    /// # Panics
    /// The index is not below [`THREADS_MAX`].
    pub fn allocate(&self, index: u32) -> std::io::Result<()> {
        let first = index as usize / SLOTS_PER_BLOCK * SLOTS_PER_BLOCK;
        let block = &self.blocks[first / SLOTS_PER_BLOCK];
        if block.get().is_none() {
            let slots = Slot::allocate_block(first as u32, self.entries)?;
            let is_first = block.set(slots).is_ok();
            assert!(is_first, "only the agent allocates slots");
            self.allocated.fetch_max((first + SLOTS_PER_BLOCK) as u32, Ordering::SeqCst);
        }
        Ok(())
    }

    /// By the origin's agent: all nodes have begun.
    pub fn note_all_have_begun(&self) {
        self.all_have_begun.store(true, Ordering::Release);
    }

    /// Returns true if all nodes have begun. At the origin only.
    pub fn all_have_begun(&self) -> bool {
        self.all_have_begun.load(Ordering::Acquire)
    }

    /// Returns a slot that has been allocated.
    ///
    /// # Panics
    /// It has not.
    pub fn slot(&self, index: u32) -> &Slot {
        let block = self.blocks[index as usize / SLOTS_PER_BLOCK].get();
        &block.expect("the slot is allocated")[index as usize % SLOTS_PER_BLOCK]
    }

    /// Returns the slot of this index if it has been allocated.
    pub fn get(&self, index: u32) -> Option<&Slot> {
        let block = self.blocks.get(index as usize / SLOTS_PER_BLOCK)?.get()?;
        Some(&block[index as usize % SLOTS_PER_BLOCK])
    }

    /// Returns all slots that have been allocated.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        let blocks = self.allocated.load(Ordering::SeqCst) as usize / SLOTS_PER_BLOCK;
        self.blocks[..blocks].iter().filter_map(OnceLock::get).flat_map(|slots| slots.iter())
    }

    /// At the origin: returns the slot of the program's thread with this ID.
    pub fn slot_of_tid(&self, tid: i32) -> Option<&Slot> {
        let is_it = |slot: &&Slot| slot.live_tid() != 0 && slot.tid.load(Ordering::Relaxed) == tid;
        self.slots().find(is_it)
    }

    /// By the agent: from now on threads drive the engine with this function.
    ///
    /// # Panics
    /// There is one already.
    pub fn set_driver(&self, driver: Driver) {
        assert!(self.driver.set(driver).is_ok(), "a process has one agent");
    }

    /// By a thread: makes a request, and waits for the answer. On nodes other than the origin the
    /// thread drives the engine meanwhile, if nobody else does.
    pub fn request(&self, slot: &Slot, request: Request) -> i64 {
        self.store(slot, request);
        if !self.drive(slot, Awaited::Answer) {
            self.wake_agent();
        }
        slot.wait_for_answer()
    }

    /// By a thread that waits: drives the engine until the thread has what it waits for, or should
    /// sleep. Returns false if it could not drive.
    pub fn drive(&self, slot: &Slot, awaited: Awaited) -> bool {
        self.driver.get().is_some_and(|drive| drive(slot, awaited))
    }

    /// By a thread: makes a request that has no answer.
    pub fn post(&self, slot: &Slot, request: Request) {
        self.store(slot, request);
        self.wake_agent();
    }

    fn store(&self, slot: &Slot, request: Request) {
        slot.store_request(request);
        let word = slot.index as usize / SLOTS_PER_BLOCK;
        self.requested[word].fetch_or(1 << (slot.index % u64::BITS), Ordering::SeqCst);
        self.summary[word / 64].fetch_or(1 << (word % 64), Ordering::SeqCst);
    }

    fn wake_agent(&self) {
        if self.agent_sleeps.swap(0, Ordering::SeqCst) != 0 {
            let one = 1u64;
            let arguments = [self.doorbell as u64, std::ptr::from_ref(&one) as u64, 8, 0, 0, 0];
            // SAFETY: write(2) reads the 8 bytes of `one`. If the counter is full, it wakes the
            // agent anyway.
            unsafe { raw::call(libc::SYS_write as u64, arguments) };
        }
    }

    /// Returns the doorbell's descriptor.
    pub fn doorbell(&self) -> i32 {
        self.doorbell
    }

    /// Returns true if this is the doorbell's descriptor, which the program must not use.
    pub fn is_doorbell(&self, descriptor: i32) -> bool {
        descriptor == self.doorbell
    }

    /// By the agent: takes the next request, with the index of its slot.
    pub fn take(&self) -> Option<(u32, Request)> {
        loop {
            let is_set = |(_, summary): &(usize, &AtomicU64)| summary.load(Ordering::SeqCst) != 0;
            let (at, summary) = self.summary.iter().enumerate().find(is_set)?;
            let bit = summary.load(Ordering::SeqCst).trailing_zeros();
            let word = at * 64 + bit as usize;
            // A request that comes after this sets the bit again.
            summary.fetch_and(!(1 << bit), Ordering::SeqCst);
            let bits = self.requested[word].load(Ordering::SeqCst);
            if bits == 0 {
                continue;
            }
            let first = bits & bits.wrapping_neg();
            self.requested[word].fetch_and(!first, Ordering::SeqCst);
            if bits != first {
                summary.fetch_or(1 << bit, Ordering::SeqCst);
            }
            let slot = self.slot((word * SLOTS_PER_BLOCK) as u32 + first.trailing_zeros());
            return Some((slot.index, slot.take_request()));
        }
    }

    /// By the agent: it has handled a request that has no answer.
    ///
    /// # Panics
    /// The agent has taken none of this slot.
    pub fn release(&self, index: u32) {
        self.slot(index).release_request();
    }

    /// By the agent: announces that it will sleep. Returns false, and withdraws that, if there is
    /// a request.
    pub fn announce_sleep(&self) -> bool {
        self.agent_sleeps.store(1, Ordering::SeqCst);
        let is_empty = self.summary.iter().all(|bits| bits.load(Ordering::SeqCst) == 0);
        if !is_empty {
            self.end_sleep();
        }
        is_empty
    }

    /// By the agent: it does not sleep any more.
    pub fn end_sleep(&self) {
        self.agent_sleeps.store(0, Ordering::Relaxed);
    }
}
