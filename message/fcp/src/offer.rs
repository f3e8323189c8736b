//! Offers, a rendezvous: the receiver copies a large message directly out of the sender's memory.
//!
//! The sender sends a short message with the location of the bytes (ready to send), and waits for
//! the answer; the bytes must not change meanwhile. Both meet at one word of the sender's entry,
//! which holds the offer's number and state:
//!
//! ```text
//! none ─offer→ open ─accept, share→ reading │ shared ─answer→ done │ unreadable
//!                └─withdraw→ none
//! ```
//! Either the sender withdraws the offer or the receiver reads, never both. If the sender dies, the
//! receiver notices it after its copy, and has no message. If the receiver dies, the sender notices
//! that.
//!
//! Between tasks of one space, Nagaya's gate makes `process_vm_readv` one copy in user space, and
//! the sender copies, too, if the receiver shares a long message with it (`together`). Between
//! ordinary processes, the kernel copies. If the receiver may not read the sender's memory,
//! it answers so, and the sender sends parts.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;

use crate::member::{Entry, Life, Membership};
use crate::remote;
use crate::together;
use sync::futex;
use sync::word::Word64;

const OPEN: u64 = 1;
const READING: u64 = 2;
const DONE: u64 = 3;
const UNREADABLE: u64 = 4;
const SHARED: u64 = 5;
/// Bits of the state in the word. The offer's number is above them.
const STATE_BITS: u32 = 4;
/// Bits of the count in an offer's number. The sender's generation is above them.
const COUNT_BITS: u32 = 20;

/// Returns the number of offer `count` of a sender of this generation.
pub fn number(generation: u32, count: u32) -> u64 {
    u64::from(generation) << COUNT_BITS | u64::from(count & ((1 << COUNT_BITS) - 1))
}

fn word_of(number: u64, state: u64) -> u64 {
    number << STATE_BITS | state
}

/// Makes the offer.
pub fn offer<W: Word64>(word: &W, number: u64) {
    word.store(word_of(number, OPEN), Release);
}

/// Withdraws the offer. Returns false if the receiver already reads.
pub fn withdraw<W: Word64>(word: &W, number: u64) -> bool {
    word.compare_exchange(word_of(number, OPEN), 0).is_ok()
}

/// Accepts the offer: the receiver reads next. Returns false if it was withdrawn.
pub fn accept<W: Word64>(word: &W, number: u64) -> bool {
    word.compare_exchange(word_of(number, OPEN), word_of(number, READING)).is_ok()
}

/// Accepts the offer: the receiver has exposed its buffer, and both copy. Returns false if it was
/// withdrawn.
pub fn share<W: Word64>(word: &W, number: u64) -> bool {
    word.compare_exchange(word_of(number, OPEN), word_of(number, SHARED)).is_ok()
}

/// Returns true if the receiver has exposed its buffer for this offer, and has not answered.
pub fn is_shared<W: Word64>(word: &W, number: u64) -> bool {
    word.load(Acquire) == word_of(number, SHARED)
}

/// Answers the offer: `done` if the receiver has the bytes.
pub fn answer<W: Word64>(word: &W, number: u64, done: bool) {
    let state = if done { DONE } else { UNREADABLE };
    // The word has other states only if the sender has left its entry.
    for from in [READING, SHARED] {
        if word.compare_exchange(word_of(number, from), word_of(number, state)).is_ok() {
            return;
        }
    }
}

/// Returns the answer, if there is one.
pub fn answered<W: Word64>(word: &W, number: u64) -> Option<bool> {
    match word.load(Acquire) {
        now if now == word_of(number, DONE) => Some(true),
        now if now == word_of(number, UNREADABLE) => Some(false),
        _ => None,
    }
}

/// Returns the half of the word with the state, which the kernel compares for a sleeper.
pub(crate) fn futex(word: &AtomicU64) -> &AtomicU32 {
    futex::low_half(word)
}

/// The end of a message of [`Kind::Remote`](sync::ring::Kind::Remote).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Address of the bytes in the sender.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// The offer's number.
    pub number: u64,
    /// Entry of the sender.
    pub sender: u16,
}

impl Terms {
    /// Length in a message, in bytes.
    pub const SIZE: usize = 32;

    /// Returns the terms as a message carries them.
    pub fn bytes(self) -> [u8; Self::SIZE] {
        let words = [self.address, self.length, self.number, self.sender.into()];
        let bytes = words.map(u64::to_le_bytes);
        std::array::from_fn(|i| bytes[i / 8][i % 8])
    }

    /// Parses terms.
    pub fn parse(bytes: [u8; Self::SIZE]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self { address: word(0), length: word(8), number: word(16), sender: word(24) as u16 }
    }
}

/// The reason why an offer could not be read. Then there is no message, or it comes in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The sender has withdrawn it, or has ended.
    Withdrawn,
    /// The system does not let the receiver read the sender's memory. The sender has the answer.
    Unreadable,
}

/// A message in its sender's memory. The sender waits until it is read; dropping the offer counts
/// as reading it.
#[derive(Debug)]
pub struct Offer {
    membership: Arc<Membership>,
    terms: Terms,
    /// Entry of the sender.
    entry: Entry,
}

impl Offer {
    /// Returns the offer with these terms.
    pub(crate) fn new(membership: &Arc<Membership>, terms: Terms) -> Option<Self> {
        let entry = membership.members().entry(terms.sender)?;
        usize::try_from(terms.length).ok()?;
        Some(Self { membership: membership.clone(), terms, entry })
    }

    /// Returns the length of the message in bytes.
    pub fn length(&self) -> usize {
        self.terms.length as usize
    }

    /// Copies the message, as much of it as `to` holds.
    pub fn pull(self, to: &mut [u8]) -> Result<(), Lost> {
        let members = self.membership.members();
        let (word, number) = (members.offer(self.terms.sender), self.terms.number);
        let length = to.len().min(self.length());
        let to = &mut to[..length];
        let read = |at: usize, to: &mut [u8]| {
            remote::read(self.entry.pid, (self.terms.address as usize).wrapping_add(at), to)
        };
        let tell = |_| {
            let is_shared = share(word, number);
            futex::wake(futex(word));
            is_shared
        };
        let read = match together::pull(&self.membership, self.entry, 0, to, tell, read) {
            Some(read) => read,
            None if !accept(word, number) => return Err(Lost::Withdrawn),
            None if members.shares_pids_with(self.terms.sender) => read(0, to),
            None => Err(Errno::PERM),
        };
        // The PID may name another process by now. It was the sender's if the sender still lives.
        if members.life(self.entry.peer) == Life::Gone {
            return Err(Lost::Withdrawn);
        }
        answer(word, number, read.is_ok());
        futex::wake(futex(word));
        read.map_err(|_| Lost::Unreadable)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let word = self.membership.members().offer(self.terms.sender);
        if accept(word, self.terms.number) {
            answer(word, self.terms.number, true);
            futex::wake(futex(word));
        }
    }
}
