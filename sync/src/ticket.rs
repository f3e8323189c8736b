//! The ticket: one word on which one waiter waits for the end of one request.
//!
//! The word is 0 while the request is pending. The waiter sets `ASLEEP` before it sleeps. The
//! other side sets `DONE` by one atomic exchange, and does not touch the word afterwards. So the
//! waiter may then free the word. `tests/ticket_model.rs` models it with loom.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Instant;

use crate::futex;
use crate::word::Word32;

/// Flag: the request has ended.
const DONE: u32 = 1;
/// Flag: the waiter sleeps, or is about to.
const ASLEEP: u32 = 2;

/// Returns true if the request has ended. The waiter then sees all writes that the other side
/// made before [`finish`].
#[inline]
pub fn is_done<W: Word32>(word: &W) -> bool {
    word.load(Acquire) & DONE != 0
}

/// Announces that the waiter is about to sleep. Returns the value to sleep on, or `None` if the
/// request has ended.
pub fn about_to_sleep<W: Word32>(word: &W) -> Option<u32> {
    let before = word.fetch_or(ASLEEP, AcqRel);
    (before & DONE == 0).then_some(before | ASLEEP)
}

/// Ends the request. Returns true if the caller must wake the waiter.
#[inline]
pub fn finish<W: Word32>(word: &W) -> bool {
    word.swap(DONE, AcqRel) & ASLEEP != 0
}

/// A ticket, in memory that both sides reach.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Ticket(AtomicU32);

impl Ticket {
    /// Returns true if the request has ended; see [`is_done`].
    #[inline]
    pub fn is_done(&self) -> bool {
        is_done(&self.0)
    }

    /// Sleeps until the request ends or `until` has passed. May return early.
    pub fn sleep(&self, until: Option<Instant>) {
        if let Some(word) = about_to_sleep(&self.0) {
            futex::sleep(&self.0, word, until);
        }
    }

    /// Ends the request and wakes the waiter. The waiter may have freed the ticket when this
    /// returns.
    #[inline]
    pub fn finish(&self) {
        if finish(&self.0) {
            futex::wake(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_sleeps_until_the_request_ends() {
        let ticket = Ticket::default();
        std::thread::scope(|scope| {
            scope.spawn(|| ticket.finish());
            while !ticket.is_done() {
                ticket.sleep(None);
            }
        });
        ticket.sleep(None);
    }
}
