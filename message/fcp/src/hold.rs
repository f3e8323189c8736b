//! Holds: who sends into a buffer holds its owner, so that the buffer is not cleared for
//! the next owner meanwhile.
//!
//! A hold is a word of the *sender's* entry in the member table: it says which member, of
//! which generation. The sender writes the hold, then looks whether that generation still
//! is there; a new owner changes the generation, then looks for holds. One of the two sees
//! the other (both looks and both writes are sequentially consistent), so a new owner that
//! finds no hold is alone. No lock, and nothing shared is written on the way of a message.
//!
//! The sender's write and look need a fence between them. Where all processes share a
//! kernel, the new owner makes it for them (`barrier`), and a sender's hold costs it two
//! plain stores and a load.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use sync::hold::Attempt;
pub use sync::hold::release;
use sync::word::Word64;

/// Somebody's stay in the window: the next one in the same entry has another generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The entry: the ring's `member`.
    pub index: u16,
    /// Goes up by one when the entry is taken, and when it is left.
    pub generation: u32,
}

impl Peer {
    /// As a word that is not zero.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index) << 1 | 1
    }

    /// Whom a word names, unless it is zero.
    pub(crate) fn parse(word: u64) -> Option<Self> {
        let peer = Self { index: (word >> 1) as u16, generation: (word >> 32) as u32 };
        (word & 1 != 0).then_some(peer)
    }
}

/// The state of an entry: whose, and on which machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// See [`Peer`].
    pub generation: u32,
    /// Which machine's kernel knows whether the member lives; 24 bits.
    pub host: u32,
    /// What the entry is.
    pub phase: Phase,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nobody's.
    Free = 0,
    /// Being made ready.
    Joining = 1,
    /// A member's.
    Present = 2,
}

impl State {
    /// As the entry holds it.
    pub fn word(self) -> u64 {
        let host = u64::from(self.host & 0x00ff_ffff);
        u64::from(self.generation) << 32 | host << 8 | self.phase as u64
    }

    /// What a word says. Unknown phases, of somebody who overwrites the table, are free.
    #[inline]
    pub fn parse(word: u64) -> Self {
        let phase = match word & 0xff {
            1 => Phase::Joining,
            2 => Phase::Present,
            _ => Phase::Free,
        };
        Self { generation: (word >> 32) as u32, host: (word as u32) >> 8, phase }
    }

    /// The state after this one.
    pub fn next(self, host: u32, phase: Phase) -> Self {
        Self { generation: self.generation.wrapping_add(1), host, phase }
    }
}

/// Holds `peer`, whose entry's state is `state`, by a free word. False if the word is in
/// use (`Err`) or the peer has gone.
///
/// `fence` is for models that do not know sequentially consistent accesses.
pub fn hold<W: Word64>(
    word: &W,
    state: &W,
    peer: Peer,
    fence: impl Fn(),
) -> Result<bool, WordInUse> {
    match sync::hold::attempt(word, peer.word(), fence, || is_present(state, peer)) {
        Attempt::Held => Ok(true),
        Attempt::Gone => Ok(false),
        Attempt::Busy => Err(WordInUse),
    }
}

/// As [`hold`], by a word that only one thread uses. `fence` is a full one, or, where who
/// takes entries makes one for all processes, the compiler's.
#[inline]
pub fn hold_alone<W: Word64>(word: &W, state: &W, peer: Peer, fence: impl Fn()) -> bool {
    sync::hold::attempt_alone(word, peer.word(), fence, || is_present(state, peer))
}

/// Whether `peer` is a member, behind the fence of a hold.
#[inline]
fn is_present<W: Word64>(state: &W, peer: Peer) -> bool {
    let now = State::parse(state.load(SeqCst));
    now.generation == peer.generation && now.phase == Phase::Present
}

/// The word holds somebody already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordInUse;

/// Takes an entry in state `from`: from now on its generation is a new one. Fails if
/// somebody else was faster.
pub fn take<W: Word64>(state: &W, from: u64, host: u32, fence: impl Fn()) -> Option<State> {
    let taken = State::parse(from).next(host, Phase::Joining);
    state.compare_exchange(from, taken.word()).ok()?;
    fence();
    Some(taken)
}

/// Whether a word holds entry `index`, in whatever generation.
pub fn holds<W: Word64>(word: &W, index: u16) -> bool {
    Peer::parse(word.load(SeqCst)).is_some_and(|peer| peer.index == index)
}

/// The entry, taken and ready, becomes a member's.
pub fn present<W: Word64>(state: &W, taken: State) {
    state.store(State { phase: Phase::Present, ..taken }.word(), Release);
}

/// Whether `peer` still has its entry.
pub fn has_entry<W: Word64>(state: &W, peer: Peer) -> bool {
    let now = State::parse(state.load(Acquire));
    now.generation == peer.generation && now.phase != Phase::Free
}
