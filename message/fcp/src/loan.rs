//! The borrower's side of loans: memory that another member lends with a message.

use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::fork;
use crate::hold::Peer;
use crate::member::Membership;
use crate::slot;

/// The location of a loan. It is the end of a message of [`Kind::Lent`](sync::ring::Kind::Lent), or
/// reaches the borrower by other means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Entry of the lender.
    pub(crate) lender: u16,
    /// Slot of the lender.
    pub(crate) slot: u16,
    /// Offset in the lender's lendable memory, in bytes.
    pub(crate) at: u64,
    /// Length in bytes.
    pub(crate) length: u64,
    /// The lender's generation if the loan is in advance, else 0.
    pub(crate) in_advance: u32,
}

impl Terms {
    /// Length in a message, in bytes.
    pub const SIZE: usize = 24;

    /// Returns the terms as a message carries them.
    pub fn bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.lender.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.slot.to_le_bytes());
        bytes[20..].copy_from_slice(&self.in_advance.to_le_bytes());
        bytes
    }

    /// Parses terms. [`Port::loan`](crate::port::Port::loan) checks if there is such a loan.
    pub fn parse(bytes: [u8; Self::SIZE]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let ids = word(16);
        Self {
            lender: ids as u16,
            slot: (ids >> 16) as u16,
            at: word(0),
            length: word(8),
            in_advance: (ids >> 32) as u32,
        }
    }
}

/// Memory that another member has lent. It does not change until the loan is dropped, even if the
/// lender ends: a correct lender does not write into it. (A process that violates the protocol can
/// make the bytes wrong, as in any message, but nothing else.)
#[derive(Debug)]
pub struct Loan {
    /// Keeps the window mapped, and the borrower a member.
    membership: Arc<Membership>,
    data: NonNull<u8>,
    terms: Terms,
    /// False after the loan was handed on.
    is_ours: bool,
    forks: u32,
}

// SAFETY: `data` is only read, and the slot is accessed as an atomic. `membership` keeps both
// mapped in whatever thread.
unsafe impl Send for Loan {}
// SAFETY: see `Send`; a shared `Loan` only reads.
unsafe impl Sync for Loan {}

impl Loan {
    /// Returns the loan with these terms, if it is lent to this member and lies inside the lender's
    /// memory.
    pub(crate) fn new(membership: &Arc<Membership>, terms: Terms) -> Option<Self> {
        let window = membership.members().window();
        let length = usize::try_from(terms.length).ok()?;
        let data = window.lendable_at(terms.lender, usize::try_from(terms.at).ok()?, length)?;
        let slots = 1..window.slots();
        let is_ours = slots.contains(&terms.slot.into())
            && slot::is_lent_to(window.slot(terms.lender, terms.slot.into())?, membership.peer());
        let (membership, forks) = (membership.clone(), fork::watch());
        is_ours.then_some(Self { membership, data, terms, is_ours, forks })
    }
}

impl Loan {
    /// Hands the loan on to `next`. Returns false if it was no longer this member's, which only a
    /// protocol violation causes.
    pub(crate) fn hand_on(&mut self, next: Peer) -> bool {
        let own = self.membership.peer();
        // Before `next` can return it, because the slot may then be used for another loan.
        self.is_ours = false;
        self.slot().is_some_and(|slot| slot::hand_on(slot, own, next))
    }

    /// Takes the loan back from `next`, which got no message.
    pub(crate) fn take_back(&mut self, next: Peer) {
        let own = self.membership.peer();
        self.is_ours = self.slot().is_some_and(|slot| slot::hand_on(slot, next, own));
    }

    /// Returns its local address.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.data
    }

    /// Returns its length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.terms.length as usize
    }

    /// Returns `length` bytes from `at` on.
    ///
    /// # Safety
    /// The lender has written all of them.
    pub(crate) unsafe fn part(&self, at: usize, length: usize) -> &[u8] {
        debug_assert!(at <= self.length() && length <= self.length() - at, "outside the loan");
        // SAFETY: inside the loan, whose bounds `Loan::new` has checked; all callers check theirs.
        // The membership keeps the window mapped. The lender does not write these bytes again while
        // the slot names this member.
        unsafe { slice::from_raw_parts(self.data.add(at).as_ptr(), length) }
    }

    /// Returns its terms.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Returns its slot. `None` in a forked child, which has no loans of its parent.
    fn slot(&self) -> Option<&AtomicU64> {
        let window = self.membership.members().window();
        let is_forked = fork::happened_since(self.forks);
        window.slot(self.terms.lender, self.terms.slot.into()).filter(|_| !is_forked)
    }
}

impl Deref for Loan {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: a loan that is not in advance was written before it was lent.
        unsafe { self.part(0, self.length()) }
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(slot) = self.slot().filter(|_| self.is_ours) {
            slot::give_back(slot, self.membership.peer());
        }
    }
}
