//! The hold keeps an owner's memory in place while another task uses it (as a hazard pointer
//! does).
//!
//! The user announces the use in a word that belongs to the user, then checks that the owner is
//! alive. The side that reclaims the memory marks the owner as ended, then searches for holds. A
//! full fence on each side ensures that one of them sees the other. So a reclaimer that finds no
//! hold has the memory for itself. There is no lock, and no word has two writers.
//! `tests/hold_model.rs` models it with loom.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::word::Word64;

/// Result of an attempt to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The word holds the owner.
    Held,
    /// Another thread uses the word.
    Busy,
    /// The owner has ended.
    Gone,
}

/// Holds an owner by this word, if `lives` returns true. `value` names the owner and is not 0.
/// `fence` must complete an atomic exchange to a full fence.
#[inline]
pub fn attempt<W: Word64>(
    word: &W,
    value: u64,
    fence: impl Fn(),
    lives: impl FnOnce() -> bool,
) -> Attempt {
    if word.load(Relaxed) != 0 || word.compare_exchange(0, value).is_err() {
        return Attempt::Busy;
    }
    fence();
    if lives() {
        return Attempt::Held;
    }
    release(word);
    Attempt::Gone
}

/// Holds an owner as [`attempt`] does, by a word that only one thread uses. `fence` must be a full
/// fence. A compiler fence is enough if the reclaimer executes a barrier in all processes.
#[inline]
pub fn attempt_alone<W: Word64>(
    word: &W,
    value: u64,
    fence: impl Fn(),
    lives: impl FnOnce() -> bool,
) -> bool {
    word.store(value, Release);
    fence();
    let lives = lives();
    if !lives {
        release(word);
    }
    lives
}

/// Ends a hold. All accesses under the hold are ordered before.
#[inline]
pub fn release<W: Word64>(word: &W) {
    word.store(0, Release);
}

/// Returns true if one of the words holds the owner that `value` names. The caller must first mark
/// the owner as ended, then execute a full fence.
pub fn any_holds<'a, W: Word64 + 'a>(words: impl IntoIterator<Item = &'a W>, value: u64) -> bool {
    words.into_iter().any(|word| word.load(Acquire) == value)
}
