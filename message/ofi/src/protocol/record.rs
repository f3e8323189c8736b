//! The record of a large message: a line in the sender's memory by which sender and receiver
//! meet.
//!
//! The receiver copies the message out of the sender's memory, then puts the record onto a stack
//! of the sender's port, from which the sender takes all at once. Both copy if the receiver says
//! so: then the message is cut into `pieces`. (A message whose receive the sender has found
//! himself, `posted`, has no record: he sees by its pieces when it is done.)
//!
//! ```text
//! offered ─share→ shared ─join→ joined ─close→ done      (on the stack at share and close)
//!    │                └────────close────────→ done      (on the stack since share)
//!    └──────────────────────close──────────→ done       (on the stack at close)
//! ```
//! It is the receiver who closes, when all is copied. The steps are generic, so that loom can
//! model them (`tests/record_model.rs`).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use sync::pieces::Pieces;
use sync::word::{Word32, Word64};

use crate::protocol::parts::Parts;

const OFFERED: u32 = 0;
const SHARED: u32 = 1;
const JOINED: u32 = 2;
const DONE: u32 = 3;

/// The record.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Record {
    /// The next in the stack.
    pub next: AtomicU64,
    state: AtomicU32,
    /// What the receiver could not do: an errno.
    pub error: AtomicU32,
    /// How far it is, if the receiver shares it.
    pub pieces: Pieces,
    /// Where they are to go: written by the receiver before it shares.
    pub to: AtomicU64,
    /// How many bytes of the message.
    pub bytes: AtomicU64,
    /// Which of the sender's messages it is; the sender's affair.
    pub number: AtomicU64,
    /// Address of the sender's port (`port::Head`).
    pub port: u64,
    /// The message.
    pub parts: Parts,
}

/// Puts a record onto a stack.
pub fn push<W: Word64>(head: &W, next: &W, record: u64) {
    let mut now = head.load(Relaxed);
    loop {
        next.store(now, Relaxed);
        match head.compare_exchange(now, record) {
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// Takes all that is on the stack: the topmost, or 0.
pub fn take_all<W: Word64>(head: &W) -> u64 {
    loop {
        let now = head.load(Relaxed);
        if now == 0 || head.compare_exchange(now, 0).is_ok() {
            return now;
        }
    }
}

/// What the one who takes a record off the stack is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// Help to copy.
    Help,
    /// The message has been received.
    Done,
}

/// The sender has taken the record off its stack.
pub fn join<W: Word32>(state: &W) -> Called {
    // Only the sender makes it joined, and nothing else becomes of shared but done.
    if state.load(Acquire) == SHARED && exchange(state, SHARED, JOINED) {
        return Called::Help;
    }
    Called::Done
}

/// The receiver is done with it. Whether it has to be put onto the stack; if not, it must not be
/// touched any more.
pub fn close<W: Word32>(state: &W) -> bool {
    state.swap(DONE, AcqRel) != SHARED
}

/// Says that the sender may help; then the record goes onto the stack.
pub fn share<W: Word32>(state: &W) {
    state.store(SHARED, std::sync::atomic::Ordering::Release);
}

/// A compare-and-swap of what only two change, of whom the other only swaps: if it was done in
/// between, that stays.
fn exchange<W: Word32>(state: &W, from: u32, to: u32) -> bool {
    let before = state.swap(to, AcqRel);
    if before == from {
        return true;
    }
    state.swap(before, AcqRel);
    false
}

impl Record {
    /// Makes it that of a new message.
    pub fn begin(&mut self, number: u64, port: u64, parts: Parts) {
        *self = Self { number: AtomicU64::new(number), port, parts, ..Self::default() };
        debug_assert_eq!(self.state.load(Relaxed), OFFERED);
    }

    /// See [`join`].
    pub fn join(&self) -> Called {
        join(&self.state)
    }

    /// See [`close`].
    pub fn close(&self) -> bool {
        close(&self.state)
    }

    /// See [`share`]; `bytes` are to go to `to`.
    pub fn share(&self, to: u64, bytes: u64) {
        self.to.store(to, Relaxed);
        self.bytes.store(bytes, Relaxed);
        share(&self.state);
    }
}
