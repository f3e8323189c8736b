//! Slots: who has what of a member's memory on loan.
//!
//! Each member that lends has a row of 64-bit words in the window. A word that is not zero
//! names a borrower: its entry and generation. The lender sets it before it sends word of
//! the loan; the borrower clears it when it needs the memory no more, or puts another's name
//! there, to whom it hands the loan on; a word whose borrower has ended counts as clear. By that
//! one rule a lender knows when its memory is its own again, and who takes the lender's entry after
//! its end, whether it can be used: the living may still read what the dead have lent.
//!
//! A lender that is killed between setting a slot and sending word, or a borrower between
//! handing on and sending word, keeps the lender's memory taken until the one who is named
//! there ends. No other death leaves anything behind.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::hold::Peer;
use sync::word::Word64;

/// Lends: from now on the memory stays as it is.
pub fn lend<W: Word64>(slot: &W, borrower: Peer) {
    slot.store(borrower.word(), Release);
}

/// Gives back what `borrower` has. What it read, it read before. False if it has it no more.
pub fn give_back<W: Word64>(slot: &W, borrower: Peer) -> bool {
    slot.compare_exchange(borrower.word(), 0).is_ok()
}

/// What `borrower` has is `next`'s from now on. False if it has it no more.
pub fn hand_on<W: Word64>(slot: &W, borrower: Peer, next: Peer) -> bool {
    slot.compare_exchange(borrower.word(), next.word()).is_ok()
}

/// Whether `peer` has the loan of this slot.
pub fn is_lent_to<W: Word64>(slot: &W, peer: Peer) -> bool {
    slot.load(Acquire) == peer.word()
}

/// Who has the loan, if it was not given back. Then the memory can be written again.
pub fn borrower<W: Word64>(slot: &W) -> Option<Peer> {
    Peer::parse(slot.load(Acquire))
}
