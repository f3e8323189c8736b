//! The receive buffer of the paper's first protocols, FCP and FCP plus: a queue of words
//! that senders and receiver change under a lock (Kikuchi et al., §3.4, Table 4).
//!
//! ```text
//! 7 words   lock (2) │ words of data │ head │ tail │ messages, sleeps │ whose
//! message   3 words: length and flags │ sender │ group; then the payload, whole words
//! ```
//! Positions count up and come round. The tail is what makes a message there: a sender
//! that dies before it leaves nothing, and who gets the lock after it counts the messages
//! anew ([`Queue::repair`]).
//!
//! This file knows no system call and no clock; the words are a [`Words`]', which a test
//! counts (`tests/counts.rs`).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::ring::{Word32, Word64};

/// Words of management, the lock's two included.
pub const MANAGEMENT: u32 = 7;
/// Words of a message's header.
pub const HEADER: u32 = 3;

/// The words of management, behind the lock.
const SIZE: u32 = 2;
const HEAD: u32 = 3;
const TAIL: u32 = 4;
const MESSAGES: u32 = 5;
const OWNER: u32 = 6;

/// In the word of messages: the receiver sleeps.
const SLEEPS: u32 = 1 << 31;
/// In the length: a message begins, or ends, with this.
const FIRST: u32 = 1 << 31;
const LAST: u32 = 1 << 30;

/// The words of one buffer, zero at first.
pub trait Words {
    /// Its words.
    type Word: Word32;
    /// Its lock's.
    type Lock: Word64;
    /// The lock.
    fn lock(&self) -> &Self::Lock;
    /// Word `n` from the start of management, 2 to 6.
    fn management(&self, n: u32) -> &Self::Word;
    /// Word `n` of the data.
    fn data(&self, n: u32) -> &Self::Word;
    /// Writes payload from word `n` of the data on, which does not come round.
    fn write(&self, n: u32, bytes: &[u8]);
    /// Reads payload from word `n` of the data on, which does not come round.
    fn read(&self, n: u32, bytes: &mut [u8]);
}

/// What a message's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes.
    pub length: u32,
    /// Who sends it.
    pub source: u32,
    /// To which group that belongs.
    pub group: u32,
    /// Whether it begins a message, and whether it ends it.
    pub ends: [bool; 2],
}

/// Longest payload of one header.
pub const LENGTH_MAX: u32 = LAST - 1;

/// A receive buffer. Whoever calls has its lock.
#[derive(Debug)]
pub struct Queue<'a, W>(pub &'a W);

/// Why nothing was put into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPut {
    /// No room now.
    Full,
    /// It is not, or no longer, the expected owner's.
    Gone,
}

impl<W: Words> Queue<'_, W> {
    /// Makes the buffer its owner's, `id`, with so many words of data, a power of two.
    pub fn own(&self, id: u32, words: u32) {
        assert!(words.is_power_of_two());
        for n in [HEAD, TAIL, MESSAGES] {
            self.0.management(n).store(0, Relaxed);
        }
        self.0.management(OWNER).store(id, Relaxed);
        self.0.management(SIZE).store(words, Release);
    }

    /// Puts a message into the buffer of `owner`. Whether the receiver sleeps, and must be
    /// woken.
    pub fn put(&self, owner: u32, head: Head, payload: &[u8]) -> Result<bool, NotPut> {
        let word = |n| self.0.management(n).load(Acquire);
        if word(OWNER) != owner {
            return Err(NotPut::Gone);
        }
        let (size, tail) = (word(SIZE), word(TAIL));
        let words = HEADER + (payload.len() as u32).div_ceil(4);
        if tail.wrapping_sub(word(HEAD)) + words > size {
            return Err(NotPut::Full);
        }
        let [first, last] = head.ends;
        let length = head.length | if first { FIRST } else { 0 } | if last { LAST } else { 0 };
        for (n, value) in (0..).zip([length, head.source, head.group]) {
            self.0.data(tail.wrapping_add(n) & (size - 1)).store(value, Relaxed);
        }
        let at = tail.wrapping_add(HEADER) & (size - 1);
        let to_end = payload.len().min((size - at) as usize * 4);
        self.0.write(at, &payload[..to_end]);
        self.0.write(0, &payload[to_end..]);
        let messages = word(MESSAGES);
        self.0.management(TAIL).store(tail.wrapping_add(words), Release);
        self.0.management(MESSAGES).store((messages & !SLEEPS) + 1, Release);
        Ok(messages & SLEEPS != 0)
    }

    /// Whether there is a message. Needs no lock.
    pub fn has_next(&self) -> bool {
        self.0.management(MESSAGES).load(Acquire) & !SLEEPS != 0
    }

    /// The word on which the receiver sleeps.
    pub fn messages(words: &W) -> &W::Word {
        words.management(MESSAGES)
    }

    /// The header of the next message, if there is one.
    pub fn next(&self) -> Option<Head> {
        if !self.has_next() {
            return None;
        }
        let (size, head) = (self.size()?, self.0.management(HEAD).load(Acquire));
        let word = |n: u32| self.0.data(head.wrapping_add(n) & (size - 1)).load(Relaxed);
        let (length, source, group) = (word(0), word(1), word(2));
        let ends = [length & FIRST != 0, length & LAST != 0];
        Some(Head { length: length & LENGTH_MAX, source, group, ends })
    }

    /// Takes the next message, which [`Queue::next`] has just told, and copies the first
    /// bytes of its payload. False if no sender would have written that.
    pub fn take(&self, next: Head, to: &mut [u8]) -> bool {
        let Some(size) = self.size() else { return false };
        let [head, messages] = [HEAD, MESSAGES].map(|n| self.0.management(n).load(Acquire));
        let words = HEADER + next.length.div_ceil(4);
        if words > size || to.len() > next.length as usize {
            return false;
        }
        let at = head.wrapping_add(HEADER) & (size - 1);
        let (front, back) = to.split_at_mut(to.len().min((size - at) as usize * 4));
        self.0.read(at, front);
        self.0.read(0, back);
        self.0.management(HEAD).store(head.wrapping_add(words), Release);
        self.0.management(MESSAGES).store(messages.wrapping_sub(1), Release);
        true
    }

    /// Says that the receiver sleeps, if there is no message. What to sleep on, and what
    /// that is.
    pub fn sleep(&self) -> Option<(&W::Word, u32)> {
        let word = self.0.management(MESSAGES);
        if word.load(Acquire) & !SLEEPS != 0 {
            return None;
        }
        word.store(SLEEPS, Release);
        Some((word, SLEEPS))
    }

    /// Counts the messages anew: somebody died with the lock.
    pub fn repair(&self) {
        let Some(size) = self.size() else { return };
        let [mut at, tail] = [HEAD, TAIL].map(|n| self.0.management(n).load(Acquire));
        let mut messages = 0;
        while at != tail && tail.wrapping_sub(at) <= size {
            let length = self.0.data(at & (size - 1)).load(Relaxed) & LENGTH_MAX;
            at = at.wrapping_add(HEADER + length.div_ceil(4));
            messages += 1;
        }
        self.0.management(MESSAGES).store(messages, Release);
    }

    /// Words of data. They may have been overwritten, but must be inside.
    fn size(&self) -> Option<u32> {
        Some(self.0.management(SIZE).load(Acquire)).filter(|size| size.is_power_of_two())
    }
}
