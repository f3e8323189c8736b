//! Slots: who has what of a member's memory on loan.
//!
//! Each member that lends has a row of 64-bit words in the window. A word that is not zero
//! names a borrower: its entry and generation. The lender sets it before it sends word of
//! the loan; the borrower clears it when it needs the memory no more; a word whose borrower
//! has ended counts as clear. By that one rule a lender knows when its memory is its own
//! again, and who takes the lender's entry after its end, whether it can be used: the
//! living may still read what the dead have lent.
//!
//! A lender that is killed between setting a slot and sending word keeps its entry taken
//! until the borrower ends. No other death leaves anything behind.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::hold::Peer;
use crate::ring::Word64;

/// Lends: from now on the memory stays as it is.
pub fn lend<W: Word64>(slot: &W, borrower: Peer) {
    slot.store(borrower.word(), Release);
}

/// Gives back what `borrower` has. What it read, it read before.
pub fn give_back<W: Word64>(slot: &W, borrower: Peer) {
    // If it is not ours, some process has overwritten it: nothing to give back.
    let _ = slot.compare_exchange(borrower.word(), 0);
}

/// Whether `peer` has the loan of this slot.
pub fn is_lent_to<W: Word64>(slot: &W, peer: Peer) -> bool {
    slot.load(Acquire) == peer.word()
}

/// Who has the loan, if it was not given back. Then the memory can be written again.
pub fn borrower<W: Word64>(slot: &W) -> Option<Peer> {
    Peer::parse(slot.load(Acquire))
}
