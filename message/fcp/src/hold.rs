//! Holds: a sender holds the owner of a receive buffer, so that the buffer is not cleared for the
//! next owner in the middle of a message.
//!
//! A hold is a word in the *sender's* entry of the member table. It names a member and its
//! generation. The sender stores the hold, then loads the generation; a new owner changes the
//! generation, then looks for holds. One of the two sees the other, because these accesses are
//! sequentially consistent. So a new owner that finds no hold has the buffer alone. No lock is
//! taken, and a sender writes nothing that others write.
//!
//! The sender needs a fence between its store and its load. If all processes share a kernel, the
//! new owner makes that fence for them (`sync::barrier`). A hold then costs two plain stores and a
//! load.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use sync::hold::Attempt;
pub use sync::hold::release;
use sync::word::Word64;

/// One membership: an entry and its generation. The next member in the entry has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Index of the entry.
    pub index: u16,
    /// Increases by one when a member takes the entry, and when it leaves.
    pub generation: u32,
}

impl Peer {
    /// Returns the peer as a word that is not zero.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index) << 1 | 1
    }

    /// Returns the peer that a word names, unless the word is zero.
    pub(crate) fn parse(word: u64) -> Option<Self> {
        let peer = Self { index: (word >> 1) as u16, generation: (word >> 32) as u32 };
        (word & 1 != 0).then_some(peer)
    }
}

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// See [`Peer`].
    pub generation: u32,
    /// The machine whose kernel knows whether the member lives, 24 bits.
    pub host: u32,
    /// The phase of the entry.
    pub phase: Phase,
}

/// The phase of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It has no owner.
    Free = 0,
    /// A new owner prepares it.
    Joining = 1,
    /// A member has it.
    Present = 2,
}

impl State {
    /// Returns the state as the entry stores it.
    pub fn word(self) -> u64 {
        let host = u64::from(self.host & 0x00ff_ffff);
        u64::from(self.generation) << 32 | host << 8 | self.phase as u64
    }

    /// Parses a word. An unknown phase, which only an overwritten table has, counts as free.
    #[inline]
    pub fn parse(word: u64) -> Self {
        let phase = match word & 0xff {
            1 => Phase::Joining,
            2 => Phase::Present,
            _ => Phase::Free,
        };
        Self { generation: (word >> 32) as u32, host: (word as u32) >> 8, phase }
    }

    /// Returns the state with the next generation.
    pub fn next(self, host: u32, phase: Phase) -> Self {
        Self { generation: self.generation.wrapping_add(1), host, phase }
    }
}

/// Holds `peer`, whose entry has the state word `state`, by the hold word `word`. Returns false if
/// the peer has gone.
///
/// Models without sequentially consistent accesses need `fence`.
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

/// Holds as [`hold`] does, by a word that only one thread uses. `fence` is a full fence, or only
/// the compiler's if new owners make a fence for all processes.
#[inline]
pub fn hold_alone<W: Word64>(word: &W, state: &W, peer: Peer, fence: impl Fn()) -> bool {
    sync::hold::attempt_alone(word, peer.word(), fence, || is_present(state, peer))
}

/// Returns true if `peer` is a member. The caller has stored its hold before.
#[inline]
fn is_present<W: Word64>(state: &W, peer: Peer) -> bool {
    let now = State::parse(state.load(SeqCst));
    now.generation == peer.generation && now.phase == Phase::Present
}

/// The hold word is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordInUse;

/// Takes an entry in state `from`: it has a new generation from now on. Fails if another process
/// was faster.
pub fn take<W: Word64>(state: &W, from: u64, host: u32, fence: impl Fn()) -> Option<State> {
    let taken = State::parse(from).next(host, Phase::Joining);
    state.compare_exchange(from, taken.word()).ok()?;
    fence();
    Some(taken)
}

/// Returns true if a word holds entry `index`, in any generation.
pub fn holds<W: Word64>(word: &W, index: u16) -> bool {
    Peer::parse(word.load(SeqCst)).is_some_and(|peer| peer.index == index)
}

/// Announces the new member of an entry that is taken and prepared.
pub fn present<W: Word64>(state: &W, taken: State) {
    debug_assert_eq!(taken.phase, Phase::Joining, "an entry is taken before it is announced");
    state.store(State { phase: Phase::Present, ..taken }.word(), Release);
}

/// Returns true if `peer` still has its entry.
pub fn has_entry<W: Word64>(state: &W, peer: Peer) -> bool {
    let now = State::parse(state.load(Acquire));
    now.generation == peer.generation && now.phase != Phase::Free
}
