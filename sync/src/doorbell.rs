//! The doorbell wakes waiters that wait for several things. It consists of a count of rings and a
//! flag that is set while a waiter sleeps.
//!
//! A waiter announces that it is about to sleep, and polls everything once more. Then it sleeps
//! on the earlier value of the count. A producer publishes, then reads the flag. A full fence on
//! each side ensures that one of them sees the other. `tests/doorbell_model.rs` models it with
//! loom.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::time::{Duration, Instant};

use crate::futex;
use crate::word::{Word32, fence_after_exchange};

/// A doorbell. It lies in the memory of its waiters; other tasks ring it there.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Doorbell {
    rings: AtomicU32,
    sleepers: AtomicU32,
}

/// Announces that a waiter is about to sleep. Returns the count to sleep on.
pub fn about_to_sleep<W: Word32>(rings: &W, sleepers: &W, fence: impl Fn()) -> u32 {
    // Read the count before the flag is set: a producer that sees the flag changes the count.
    let before = rings.load(Acquire);
    sleepers.fetch_or(1, SeqCst);
    fence();
    before
}

/// Rings if a waiter sleeps. Returns true if the caller must wake the sleepers. The caller must
/// publish before this call.
#[inline]
pub fn ring<W: Word32>(rings: &W, sleepers: &W, fence: impl Fn()) -> bool {
    fence();
    if sleepers.load(Relaxed) == 0 || sleepers.swap(0, AcqRel) == 0 {
        return false;
    }
    rings.fetch_add(1, Release);
    true
}

impl Doorbell {
    /// Announces that a waiter is about to sleep; see [`about_to_sleep`].
    pub fn about_to_sleep(&self) -> u32 {
        about_to_sleep(&self.rings, &self.sleepers, || fence(SeqCst))
    }

    /// Sleeps until the count differs from `rings`, or for `at_most`.
    pub fn sleep(&self, rings: u32, at_most: Duration) {
        futex::sleep(&self.rings, rings, Some(Instant::now() + at_most));
    }

    /// Wakes all sleepers. The caller must publish by an atomic exchange before this call; on
    /// x86-64 that exchange is the full fence.
    #[inline]
    pub fn ring(&self) {
        if ring(&self.rings, &self.sleepers, fence_after_exchange) {
            futex::wake(&self.rings);
        }
    }
}
