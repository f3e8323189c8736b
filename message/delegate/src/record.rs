//! The record of a request: one cache line in the requester's segment, into which the
//! delegatee writes the answer.
//!
//! Its state goes from pending, by way of asleep if the requester waits in the kernel, to
//! done; the delegatee takes one step, an exchange, and from then on does not touch the
//! record. The steps are generic, so that loom can model them (`tests/record_model.rs`).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicI64, AtomicU32};

use sync::futex;
use sync::word::Word32;

/// Not yet answered.
pub const PENDING: u32 = 0;
/// Answered.
pub const DONE: u32 = 1;
/// A bit: the requester sleeps, or is about to.
pub const ASLEEP: u32 = 2;

/// What a requester sees and the delegatee changes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Record {
    /// See above.
    pub state: AtomicU32,
    /// The requester wants it cancelled.
    pub cancel: AtomicU32,
    /// What came of it: not negative, or a negative errno.
    pub result: AtomicI64,
}

/// Whether it is answered: then what the delegatee did is seen.
#[inline]
pub fn is_done<W: Word32>(state: &W) -> bool {
    state.load(Acquire) & DONE != 0
}

/// Says that the requester is about to sleep. Returns what to sleep on, unless it is
/// answered.
pub fn about_to_sleep<W: Word32>(state: &W) -> Option<u32> {
    let before = state.fetch_or(ASLEEP, AcqRel);
    (before & DONE == 0).then_some(before | ASLEEP)
}

/// Says that it is answered. Returns whether the requester must be woken.
#[inline]
pub fn finish<W: Word32>(state: &W) -> bool {
    state.swap(DONE, AcqRel) & ASLEEP != 0
}

impl Record {
    /// Answers. Then the record is the requester's again, and may be gone.
    #[inline]
    pub fn give(&self, result: i64) {
        self.result.store(result, Relaxed);
        if finish(&self.state) {
            futex::wake(&self.state);
        }
    }

    /// The answer, if it is there.
    #[inline]
    pub fn answer(&self) -> Option<i64> {
        is_done(&self.state).then(|| self.result.load(Relaxed))
    }
}
