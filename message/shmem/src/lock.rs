//! Distributed locks (MCS: Mellor-Crummey, Scott, *Algorithms for scalable synchronization on
//! shared-memory multiprocessors*, 1991).
//!
//! A lock is a symmetric `long`, zero at first. Its lower half in PE 0 names the last PE in the
//! queue. The upper half in each PE is that PE's entry in the queue: whether it waits, and the PE
//! behind it. So a waiter polls its own memory, and a lock is given away with one write.

use std::ffi::c_int;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;

use crate::atomic::{Op, change, perform};
use crate::context;
use crate::job;
use crate::rma;
use crate::wait;

/// The PE whose copy has the end of the queue.
const HOME: c_int = 0;
/// In an entry: its PE waits. The other bits are the number of the next PE plus 1.
const WAITS: u32 = 1 << 31;

/// The two halves of a lock.
#[repr(C, align(8))]
pub struct Lock {
    last: AtomicU32,
    entry: AtomicU32,
}

/// Performs an operation on a half of the lock in a PE.
fn at(function: &str, op: Op, half: &AtomicU32, value: u32, compare: u32, pe: c_int) -> u32 {
    let object = std::ptr::from_ref(half).cast_mut().cast();
    perform(function, context::default(), op, object, [value, compare], pe)
}

/// The same, without the former value.
fn alter(function: &str, op: Op, half: &AtomicU32, value: u32, pe: c_int) {
    let object = std::ptr::from_ref(half).cast_mut().cast();
    change(function, context::default(), op, object, value, pe);
}

/// Waits until this PE has the lock.
pub fn set(function: &str, lock: &Lock) {
    let job = job::get(function);
    let me = job.me as u32 + 1;
    at(function, Op::Set, &lock.entry, WAITS, 0, job.me as c_int);
    let before = at(function, Op::Swap, &lock.last, me, 0, HOME);
    if before == 0 {
        // A PE may have entered its number meanwhile.
        alter(function, Op::And, &lock.entry, !WAITS, job.me as c_int);
        return;
    }
    alter(function, Op::Or, &lock.entry, me, before as c_int - 1);
    wait::until(job, || (lock.entry.load(Acquire) & WAITS == 0).then_some(()));
}

/// Takes the lock if it is free. Returns true if this PE has it now.
pub fn test(function: &str, lock: &Lock) -> bool {
    let job = job::get(function);
    let me = job.me as u32 + 1;
    at(function, Op::Set, &lock.entry, 0, 0, job.me as c_int);
    at(function, Op::CompareSwap, &lock.last, me, 0, HOME) == 0
}

/// Gives the lock to the next waiter, or frees it.
pub fn clear(function: &str, lock: &Lock) {
    let job = job::get(function);
    rma::quiet();
    let me = job.me as u32 + 1;
    if lock.entry.load(Acquire) & !WAITS == 0
        && at(function, Op::CompareSwap, &lock.last, 0, me, HOME) == me
    {
        return;
    }
    // A PE is about to enter its number.
    let next = wait::until(job, || {
        let next = lock.entry.load(Acquire) & !WAITS;
        (next != 0).then_some(next)
    });
    alter(function, Op::And, &lock.entry, !WAITS, next as c_int - 1);
}
