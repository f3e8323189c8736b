//! Holds: a task that works in another task's memory keeps that memory mapped, and its ID taken.
//!
//! A thread writes the identity that it holds into a word of its own task's export area, then
//! checks that the other task lives (`sync::hold`). The watcher announces an end, then reads the
//! holds. It reclaims memory and ID only if there is none. So one of them sees the other: a thread
//! that holds a task that has ended releases it at once. A hold ends with its own task, so no
//! death makes one last. The watcher reads all words that were ever used: their count is raised
//! before a word is written.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

pub use sync::hold::Attempt;
use sync::hold::{any_holds, attempt, release};
use sync::word::fence_after_exchange;

use crate::area::Control;
use crate::export;
use crate::identity::Identity;
use crate::this::ThisTask;

/// Number of holds that a task can have at once.
pub const WORDS: usize = export::HOLDS;

/// Words for short holds: a delegatee's work, a message of libfabric's.
pub const WORK: Range<usize> = 0..11;

/// Words for long holds: answers that are owed, the ranks of a communicator.
pub const KEEP: Range<usize> = 15..WORDS;

/// While it exists, the memory of the held task stays mapped, and its ID is not given away.
#[derive(Debug)]
pub struct Hold(&'static AtomicU64);

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        release(self.0);
    }
}

impl ThisTask {
    /// Holds the task by one of these words of the calling task. Errors: [`Attempt::Gone`] if it
    /// has ended, [`Attempt::Busy`] if all words are in use.
    #[inline]
    pub fn hold(&self, whom: Identity, words: Range<usize>) -> Result<Hold, Attempt> {
        self.hold_while(whom, words, || self.control.is_living(whom))
    }

    /// Holds a task once more, also if it has ended. The caller must already hold it by an earlier
    /// word until this returns. (The watcher reads the words in order: when one is cleared, a
    /// later one has been written.) Error: all words are in use.
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
            match attempt(word, whom.word(), fence_after_exchange, &lives) {
                Attempt::Held => return Ok(Hold(word)),
                Attempt::Busy => {}
                Attempt::Gone => return Err(Attempt::Gone),
            }
        }
        Err(Attempt::Busy)
    }

    /// Returns true if other tasks hold this one in the given range of their hold words. A task
    /// that does not hold it yet may begin to at any time.
    pub fn is_held(&self, words: Range<usize>) -> bool {
        held_by(self.control, self.id, words)
    }
}

/// Returns true if a living task holds the present or last task with this ID.
pub fn is_held(control: Control, id: u32) -> bool {
    held_by(control, id, 0..WORDS)
}

fn held_by(control: Control, id: u32, words: Range<usize>) -> bool {
    let generation = control.slot(id).generation.load(Acquire) as u32;
    let value = Identity { id, generation }.word();
    fence(SeqCst);
    (0..control.tasks_high()).any(|other| {
        let slot = control.slot(other);
        // A task that has ended holds nothing, even if others hold it.
        let lives = other != id && slot.is_announced() && slot.pid.load(SeqCst) != 0;
        lives && slot.export_mapped.load(Acquire) == 1 && {
            let holds = export::holds(&control, other);
            // The count is read before each word: a hold may move on to a later word.
            let used = |number: &usize| *number < holds.used().load(SeqCst) as usize;
            let words = words.clone().take_while(used);
            any_holds(words.map(|number| holds.word(number)), value)
        }
    })
}
