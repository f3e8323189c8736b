//! The record of a large message: a line in the sender's memory for the handshake with the
//! receiver.
//!
//! The receiver copies the message out of the sender's memory. Then it pushes the record onto a
//! stack in the sender's port, from which the sender takes all records at once. The receiver may
//! share the copy: then the message is cut into `pieces`, and both sides copy. (A message that has
//! claimed its receive, see `posted`, has no record. Its sender reads in the pieces that all is
//! copied.)
//!
//! ```text
//! sent ─share→ shared ─join→ joined ─close→ done      (on the stack at share and close)
//!  │              └─────────close─────────→ done      (on the stack since share)
//!  └───────────────────close──────────────→ done      (on the stack at close)
//! ```
//! The receiver closes the record when all is copied. The steps are generic, so that loom can model
//! them (`tests/record_model.rs`).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use sync::pieces::Pieces;
use sync::word::{Word32, Word64};

use crate::protocol::parts::Parts;

const SENT: u32 = 0;
const SHARED: u32 = 1;
const JOINED: u32 = 2;
const DONE: u32 = 3;

/// A record.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Record {
    /// Address of the next record on the stack.
    pub next: AtomicU64,
    state: AtomicU32,
    /// The errno of the receiver's copy, or 0.
    pub error: AtomicU32,
    /// The progress of a shared copy.
    pub pieces: Pieces,
    /// Address of the receiver's buffer. Written before the receiver shares.
    pub to: AtomicU64,
    /// Number of bytes to copy. Written before the receiver shares.
    pub bytes: AtomicU64,
    /// The number of the message, for the sender.
    pub number: AtomicU64,
    /// Address of the sender's port (`port::Head`).
    pub port: u64,
    /// The sender's buffer.
    pub parts: Parts,
}

/// Pushes a record onto a stack.
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

/// Takes all records off a stack. Returns the topmost, or 0.
pub fn take_all<W: Word64>(head: &W) -> u64 {
    loop {
        let now = head.load(Relaxed);
        if now == 0 || head.compare_exchange(now, 0).is_ok() {
            return now;
        }
    }
}

/// The step of a sender that has taken a record off its stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    /// Help to copy.
    Help,
    /// Complete the message.
    Done,
}

/// Takes the sender's step, after the record was taken off the stack.
pub fn join<W: Word32>(state: &W) -> Called {
    // Only the sender writes JOINED, and SHARED is followed only by JOINED or DONE.
    if state.load(Acquire) == SHARED && exchange(state, SHARED, JOINED) {
        return Called::Help;
    }
    Called::Done
}

/// Takes the receiver's last step. Returns true if the receiver must push the record. Otherwise the
/// receiver must not touch it any more.
pub fn close<W: Word32>(state: &W) -> bool {
    state.swap(DONE, AcqRel) != SHARED
}

/// Lets the sender help. The receiver pushes the record afterwards.
pub fn share<W: Word32>(state: &W) {
    state.store(SHARED, std::sync::atomic::Ordering::Release);
}

/// A compare-and-swap of a word that only two sides change, of which the other only swaps. A swap
/// of the other side in between stays.
fn exchange<W: Word32>(state: &W, from: u32, to: u32) -> bool {
    let before = state.swap(to, AcqRel);
    if before == from {
        return true;
    }
    state.swap(before, AcqRel);
    false
}

impl Record {
    /// Initialises the record for a message. No other task knows its address yet.
    pub fn begin(&mut self, number: u64, port: u64, parts: Parts) {
        *self = Self { number: AtomicU64::new(number), port, parts, ..Self::default() };
        debug_assert_eq!(self.state.load(Relaxed), SENT);
    }

    /// See [`join`].
    pub fn join(&self) -> Called {
        join(&self.state)
    }

    /// See [`close`].
    pub fn close(&self) -> bool {
        close(&self.state)
    }

    /// See [`share`]. The sender copies `bytes` bytes to address `to`.
    pub fn share(&self, to: u64, bytes: u64) {
        self.to.store(to, Relaxed);
        self.bytes.store(bytes, Relaxed);
        share(&self.state);
    }
}
