//! Waking who sleeps for what comes by several ways: a word that counts, and how many sleep.
//!
//! Who is about to sleep says so, then looks at everything once more, and sleeps on the count as
//! it was before that; who has brought something looks whether anybody sleeps, behind a full
//! fence on each side. `tests/doorbell_model.rs` has it under loom.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, compiler_fence, fence};
use std::time::{Duration, Instant};

use crate::ring::Word32;
use crate::wait;

/// In a task's own memory, where others ring it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Doorbell {
    rings: AtomicU32,
    sleepers: AtomicU32,
}

/// Says that somebody is about to sleep. Returns what to sleep on.
pub fn about_to_sleep<W: Word32>(rings: &W, sleepers: &W, fence: impl Fn()) -> u32 {
    // First: who takes note of us afterwards rings once more.
    let before = rings.load(Acquire);
    sleepers.fetch_or(1, SeqCst);
    fence();
    before
}

/// Rings, if anybody sleeps: then the caller wakes them. What they are woken for was published
/// before.
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

    /// Sleeps until it rings after `rings` was read, or for so long.
    pub fn sleep(&self, rings: u32, at_most: Duration) {
        wait::sleep(&self.rings, rings, Some(Instant::now() + at_most));
    }

    /// Wakes all who sleep. The caller has published what for by an atomic exchange, which on
    /// some processors is a full fence.
    #[inline]
    pub fn ring(&self) {
        let fence = || match cfg!(target_arch = "x86_64") {
            true => compiler_fence(SeqCst),
            false => fence(SeqCst),
        };
        if ring(&self.rings, &self.sleepers, fence) {
            wait::wake(&self.rings);
        }
    }
}
