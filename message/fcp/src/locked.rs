//! The receive buffer of the paper's first protocols, FCP and FCP plus: a queue of words
//! that senders and receiver change under a lock (Kikuchi et al., §3.4, Table 4).
//!
//! ```text
//! 7 words   lock (2) │ words of data │ head │ tail │ messages, who sleeps │ whose
//! message   3 words: length and kind │ sender │ group; then the payload, whole words
//! ```
//! Positions count up and come round. The tail is what makes a message there: a sender
//! that dies before it leaves nothing, and who gets the lock after it counts the messages
//! anew ([`Queue::repair`]).
//!
//! Only the receiver moves the head, so it reads a message without the lock, while others
//! put theirs behind it; it takes the lock to give the room back.
//!
//! This file knows no system call and no clock; the words are a [`Words`]', which a test
//! counts (`tests/counts.rs`).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sync::ring::Kind;
use sync::word::{Word32, Word64};

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

/// The word of messages when there are none, and the receiver sleeps.
pub const ASLEEP: u32 = 1 << 31;
/// In that word: senders wait for room. How many messages there are.
const WAITS: u32 = 1 << 30;
const COUNT: u32 = WAITS - 1;
/// In the length: this is a part of a message.
const PART: u32 = 1 << 31;

/// The words of one buffer, zero at first.
pub trait Words {
    /// Its words.
    type Word: Word32;
    /// Its lock's.
    type Lock: Word64;
    /// Words of data, a power of two.
    fn words(&self) -> u32;
    /// The lock.
    fn lock(&self) -> &Self::Lock;
    /// Word `n` from the start of management, 2 to 6.
    fn management(&self, n: u32) -> &Self::Word;
    /// Word `n` of the data.
    fn data(&self, n: u32) -> &Self::Word;
    /// Writes payload from byte `at` of the data on, which does not come round.
    fn write(&self, at: u32, bytes: &[u8]);
    /// Reads payload from byte `at` of the data on, which does not come round.
    fn read(&self, at: u32, bytes: &mut [u8]);
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
    /// [`Kind::Inline`] or [`Kind::Part`].
    pub kind: Kind,
}

/// Longest payload of one header.
pub const LENGTH_MAX: u32 = PART - 1;

/// A message in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Its header.
    pub head: Head,
    /// Where it begins.
    position: u32,
}

/// A receive buffer. Who changes it has its lock.
#[derive(Debug)]
pub struct Queue<'a, W>(pub &'a W);

/// Why nothing was put into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPut {
    /// No room now.
    Full,
    /// It would not fit into an empty buffer.
    TooLong,
    /// It is not, or no longer, the expected owner's.
    Gone,
}

/// The buffer holds what no sender writes: some process has overwritten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// Words of a message of so many bytes.
fn words_of(length: u32) -> u32 {
    HEADER + length.div_ceil(4)
}

impl<W: Words> Queue<'_, W> {
    /// Makes the buffer its owner's, `id`.
    pub fn own(&self, id: u32) {
        let words = self.0.words();
        assert!(words.is_power_of_two());
        for n in [HEAD, TAIL, MESSAGES] {
            self.0.management(n).store(0, Relaxed);
        }
        self.0.management(OWNER).store(id, Relaxed);
        self.0.management(SIZE).store(words, Release);
    }

    /// Puts the concatenation of `parts` into the buffer of `owner`. Whether the receiver
    /// sleeps, and must be woken.
    pub fn put(&self, owner: u32, head: Head, parts: &[&[u8]]) -> Result<bool, NotPut> {
        let word = |n| self.0.management(n).load(Acquire);
        if word(OWNER) != owner {
            return Err(NotPut::Gone);
        }
        let tail = word(TAIL);
        let size = self.size().map_err(|Corrupt| NotPut::Gone)?;
        let words = words_of(head.length);
        if words > size || head.length > LENGTH_MAX {
            return Err(NotPut::TooLong);
        }
        if tail.wrapping_sub(word(HEAD)) + words > size {
            return Err(NotPut::Full);
        }
        let length = head.length | if head.kind == Kind::Part { PART } else { 0 };
        for (n, value) in (0..).zip([length, head.source, head.group]) {
            self.0.data(tail.wrapping_add(n) & (size - 1)).store(value, Relaxed);
        }
        let mut at = (tail.wrapping_add(HEADER) & (size - 1)) * 4;
        for part in parts {
            let (front, back) = part.split_at(part.len().min((size * 4 - at) as usize));
            self.0.write(at, front);
            self.0.write(0, back);
            at = (at + part.len() as u32) & (size * 4 - 1);
        }
        let messages = word(MESSAGES);
        self.0.management(TAIL).store(tail.wrapping_add(words), Release);
        self.0.management(MESSAGES).store((messages & !ASLEEP) + 1, Release);
        Ok(messages & ASLEEP != 0)
    }

    /// Says that senders wait, unless the head has moved since it was `head`. Whether they
    /// can sleep until [`Queue::room`] changes: then they are woken.
    pub fn wait_for_room(&self, head: u32) -> bool {
        let word = |n| self.0.management(n).load(Acquire);
        let waits = word(HEAD) == head && word(MESSAGES) & COUNT != 0;
        if waits {
            self.0.management(MESSAGES).store(word(MESSAGES) | WAITS, Release);
        }
        waits
    }

    /// The head: the word that changes when there is room.
    pub fn room(words: &W) -> &W::Word {
        words.management(HEAD)
    }

    /// The word on which the receiver sleeps.
    pub fn messages(words: &W) -> &W::Word {
        words.management(MESSAGES)
    }

    /// The next message, if there is one. For the receiver, which needs no lock.
    pub fn next(&self) -> Result<Option<Message>, Corrupt> {
        if self.0.management(MESSAGES).load(Acquire) & COUNT == 0 {
            return Ok(None);
        }
        let (size, position) = (self.size()?, self.0.management(HEAD).load(Acquire));
        let word = |n: u32| self.0.data(position.wrapping_add(n) & (size - 1)).load(Relaxed);
        let (length, source, group) = (word(0), word(1), word(2));
        let kind = if length & PART != 0 { Kind::Part } else { Kind::Inline };
        let head = Head { length: length & LENGTH_MAX, source, group, kind };
        if words_of(head.length) > size {
            return Err(Corrupt);
        }
        Ok(Some(Message { head, position }))
    }

    /// Copies part of its payload, `offset` bytes in. For the receiver, which needs no lock.
    pub fn read(&self, message: &Message, offset: usize, to: &mut [u8]) {
        let size = self.0.words();
        assert!(offset + to.len() <= message.head.length as usize);
        let start = message.position.wrapping_add(HEADER) & (size - 1);
        let at = (start * 4 + offset as u32) & (size * 4 - 1);
        let (front, back) = to.split_at_mut(to.len().min((size * 4 - at) as usize));
        self.0.read(at, front);
        self.0.read(0, back);
    }

    /// Done with the message: its room is free. Whether senders wait for it, and must be
    /// woken.
    pub fn take(&self, message: &Message) -> bool {
        let messages = self.0.management(MESSAGES).load(Acquire);
        let words = words_of(message.head.length);
        self.0.management(HEAD).store(message.position.wrapping_add(words), Release);
        self.0.management(MESSAGES).store((messages & !WAITS).wrapping_sub(1), Release);
        messages & WAITS != 0
    }

    /// Says that the receiver sleeps, if there is no message: until [`Queue::messages`] is not
    /// [`ASLEEP`]. Whether it can.
    pub fn sleep(&self) -> bool {
        let word = self.0.management(MESSAGES);
        if word.load(Acquire) & COUNT != 0 {
            return false;
        }
        word.store(ASLEEP, Release);
        true
    }

    /// Counts the messages anew: somebody died with the lock. Who sleeps or waits is to be
    /// woken.
    pub fn repair(&self) {
        let Ok(size) = self.size() else { return };
        let [mut at, tail] = [HEAD, TAIL].map(|n| self.0.management(n).load(Acquire));
        let mut messages = 0;
        while at != tail && tail.wrapping_sub(at) <= size {
            let length = self.0.data(at & (size - 1)).load(Relaxed) & LENGTH_MAX;
            at = at.wrapping_add(words_of(length));
            messages += 1;
        }
        self.0.management(MESSAGES).store(messages, Release);
    }

    /// Words of data, as the buffer says.
    fn size(&self) -> Result<u32, Corrupt> {
        let size = self.0.management(SIZE).load(Acquire);
        if size == self.0.words() { Ok(size) } else { Err(Corrupt) }
    }
}
