//! The hold: a user of somebody's memory says so in a word of its own, so that the memory is not
//! given away meanwhile.
//!
//! The user writes the word, then checks that the owner still exists. Whoever takes the memory
//! back first ends the owner, then looks for holds. A full fence on each side makes one of them
//! see the other: a taker that finds no hold is alone. There is no lock, and a hold writes nothing
//! that others write. `tests/hold_model.rs` models it with loom.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::word::Word64;

/// The outcome of an attempt to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It holds.
    Held,
    /// Another thread uses the word.
    Busy,
    /// The owner has ended.
    Gone,
}

/// Holds by this word the owner that `value`, not 0, names, if it `lives`. `fence` is a full
/// fence behind an atomic exchange.
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

/// As [`attempt`], by a word that only one thread uses. `fence` is a full fence; where the taker
/// makes one in all processes, a fence for the compiler.
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

/// Ends a hold. All accesses under it come before.
#[inline]
pub fn release<W: Word64>(word: &W) {
    word.store(0, Release);
}

/// Whether one of the words holds the owner that `value` names. The caller has ended the owner
/// before, and a full fence stands in between.
pub fn any_holds<'a, W: Word64 + 'a>(words: impl IntoIterator<Item = &'a W>, value: u64) -> bool {
    words.into_iter().any(|word| word.load(Acquire) == value)
}
