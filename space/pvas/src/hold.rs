//! Holds: a task that works in another's memory keeps it there, and keeps it that task's.
//!
//! A thread writes whom it holds into a word of its own task's export area, then looks
//! whether the other still lives. The watcher announces an end, then looks for holds, and
//! takes memory and ID back only when there is none. Both do so behind a full fence, so one
//! of them sees the other: who holds a task that has ended lets go at once. A hold ends with
//! its task, so nobody's death keeps anything. The watcher looks at the words that were ever
//! used: the count is raised before a word is written, so who would see the word sees it.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use crate::control::Control;
use crate::export;
use crate::this::ThisTask;

/// Holds that a task can have at once.
pub const WORDS: usize = export::HOLDS;

/// Those of them for what is over soon: a delegatee's work, a message of libfabric's.
pub const WORK: Range<usize> = 0..11;

/// Those of them for what lasts: answers that are owed, the ranks of a communicator.
pub const KEEP: Range<usize> = 15..WORDS;

/// One of the tasks that had an ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The ID.
    pub id: u32,
    /// Which of them, modulo 2³².
    pub generation: u32,
}

impl Identity {
    /// As it stands in a word; never 0.
    fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.id + 1)
    }
}

/// A word that says whom somebody holds; 0: nobody.
pub trait Word {
    /// Sets it, if nobody uses it.
    fn set(&self, value: u64) -> bool;
    /// What it says.
    fn get(&self) -> u64;
    /// Says nobody, after all that was done under the hold.
    fn clear(&self);
    /// A full fence.
    fn fence();
}

impl Word for AtomicU64 {
    #[inline]
    fn set(&self, value: u64) -> bool {
        self.load(Relaxed) == 0 && self.compare_exchange(0, value, SeqCst, Relaxed).is_ok()
    }
    #[inline]
    fn get(&self) -> u64 {
        self.load(Acquire)
    }
    #[inline]
    fn clear(&self) {
        self.store(0, Release);
    }
    #[inline]
    fn fence() {
        // Behind the exchange above, which to this processor is one already.
        if !cfg!(target_arch = "x86_64") {
            fence(SeqCst);
        }
    }
}

/// What became of an attempt to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It holds.
    Held,
    /// Another thread uses the word.
    Busy,
    /// Whom it was to hold has ended.
    Gone,
}

/// Holds by this word whom `value` names, if he `lives`.
#[inline]
pub fn attempt<W: Word>(word: &W, value: u64, lives: impl FnOnce() -> bool) -> Attempt {
    if !word.set(value) {
        return Attempt::Busy;
    }
    W::fence();
    if lives() {
        return Attempt::Held;
    }
    word.clear();
    Attempt::Gone
}

/// Whether one of the words holds whom `value` names. The end of who is held was announced
/// before, and a full fence stands in between.
pub fn any_holds<'a, W: Word + 'a>(words: impl IntoIterator<Item = &'a W>, value: u64) -> bool {
    words.into_iter().any(|word| word.get() == value)
}

/// While it lives, the memory of the held task stays, and its ID is nobody else's.
#[derive(Debug)]
pub struct Hold(&'static AtomicU64);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl Control {
    /// Who has this ID now, if somebody does.
    #[inline]
    pub fn identity(&self, id: u32) -> Option<Identity> {
        if id >= self.tasks_max() {
            return None;
        }
        let generation = self.slot(id).generation.load(Acquire) as u32;
        let identity = Identity { id, generation };
        self.is_living(identity).then_some(identity)
    }

    /// Whether the task is still to begin, as far as this machine has heard: word of another
    /// machine's tasks may come after what they have written. `bits` of its generation are known.
    pub fn is_to_come(&self, whom: Identity, bits: u32) -> bool {
        if whom.id >= self.tasks_max() {
            return false;
        }
        let known = self.slot(whom.id).generation.load(Acquire) as u32;
        let ahead = whom.generation.wrapping_sub(known) << (u32::BITS - bits);
        ahead.cast_signed() > 0
    }

    /// Whether the task lives: its end has not been announced.
    #[inline]
    pub fn is_living(&self, whom: Identity) -> bool {
        let slot = self.slot(whom.id);
        slot.pid.load(SeqCst) != 0
            && slot.is_announced()
            && slot.generation.load(Acquire) as u32 == whom.generation
    }
}

impl ThisTask {
    /// Holds the task by one of these words of ours. `Err` says whether it has ended; else
    /// all words are in use.
    #[inline]
    pub fn hold(&self, whom: Identity, words: Range<usize>) -> Result<Hold, Attempt> {
        self.hold_while(whom, words, || self.control.is_living(whom))
    }

    /// Holds once more whom the caller holds by a word before these until this returns,
    /// whether that one lives or not. (Who looks for holds reads the words in order: as one
    /// is cleared, a later one has been written.) `Err`: all words are in use.
    pub fn hold_on(&self, whom: Identity, words: Range<usize>) -> Result<Hold, Attempt> {
        self.hold_while(whom, words, || true)
    }

    #[inline]
    fn hold_while(
        &self,
        whom: Identity,
        words: Range<usize>,
        lives: impl Fn() -> bool,
    ) -> Result<Hold, Attempt> {
        let holds = export::holds(&self.control, self.id);
        for number in words {
            let word = holds.word(number);
            if holds.used().load(Relaxed) as usize <= number {
                holds.used().fetch_max(number as u32 + 1, SeqCst);
            }
            match attempt(word, whom.word(), &lives) {
                Attempt::Held => return Ok(Hold(word)),
                Attempt::Busy => {}
                Attempt::Gone => return Err(Attempt::Gone),
            }
        }
        Err(Attempt::Busy)
    }

    /// Whether others hold us by one of these words of theirs. Who has not held us before
    /// may do so at any time.
    pub fn is_held(&self, words: Range<usize>) -> bool {
        held_by(self.control, self.id, words)
    }
}

/// Whether a living task holds the one that has, or had at last, this ID.
pub(crate) fn is_held(control: Control, id: u32) -> bool {
    held_by(control, id, 0..WORDS)
}

fn held_by(control: Control, id: u32, words: Range<usize>) -> bool {
    let generation = control.slot(id).generation.load(Acquire) as u32;
    let value = Identity { id, generation }.word();
    fence(SeqCst);
    (0..control.tasks_high()).any(|other| {
        let slot = control.slot(other);
        // Who has ended holds nobody, even where others hold him.
        let lives = other != id && slot.is_announced() && slot.pid.load(SeqCst) != 0;
        lives && slot.export_mapped.load(Acquire) == 1 && {
            let holds = export::holds(&control, other);
            // How many are in use is asked before each: a hold may move on to a later word.
            let used = |number: &usize| *number < holds.used().load(SeqCst) as usize;
            let words = words.clone().take_while(used);
            any_holds(words.map(|number| holds.word(number)), value)
        }
    })
}
