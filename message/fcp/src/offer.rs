//! Offers: a large message that the receiver copies straight out of the sender's memory.
//!
//! The sender says in a short message where the bytes are, and waits for the answer; they
//! must not change meanwhile. Both meet at one word of the sender's entry, which holds the
//! offer's number and how far it is:
//!
//! ```text
//! none ─offer→ open ─accept→ reading ─answer→ done │ unreadable
//!                └─withdraw→ none
//! ```
//! Either the sender withdraws or the receiver reads, never both. If the sender dies, the
//! receiver learns it after its copy, and has no message; if the receiver dies, the sender
//! learns that it has ended.
//!
//! Between tasks of one space, `process_vm_readv` is one copy in user space, by Nagaya's
//! gate; between ordinary processes, the kernel copies. Where that is not allowed, the
//! receiver says so, and the sender sends parts.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;

use crate::member::{Entry, Life, Membership};
use crate::remote;
use sync::futex;
use sync::word::Word64;

const OPEN: u64 = 1;
const READING: u64 = 2;
const DONE: u64 = 3;
const UNREADABLE: u64 = 4;
/// Bits of the state in the word; above them, the offer's number.
const STATE_BITS: u32 = 4;
/// An offer's number: 20 bits count, above them is the sender's generation.
const COUNT_BITS: u32 = 20;

/// The number of the `count`th offer of a sender of this generation.
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

/// Takes it back, unless the receiver reads already. Whether the bytes are ours again.
pub fn withdraw<W: Word64>(word: &W, number: u64) -> bool {
    word.compare_exchange(word_of(number, OPEN), 0).is_ok()
}

/// Accepts it, if it still stands: the bytes are to be read now.
pub fn accept<W: Word64>(word: &W, number: u64) -> bool {
    word.compare_exchange(word_of(number, OPEN), word_of(number, READING)).is_ok()
}

/// The receiver's answer: whether it has read the bytes, or cannot.
pub fn answer<W: Word64>(word: &W, number: u64, done: bool) {
    let state = if done { DONE } else { UNREADABLE };
    // If it is not there any more, the sender is not, either.
    let _ = word.compare_exchange(word_of(number, READING), word_of(number, state));
}

/// The answer, once it is there.
pub fn answered<W: Word64>(word: &W, number: u64) -> Option<bool> {
    match word.load(Acquire) {
        now if now == word_of(number, DONE) => Some(true),
        now if now == word_of(number, UNREADABLE) => Some(false),
        _ => None,
    }
}

/// The half of the word that tells the state: what the kernel compares for who waits.
pub(crate) fn futex(word: &AtomicU64) -> &AtomicU32 {
    futex::low_half(word)
}

/// What a message of [`Kind::Remote`](sync::ring::Kind::Remote) ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The sender's address of the bytes.
    pub address: u64,
    /// How many.
    pub length: u64,
    /// The offer's number.
    pub number: u64,
    /// The sender's entry.
    pub sender: u16,
}

impl Terms {
    /// Bytes in a message.
    pub const SIZE: usize = 32;

    pub fn bytes(self) -> [u8; Self::SIZE] {
        let words = [self.address, self.length, self.number, self.sender.into()];
        let bytes = words.map(u64::to_le_bytes);
        std::array::from_fn(|i| bytes[i / 8][i % 8])
    }

    pub fn parse(bytes: [u8; Self::SIZE]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self { address: word(0), length: word(8), number: word(16), sender: word(24) as u16 }
    }
}

/// Why an offer could not be read. There is no message then, or it comes in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The sender has withdrawn it, or has ended.
    Withdrawn,
    /// The system does not let us read the sender's memory; the sender is told.
    Unreadable,
}

/// A message that is to be read from its sender's memory. The sender waits for it;
/// dropped, it is taken for read.
#[derive(Debug)]
pub struct Offer {
    membership: Arc<Membership>,
    terms: Terms,
    /// Who offers.
    entry: Entry,
}

impl Offer {
    /// The offer that a message tells of.
    pub(crate) fn new(membership: &Arc<Membership>, terms: Terms) -> Option<Self> {
        let entry = membership.members().entry(terms.sender)?;
        usize::try_from(terms.length).ok()?;
        Some(Self { membership: membership.clone(), terms, entry })
    }

    /// Bytes of the message.
    pub fn length(&self) -> usize {
        self.terms.length as usize
    }

    /// Copies the message, as much of it as there is room for.
    pub fn pull(self, to: &mut [u8]) -> Result<(), Lost> {
        let members = self.membership.members();
        let word = members.offer(self.terms.sender);
        if !accept(word, self.terms.number) {
            return Err(Lost::Withdrawn);
        }
        let length = to.len().min(self.length());
        let read = match members.shares_pids_with(self.terms.sender) {
            true => remote::read(self.entry.pid, self.terms.address as usize, &mut to[..length]),
            false => Err(Errno::PERM),
        };
        // A PID may be another's now. It was the sender's all along if it still lives.
        if members.life(self.entry.peer) == Life::Gone {
            return Err(Lost::Withdrawn);
        }
        answer(word, self.terms.number, read.is_ok());
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
