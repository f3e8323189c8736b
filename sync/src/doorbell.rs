//! The doorbell wakes waiters that wait for several things: a count of rings, and a mark that
//! somebody sleeps.
//!
//! A waiter first announces that it is about to sleep, then polls everything once more, and
//! sleeps on the count as it was before. A producer publishes, then looks for sleepers. There is a
//! full fence on each side, so one of them sees the other. `tests/doorbell_model.rs` models it
//! with loom.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::time::{Duration, Instant};

use crate::futex;
use crate::word::{Word32, fence_after_exchange};

/// A doorbell. It lies in its waiters' memory, where others ring it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Doorbell {
    rings: AtomicU32,
    sleepers: AtomicU32,
}

/// Announces that a waiter is about to sleep. Returns the count to sleep on.
pub fn about_to_sleep<W: Word32>(rings: &W, sleepers: &W, fence: impl Fn()) -> u32 {
    // First: a producer that sees the mark afterwards rings once more.
    let before = rings.load(Acquire);
    sleepers.fetch_or(1, SeqCst);
    fence();
    before
}

/// Rings if anybody sleeps. Returns whether the caller must wake the sleepers. The caller has
/// published before.
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
    /// See [`about_to_sleep`].
    pub fn about_to_sleep(&self) -> u32 {
        about_to_sleep(&self.rings, &self.sleepers, || fence(SeqCst))
    }

    /// Sleeps until it rings after `rings` was read, or for `at_most`.
    pub fn sleep(&self, rings: u32, at_most: Duration) {
        futex::sleep(&self.rings, rings, Some(Instant::now() + at_most));
    }

    /// Wakes all sleepers. The caller has published by an atomic exchange, which on some
    /// processors is a full fence.
    #[inline]
    pub fn ring(&self) {
        if ring(&self.rings, &self.sleepers, fence_after_exchange) {
            futex::wake(&self.rings);
        }
    }
}
