//! Memory that another member lends us with a message.

use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::fork;
use crate::hold::Peer;
use crate::member::Membership;
use crate::slot;

/// Where a loan lies: what a message of [`Kind::Lent`](sync::ring::Kind::Lent) ends with,
/// or what goes another way to a borrower that is told so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The lender's entry.
    pub(crate) lender: u16,
    /// The lender's slot.
    pub(crate) slot: u16,
    /// Bytes from the start of what the lender can lend.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// 0, or if it is lent in advance, the lender's generation.
    pub(crate) in_advance: u32,
}

impl Terms {
    /// Bytes in a message.
    pub const SIZE: usize = 24;

    /// As they go.
    pub fn bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.lender.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.slot.to_le_bytes());
        bytes[20..].copy_from_slice(&self.in_advance.to_le_bytes());
        bytes
    }

    /// Reads them. Whether there is such a loan is seen when it is taken.
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

/// Memory that another member has lent us. It stays as it is until this is dropped, even
/// if the lender ends: an honest lender does not write into it. (Who is not, and may map
/// the window, can make the bytes wrong, as in any message; nothing else.)
#[derive(Debug)]
pub struct Loan {
    /// Keeps the window, and us a member while we have the loan.
    membership: Arc<Membership>,
    data: NonNull<u8>,
    terms: Terms,
    /// Not handed on.
    is_ours: bool,
    forks: u32,
}

// SAFETY: memory that all may read, and a word that is reached as an atomic.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    /// The loan that a message tells of, if it is one to us and inside the lender's memory.
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
    /// Hands it on: from now on it is `next`'s. False if it was not ours any more, which no
    /// honest process brings about.
    pub(crate) fn hand_on(&mut self, next: Peer) -> bool {
        let own = self.membership.peer();
        // Before `next` can give it back: the slot may then be lent anew.
        self.is_ours = false;
        self.slot().is_some_and(|slot| slot::hand_on(slot, own, next))
    }

    /// `next` was not told that it has it: it is ours again.
    pub(crate) fn take_back(&mut self, next: Peer) {
        let own = self.membership.peer();
        self.is_ours = self.slot().is_some_and(|slot| slot::hand_on(slot, next, own));
    }

    /// Its address, here.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.data
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.terms.length as usize
    }

    /// So many bytes from `at` on.
    ///
    /// # Safety
    /// They are inside, and written.
    pub(crate) unsafe fn part(&self, at: usize, length: usize) -> &[u8] {
        // SAFETY: as our caller says; the membership keeps the window, and the lender does not
        // write there any more while the slot is ours.
        unsafe { slice::from_raw_parts(self.data.add(at).as_ptr(), length) }
    }

    /// Where it lies.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Nothing in a forked child, who has nothing of what its parent has.
    fn slot(&self) -> Option<&AtomicU64> {
        let window = self.membership.members().window();
        let is_forked = fork::happened_since(self.forks);
        window.slot(self.terms.lender, self.terms.slot.into()).filter(|_| !is_forked)
    }
}

impl Deref for Loan {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: all of it, and written before it was lent.
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
