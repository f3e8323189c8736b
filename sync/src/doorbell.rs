//! The doorbell wakes waiters that wait for several things. It consists of a count of rings and a
//! flag that is set while a waiter sleeps.
//!
//! A waiter announces that it is about to sleep, and polls everything once more. Then it sleeps
//! on the earlier value of the count. A producer publishes, then reads the flag. A full fence on
//! each side ensures that one of them sees the other. `tests/doorbell_model.rs` models it with
//! loom.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, compiler_fence, fence};
use std::time::{Duration, Instant};

use crate::barrier;
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
pub fn about_to_sleep<W: Word32>(rings: &W, sleepers: &W, mut fence: impl FnMut()) -> u32 {
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

    /// Announces that a waiter is about to sleep, on a doorbell whose producers use
    /// [`ring_unfenced`](Self::ring_unfenced). All of them must be registered for
    /// [`barrier::everywhere`]. Returns none if the fence is not possible; then the waiter must not
    /// sleep for long.
    pub fn about_to_sleep_unfenced(&self) -> Option<u32> {
        let mut is_fenced = false;
        let fence = || is_fenced = barrier::everywhere();
        let rings = about_to_sleep(&self.rings, &self.sleepers, fence);
        is_fenced.then_some(rings)
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

    /// Wakes all sleepers that used [`about_to_sleep_unfenced`](Self::about_to_sleep_unfenced). The
    /// caller must publish before this call, by a store of any kind. If nobody sleeps, this is one
    /// load.
    #[inline]
    pub fn ring_unfenced(&self) {
        if ring(&self.rings, &self.sleepers, || compiler_fence(SeqCst)) {
            futex::wake(&self.rings);
        }
    }
}
