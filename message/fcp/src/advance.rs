//! Loans in advance, a pipelined copy: the message of the loan is sent first, then the lender
//! writes the data, and the borrower reads behind it. A long message takes the time of one copy,
//! not two.
//!
//! Behind the data lies a line by which the two see each other's progress. It also has the location
//! of the data in the lender's own memory:
//! ```text
//! data │ written │ reads, sleeps, pieces │ address, length of each piece
//! ```
//! A borrower that can read the lender's memory copies data from there that is not written yet.
//! Neither waits for the other. The lender returns when all is written, and only then may the data
//! in its own memory change. So a copy from there is valid if *afterwards* not all was written. The
//! lender pauses for a short time while the borrower copies, so that not both do the work. If the
//! borrower returns the loan, the lender stops.
//!
//! Between tasks of one space, a borrower that reads much at once exposes its buffer, and the
//! lender copies pieces into it before it goes on (`together`).
//!
//! If the lender dies, the borrower copies the rest from the lender's memory if that still exists.
//! Otherwise the message is lost.

use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use rustix::io::Errno;

use crate::error::Lost;
use crate::hold::Peer;
use crate::lend::Lendable;
use crate::line::{self, Line};
use crate::loan::{Loan, Terms};
use crate::member::{Entry, Life, Members, Membership};
use crate::together;
use sync::copy::{copy, copy_slice};

/// Bytes that are written before the lender announces them.
const STRIDE: usize = 16 << 10;
/// Bytes that are written before the lender looks at the borrower's progress.
const STEP: usize = 4 << 10;

/// Memory that another member has lent, and is still writing.
#[derive(Debug)]
pub struct Advance {
    loan: Loan,
    line: Line,
    /// `None` if the lender has left its entry.
    lender: Option<Entry>,
    membership: Arc<Membership>,
}

// SAFETY: the lender alone writes the data, and announces it by an atomic store; readers load that
// word first. `loan` keeps the memory mapped in whatever thread.
unsafe impl Send for Advance {}
// SAFETY: see `Send`; the words of the line are atomics.
unsafe impl Sync for Advance {}

impl Advance {
    /// Returns a loan in advance. `None` if the lender has ended before it wrote all.
    pub(crate) fn new(membership: &Arc<Membership>, loan: Loan) -> Option<Self> {
        let members = membership.members();
        let (at, lender) = (usize::try_from(loan.terms().at).ok()?, loan.terms().lender);
        let room = members.window().lendable().checked_sub(at)?;
        // SAFETY: `Loan::new` has mapped the lender's region from `at` on, of which `room` bytes
        // are left. The loan keeps it mapped, and only atomics access the line.
        let line = unsafe { Line::of(loan.address(), loan.length(), room) }?;
        let generation = loan.terms().in_advance;
        let lender = members.entry(lender).filter(|entry| entry.peer.generation == generation);
        let advance = Self { loan, line, lender, membership: membership.clone() };
        (advance.lives() || advance.is_full()).then_some(advance)
    }

    /// Returns the length of the data in bytes.
    pub fn length(&self) -> usize {
        self.loan.length()
    }

    /// Returns true if all bytes are written.
    pub fn is_full(&self) -> bool {
        self.line.is_full()
    }

    /// Returns true if the lender lives.
    pub fn lives(&self) -> bool {
        let members = self.membership.members();
        self.lender.is_some_and(|lender| members.life(lender.peer) != Life::Gone)
    }

    /// Returns true if the lender's memory is in `reach`, as in [`Advance::read`].
    pub fn is_in_reach(&self, reach: impl Fn(u32) -> bool) -> bool {
        self.pid().is_some_and(reach)
    }

    /// Returns the lender's PID, if it is of this PID namespace.
    fn pid(&self) -> Option<u32> {
        let Entry { pid, peer, .. } = self.lender?;
        self.membership.members().shares_pids_with(peer.index).then_some(pid)
    }

    /// Returns written bytes.
    ///
    /// # Panics
    /// If they are not all written.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let is_there = range.start <= range.end && range.end <= self.line.written();
        assert!(is_there, "the lender has not written {range:?}");
        // SAFETY: written by the assertion above, and so inside the loan.
        unsafe { self.loan.part(range.start, range.len()) }
    }

    /// Waits until the bytes before `end` are written. If the lender has died, copies the rest out
    /// of its memory while that is in `reach`, as in [`Advance::read`].
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
            // SAFETY: inside the loan, because `written` is at most its length. The lender is dead,
            // and readers look only at bytes that the line announces.
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

    /// Copies bytes from `at` on. Copies those that are not written yet out of the lender's memory
    /// while the lender's PID is in `reach`: the PID still names the lender, living or dead, and
    /// its memory exists. Otherwise waits for them.
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
        // Many small pieces are read faster where the lender writes them one behind the other.
        let mut pulls = to.len().min(self.line.piece()) >= STRIDE;
        let pulled_once = pulls;
        if pulls && self.pull_together(at, to, &reach) {
            return Ok(());
        }
        while !to.is_empty() {
            let written = self.line.written();
            let there = written.saturating_sub(at).min(to.len());
            let done = if pulls && written < self.length() {
                // Also the written bytes: a copy behind the lender would touch the same lines.
                let pulled = self.pull(at, to, &reach);
                pulls = pulled > 0;
                if !pulls {
                    self.line.rest();
                }
                pulled
            } else if there > 0 {
                // SAFETY: `there` bytes from `at` on are written, and so inside the loan.
                copy_slice(unsafe { self.loan.part(at, there) }, &mut to[..there]);
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
        if pulled_once {
            self.line.rest();
        }
        Ok(())
    }

    /// Copies bytes from `at` on out of the lender's memory, together with the lender. Returns
    /// false if they may have changed, or were not copied.
    fn pull_together(&self, at: usize, to: &mut [u8], reach: &impl Fn(u32) -> bool) -> bool {
        let Some(lender) = self.lender.filter(|lender| reach(lender.pid)) else { return false };
        if self.is_full() {
            return false;
        }
        let tell = |tag| {
            self.line.share(tag);
            true
        };
        let read = |from: usize, to: &mut [u8]| {
            let is_read = self.line.pull_piecewise(lender.pid, at + from, to);
            is_read.then_some(()).ok_or(Errno::FAULT)
        };
        let pulled = together::pull(&self.membership, lender, at, to, tell, read);
        // The copy is complete before `is_full` is loaded.
        fence(SeqCst);
        let is_valid = !self.is_full() && reach(lender.pid);
        if pulled.is_some() {
            self.line.rest();
        }
        pulled == Some(Ok(())) && is_valid
    }

    /// Copies bytes from `at` on out of the lender's memory. Returns their number, which may be 0.
    fn pull(&self, at: usize, to: &mut [u8], reach: &impl Fn(u32) -> bool) -> usize {
        let Some(pid) = self.pid().filter(|pid| reach(*pid)) else { return 0 };
        let pulled = self.line.pull(pid, at, to);
        if pulled > 0 && reach(pid) { pulled } else { 0 }
    }
}

/// Returns the bytes of a block for `length` bytes of data in `pieces` pieces.
pub(crate) fn size(length: usize, pieces: usize) -> usize {
    line::size(length, pieces)
}

/// Memory that is lent in advance, and written from `pieces`.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    memory: Lendable,
    line: Line,
    pieces: &'a [&'a [u8]],
}

impl<'a> Writing<'a> {
    /// Starts the loan. `memory` is a block of [`size`] bytes.
    pub fn new(memory: Lendable, length: usize, pieces: &'a [&'a [u8]]) -> Self {
        let line = Line::begin(memory.address(), length, pieces);
        Self { memory, line, pieces }
    }

    /// Returns the memory.
    pub fn memory(&self) -> &Lendable {
        &self.memory
    }

    /// Writes all bytes. Stops if the loan with these terms is returned. Helps `receiver` if that
    /// copies them meanwhile.
    pub fn write(self, terms: Terms, members: &Members, receiver: Peer) {
        let (to, mut at, mut announced) = (self.memory.address(), 0, 0);
        let mut helped = None;
        for piece in self.pieces {
            for bytes in piece.chunks(STEP) {
                // SAFETY: the block has room for all pieces (`size`). The borrower reads only bytes
                // that are published.
                unsafe { copy(bytes.as_ptr(), to.as_ptr().add(at), bytes.len()) };
                at += bytes.len();
                if let Some(tag) = self.line.shared().filter(|tag| helped != Some(*tag)) {
                    together::help(members, receiver, tag, self.pieces);
                    helped = Some(tag);
                }
                self.line.pause();
                if at - announced >= STRIDE && at < self.line.length() {
                    if !self.memory.is_lent(terms) {
                        return;
                    }
                    self.line.publish(at);
                    announced = at;
                }
            }
        }
        self.line.publish(at);
    }
}
