//! Slots: the borrower of each loan of a member.
//!
//! Each member that lends has a row of 64-bit words in the window. A word that is not zero names a
//! borrower: its entry and generation. The lender sets the word before it sends the message of the
//! loan. The borrower clears it when it no longer needs the memory, or replaces the name when it
//! hands the loan on. A word whose borrower has ended counts as clear. So the lender knows when its
//! memory is its own again. The next owner of its entry knows if the memory can be reused: living
//! members may still read loans of a dead lender.
//!
//! A lender may be killed between setting a slot and sending the message, and a borrower between
//! handing on and sending. Then the memory remains lent until the named borrower ends. No other
//! death leaves anything behind.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::hold::Peer;
use sync::word::Word64;

/// Lends to `borrower`: the lender no longer changes the memory.
pub fn lend<W: Word64>(slot: &W, borrower: Peer) {
    slot.store(borrower.word(), Release);
}

/// Returns the loan of `borrower`, after all its reads. Returns false if it no longer had the loan.
pub fn give_back<W: Word64>(slot: &W, borrower: Peer) -> bool {
    slot.compare_exchange(borrower.word(), 0).is_ok()
}

/// Hands the loan of `borrower` on to `next`. Returns false if `borrower` no longer had the loan.
pub fn hand_on<W: Word64>(slot: &W, borrower: Peer, next: Peer) -> bool {
    slot.compare_exchange(borrower.word(), next.word()).is_ok()
}

/// Returns true if `peer` has the loan of this slot.
pub fn is_lent_to<W: Word64>(slot: &W, peer: Peer) -> bool {
    slot.load(Acquire) == peer.word()
}

/// Returns the borrower. If there is none, the memory can be written again.
pub fn borrower<W: Word64>(slot: &W) -> Option<Peer> {
    Peer::parse(slot.load(Acquire))
}
