//! The receive buffer of FCP and FCP plus: a queue of words that senders and the receiver change
//! under a lock (Kikuchi et al., §3.4, Table 4).
//!
//! ```text
//! 7 words   lock (2) │ data words │ head │ tail │ message count and sleepers │ owner's ID
//! message   3 words: length and kind │ sender │ group; then the payload, whole words
//! ```
//! Head and tail count up; a position in the data is their remainder. A message exists once the
//! tail covers it: a sender that dies before leaves nothing. The next holder of the lock counts
//! the messages again ([`Queue::repair`]).
//!
//! Only the receiver moves the head. So it reads a message without the lock while senders append
//! others, and takes the lock only to release the room.
//!
//! This file makes no system call and reads no clock. The words are generic ([`Words`]), so that
//! `counts` can count accesses.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sync::ring::Kind;
use sync::word::{Word32, Word64};

/// Words of management, including the two of the lock.
pub const MANAGEMENT: u32 = 7;
/// Words of a message's header.
pub const HEADER: u32 = 3;

/// The words of management behind the lock.
const SIZE: u32 = 2;
const HEAD: u32 = 3;
const TAIL: u32 = 4;
const MESSAGES: u32 = 5;
const OWNER: u32 = 6;

/// Value of the message word while there is no message and the receiver sleeps.
pub const ASLEEP: u32 = 1 << 31;
/// In the message word: the flag of senders that wait for room, and the message count.
const WAITS: u32 = 1 << 30;
const COUNT: u32 = WAITS - 1;
/// In the length: the flag of a part of a message.
const PART: u32 = 1 << 31;

/// The words of one buffer. They are zero at first.
pub trait Words {
    /// A word.
    type Word: Word32;
    /// The lock's word.
    type Lock: Word64;
    /// Returns the number of data words, a power of two.
    fn words(&self) -> u32;
    /// Returns the lock.
    fn lock(&self) -> &Self::Lock;
    /// Returns word `n` of the management, 2 to 6.
    fn management(&self, n: u32) -> &Self::Word;
    /// Returns word `n` of the data.
    fn data(&self, n: u32) -> &Self::Word;
    /// Writes payload from byte `at` of the data on. It does not wrap around.
    fn write(&self, at: u32, bytes: &[u8]);
    /// Reads payload from byte `at` of the data on. It does not wrap around.
    fn read(&self, at: u32, bytes: &mut [u8]);
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Length of the payload, in bytes.
    pub length: u32,
    /// ID of the sender.
    pub source: u32,
    /// Group of the sender.
    pub group: u32,
    /// [`Kind::Inline`] or [`Kind::Part`].
    pub kind: Kind,
}

/// Longest payload of one message, in bytes.
pub const LENGTH_MAX: u32 = PART - 1;

/// A message in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Its header.
    pub head: Head,
    /// Position of its first word.
    position: u32,
}

/// A receive buffer. A caller that changes it holds its lock.
#[derive(Debug)]
pub struct Queue<'a, W>(pub &'a W);

/// The reason why a message was not put into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPut {
    /// No room now.
    Full,
    /// The message would not fit into an empty buffer.
    TooLong,
    /// The buffer is not, or no longer, the expected owner's.
    Gone,
}

/// The buffer holds data that no sender writes: a process has overwritten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// Returns the words of a message of `length` bytes.
fn words_of(length: u32) -> u32 {
    HEADER + length.div_ceil(4)
}

impl<W: Words> Queue<'_, W> {
    /// Makes the buffer empty and gives it to the owner `id`.
    pub fn own(&self, id: u32) {
        let words = self.0.words();
        assert!(words.is_power_of_two(), "{words} data words");
        for n in [HEAD, TAIL, MESSAGES] {
            self.0.management(n).store(0, Relaxed);
        }
        self.0.management(OWNER).store(id, Relaxed);
        self.0.management(SIZE).store(words, Release);
    }

    /// Puts the concatenation of `parts` into the buffer of `owner`. Returns true if the receiver
    /// sleeps and must be woken.
    pub fn put(&self, owner: u32, head: Head, parts: &[&[u8]]) -> Result<bool, NotPut> {
        debug_assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), head.length as usize);
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

    /// Announces that senders wait, unless the head has moved since it was `head`. Returns true
    /// if they may sleep until [`Queue::room`] changes; the receiver then wakes them.
    pub fn wait_for_room(&self, head: u32) -> bool {
        let word = |n| self.0.management(n).load(Acquire);
        let waits = word(HEAD) == head && word(MESSAGES) & COUNT != 0;
        if waits {
            self.0.management(MESSAGES).store(word(MESSAGES) | WAITS, Release);
        }
        waits
    }

    /// Returns the head: the word that changes when there is room.
    pub fn room(words: &W) -> &W::Word {
        words.management(HEAD)
    }

    /// Returns the message word, on which the receiver sleeps.
    pub fn messages(words: &W) -> &W::Word {
        words.management(MESSAGES)
    }

    /// Returns the next message. For the receiver, which needs no lock.
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

    /// Copies part of a message's payload, `offset` bytes in. For the receiver, which needs no
    /// lock.
    pub fn read(&self, message: &Message, offset: usize, to: &mut [u8]) {
        let size = self.0.words();
        assert!(offset + to.len() <= message.head.length as usize, "outside the message");
        let start = message.position.wrapping_add(HEADER) & (size - 1);
        let at = (start * 4 + offset as u32) & (size * 4 - 1);
        let (front, back) = to.split_at_mut(to.len().min((size * 4 - at) as usize));
        self.0.read(at, front);
        self.0.read(0, back);
    }

    /// Removes the message and releases its room. Returns true if senders wait for room and must
    /// be woken.
    pub fn take(&self, message: &Message) -> bool {
        let messages = self.0.management(MESSAGES).load(Acquire);
        let words = words_of(message.head.length);
        self.0.management(HEAD).store(message.position.wrapping_add(words), Release);
        self.0.management(MESSAGES).store((messages & !WAITS).wrapping_sub(1), Release);
        messages & WAITS != 0
    }

    /// Announces that the receiver sleeps until [`Queue::messages`] is not [`ASLEEP`]. Returns
    /// false if there is a message.
    pub fn sleep(&self) -> bool {
        let word = self.0.management(MESSAGES);
        if word.load(Acquire) & COUNT != 0 {
            return false;
        }
        word.store(ASLEEP, Release);
        true
    }

    /// Counts the messages again after a holder of the lock died. The caller wakes all that sleep
    /// or wait.
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

    /// Returns the number of data words, checked against the buffer's own number.
    fn size(&self) -> Result<u32, Corrupt> {
        let size = self.0.management(SIZE).load(Acquire);
        if size == self.0.words() { Ok(size) } else { Err(Corrupt) }
    }
}
