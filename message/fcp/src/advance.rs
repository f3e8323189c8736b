//! Loans in advance: word of the loan goes out first, then the lender writes, and the borrower
//! reads behind it. A long message takes the time of one copy, not of two.
//!
//! Behind the data lies a line by which they see how far the other is; then, where the bytes
//! still are meanwhile, in the lender's own memory:
//! ```text
//! data │ written │ reads, sleeps, pieces │ address, length of each piece
//! ```
//! What is not yet written can be copied straight from there by a borrower that can read the
//! lender's memory. Neither waits for the other: the lender returns when all is written, and
//! only then may those bytes change; so what the borrower has copied counts if, *afterwards*,
//! not all was written yet. The lender pauses while the borrower copies, so that not both
//! do it, but never for long. If the borrower gives the loan back, the lender stops.
//!
//! If the lender dies, the borrower copies the rest from its memory, if that is still there;
//! else the message is lost.

use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::lend::Lendable;
use crate::line::{self, Line};
use crate::loan::{Loan, Terms};
use crate::member::{Entry, Life, Membership};

/// Bytes that are written before the borrower is told.
const STRIDE: usize = 16 << 10;
/// Bytes that are written before the lender looks what the borrower does.
const STEP: usize = 4 << 10;

/// What its lender has not written, and will not write any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// Memory that another member has lent us, and writes now.
#[derive(Debug)]
pub struct Advance {
    loan: Loan,
    line: Line,
    /// Unless it has left.
    lender: Option<Entry>,
    membership: Arc<Membership>,
}

// SAFETY: memory that its lender alone writes, before it tells so by an atomic.
unsafe impl Send for Advance {}
// SAFETY: as above.
unsafe impl Sync for Advance {}

impl Advance {
    /// A loan in advance. Nothing if its lender has ended since, and not all is there.
    pub(crate) fn new(membership: &Arc<Membership>, loan: Loan) -> Option<Self> {
        let members = membership.members();
        let (at, lender) = (usize::try_from(loan.terms().at).ok()?, loan.terms().lender);
        let room = members.window().lendable().checked_sub(at)?;
        // SAFETY: so much of the window is there, which the loan keeps.
        let line = unsafe { Line::of(loan.address(), loan.length(), room) }?;
        let generation = loan.terms().in_advance;
        let lender = members.entry(lender).filter(|entry| entry.peer.generation == generation);
        let advance = Self { loan, line, lender, membership: membership.clone() };
        (advance.lives() || advance.is_full()).then_some(advance)
    }

    /// Bytes, when all are there.
    pub fn length(&self) -> usize {
        self.loan.length()
    }

    /// Whether all is there.
    pub fn is_full(&self) -> bool {
        self.line.is_full()
    }

    /// Whether the lender lives.
    pub fn lives(&self) -> bool {
        let members = self.membership.members();
        self.lender.is_some_and(|lender| members.life(lender.peer) != Life::Gone)
    }

    /// Whether its lender's memory is in `reach`, as in [`Advance::read`].
    pub fn is_in_reach(&self, reach: impl Fn(u32) -> bool) -> bool {
        self.pid().is_some_and(reach)
    }

    /// Of the lender.
    fn pid(&self) -> Option<u32> {
        let Entry { pid, peer, .. } = self.lender?;
        self.membership.members().shares_pids_with(peer.index).then_some(pid)
    }

    /// Some of it.
    ///
    /// # Panics
    /// If not all of that is there.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let is_there = range.start <= range.end && range.end <= self.line.written();
        assert!(is_there, "the lender has not written {range:?}");
        // SAFETY: inside, and written.
        unsafe { self.loan.part(range.start, range.len()) }
    }

    /// Waits until the bytes before `end` are there. What a lender that has died did not write is
    /// copied out of its memory, if that is still in `reach`, as in [`Advance::read`].
    pub fn settle(&self, end: usize, reach: impl Fn(u32) -> bool) -> Result<(), Lost> {
        loop {
            let written = self.line.written();
            if written >= end.min(self.length()) {
                return Ok(());
            }
            if self.line.wait(written, || self.lives()).is_ok() {
                continue;
            }
            let left = self.length() - written;
            // SAFETY: inside the loan, which is ours alone now.
            let rest = unsafe {
                slice::from_raw_parts_mut(self.loan.address().add(written).as_ptr(), left)
            };
            let mut done = 0;
            while done < left {
                match self.pull(written + done, &mut rest[done..], &reach) {
                    0 => return Err(Lost),
                    more => done += more,
                }
            }
            self.line.fill();
        }
    }

    /// Copies bytes from `at` on. Those that are not there yet are copied out of the lender's
    /// memory while the process with this PID is in `reach`: it is the lender, living or dead,
    /// and its memory is there. Else they are waited for.
    ///
    /// # Panics
    /// If they are outside the loan.
    pub fn read(
        &self,
        mut at: usize,
        mut to: &mut [u8],
        reach: impl Fn(u32) -> bool,
    ) -> Result<(), Lost> {
        assert!(at <= self.length() && to.len() <= self.length() - at, "outside the loan");
        // (Many small pieces are faster read where they are written one behind the other.)
        let mut pulls = to.len().min(self.line.piece()) >= STRIDE;
        let said = pulls;
        while !to.is_empty() {
            let written = self.line.written();
            let there = written.saturating_sub(at).min(to.len());
            let done = if pulls && written < self.length() {
                // Also what is there: both would be at the same bytes, one behind the other.
                let pulled = self.pull(at, to, &reach);
                pulls = pulled > 0;
                if !pulls {
                    self.line.rest();
                }
                pulled
            } else if there > 0 {
                // SAFETY: written, and inside.
                to[..there].copy_from_slice(unsafe { self.loan.part(at, there) });
                there
            } else {
                if self.line.wait(at, || self.lives()).is_err() {
                    self.settle(self.length(), &reach)?;
                }
                0
            };
            at += done;
            to = &mut to[done..];
        }
        if said {
            self.line.rest();
        }
        Ok(())
    }

    /// Copies bytes from `at` on out of the lender's memory: some, or none.
    fn pull(&self, at: usize, to: &mut [u8], reach: &impl Fn(u32) -> bool) -> usize {
        let Some(pid) = self.pid().filter(|pid| reach(*pid)) else { return 0 };
        let pulled = self.line.pull(pid, at, to);
        if pulled > 0 && reach(pid) { pulled } else { 0 }
    }
}

/// Bytes of a block for so many bytes of data, in so many pieces.
pub(crate) fn size(length: usize, pieces: usize) -> usize {
    line::size(length, pieces)
}

/// Memory that is lent, and written from `pieces` now.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    memory: Lendable,
    line: Line,
    pieces: &'a [&'a [u8]],
}

impl<'a> Writing<'a> {
    /// Of a block of [`size`] bytes.
    pub fn new(memory: Lendable, length: usize, pieces: &'a [&'a [u8]]) -> Self {
        let line = Line::begin(memory.address(), length, pieces);
        Self { memory, line, pieces }
    }

    /// The memory.
    pub fn memory(&self) -> &Lendable {
        &self.memory
    }

    /// Writes all; stops if what is lent on these terms is given back.
    pub fn write(self, terms: Terms) {
        let (to, mut at, mut told) = (self.memory.address(), 0, 0);
        for piece in self.pieces {
            for bytes in piece.chunks(STEP) {
                // SAFETY: inside the block, of which the borrower reads nothing that is not
                // published.
                unsafe {
                    to.add(at).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len())
                };
                at += bytes.len();
                self.line.pause();
                if at - told >= STRIDE && at < self.line.length() {
                    if !self.memory.is_lent(terms) {
                        return;
                    }
                    self.line.publish(at);
                    told = at;
                }
            }
        }
        self.line.publish(at);
    }
}
