//! The memory of collective operations: a symmetric area behind the objects of the program's heap.
//!
//! Each team has a slot in the area of each of its PEs, not always the same one. PEs find each
//! other's slots by the address of the own area and the distance between the heaps, as they find
//! all symmetric objects. So operations between nodes can use put and atomic operations.

use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use outbox::outbox::Outbox;

use crate::job::{Job, Peer};
use crate::team::FIRST_SLOT;

/// Number of slots: most teams and active sets that a PE is in at a time.
pub const SLOTS: usize = 1024;

/// Rounds of a barrier of nodes: at most 2^16 nodes.
pub const ROUNDS_MAX: usize = 16;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// The memory of a team in one of its PEs. Zero is the initial value of all of it. Behind it are
/// two words for each PE of the team.
#[repr(C)]
pub struct Slot {
    /// What the PE publishes to those of its node.
    pub outbox: Outbox,
    /// The rounds of a barrier of nodes, each written by one PE.
    pub rounds: [AtomicU64; ROUNDS_MAX],
}

/// Returns the size of a slot, in a job of `pes` PEs.
const fn slot_bytes(pes: usize) -> usize {
    (size_of::<Slot>() + 2 * size_of::<u64>() * pes).next_multiple_of(LINE)
}

/// Returns the size of the words of PEs at the begin of the area.
const fn head_bytes(pes: usize) -> usize {
    (size_of::<u64>() * pes).next_multiple_of(LINE)
}

/// Returns the size of the area, in a job of `pes` PEs.
pub const fn bytes(pes: usize) -> usize {
    (head_bytes(pes) + SLOTS * slot_bytes(pes)).next_multiple_of(PAGE)
}

/// Returns the address of this PE's area: the end of its symmetric memory.
fn start(job: &Job) -> usize {
    job.heap.start + job.heap.bytes - bytes(job.n)
}

/// Asks the kernel for small pages, since most of the area is never touched.
pub fn prepare(job: &Job) {
    let at = ptr::with_exposed_provenance_mut(start(job).next_multiple_of(PAGE));
    // SAFETY: the advice concerns this PE's area. Its failure has no effect.
    unsafe { libc::madvise(at, bytes(job.n) - PAGE, libc::MADV_NOHUGEPAGE) };
}

fn word(at: usize) -> &'static AtomicU64 {
    // SAFETY: the callers pass the address of an aligned word in this PE's area, which is never
    // unmapped, and which all access as an atomic.
    unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(at) }
}

/// Returns the word by which a PE announces its slot for an active set.
pub fn greeting(job: &Job, pe: usize) -> &'static AtomicU64 {
    assert!(pe < job.n, "a PE of the job");
    word(start(job) + pe * size_of::<u64>())
}

/// Returns the address of a slot in this PE.
fn at(job: &Job, slot: usize) -> usize {
    assert!(slot < SLOTS, "slot {slot}");
    start(job) + head_bytes(job.n) + slot * slot_bytes(job.n)
}

/// Returns a slot of this PE. For another PE, it is the symmetric object.
pub fn slot(job: &Job, slot: usize) -> &'static Slot {
    // SAFETY: a slot lies there, which is zero at first and never unmapped.
    unsafe { &*ptr::with_exposed_provenance::<Slot>(at(job, slot)) }
}

/// Returns one of the two words of a PE of the team in a slot.
pub fn slot_word(job: &Job, slot: usize, pe: usize, parity: usize) -> &'static AtomicU64 {
    assert!(pe < job.n && parity < 2, "a PE of the team");
    word(at(job, slot) + size_of::<Slot>() + (2 * pe + parity) * size_of::<u64>())
}

/// Returns the outbox in a slot of a PE of this node.
pub fn outbox(f: &str, job: &Job, slot: usize, peer: &Peer) -> &'static Outbox {
    let here = ptr::with_exposed_provenance::<u8>(at(job, slot));
    let there = job.reach(f, here, size_of::<Slot>(), peer);
    // SAFETY: all PEs have the same layout of their areas, which they never unmap.
    unsafe { &(*there.cast_const().cast::<Slot>()).outbox }
}

/// The slots of this PE that no team uses.
struct Pool {
    /// The first slot that no team has used yet.
    next: usize,
    /// Slots of ended teams, and the number of PEs that must leave them.
    free: Vec<(usize, u32)>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { next: FIRST_SLOT, free: Vec::new() });

/// Takes a slot for a new team. None if all are in use.
pub fn take(job: &Job) -> Option<usize> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let is_free = |&(number, others): &(usize, u32)| slot(job, number).outbox.has_been_left(others);
    if let Some(free) = pool.free.iter().position(is_free) {
        let (number, _) = pool.free.swap_remove(free);
        let slot = slot(job, number);
        slot.outbox.reset();
        let words =
            (0..job.n).flat_map(|pe| [0, 1].map(|parity| slot_word(job, number, pe, parity)));
        slot.rounds.iter().chain(words).for_each(|word| word.store(0, Relaxed));
        return Some(number);
    }
    let number = pool.next;
    (number < SLOTS).then(|| {
        pool.next += 1;
        number
    })
}

/// Frees a slot whose outbox `others` PEs know, for reuse.
pub fn give(slot: usize, others: u32) {
    POOL.lock().unwrap_or_else(PoisonError::into_inner).free.push((slot, others));
}
