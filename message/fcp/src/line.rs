//! The line behind memory that is lent in advance, by which lender and borrower see each other's
//! progress (`advance`).

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};

use crate::error::Lost;
use crate::remote;
use sync::futex;
use sync::wait::{self, DOUBT, WaitPolicy};

/// Bytes that are copied from the lender's memory before the copy is validated.
const REACH: usize = 256 << 10;
/// The lender's longest pause for a borrower that copies: this time, and a nanosecond for each
/// `PAUSE_BYTES` bytes of the message.
const PAUSE: Duration = Duration::from_micros(5);
const PAUSE_BYTES: u32 = 4;

/// The words. The lender's frequent writes are in the first cache line, the borrower's in the
/// second.
const WRITTEN: usize = 0;
const READS: usize = 8;
const SLEEPS: usize = 9;
const PIECES: usize = 10;
/// Length of both lines, in bytes.
const LINE: usize = 128;
/// Length of a piece's address and length, in bytes.
const PIECE: usize = 16;

/// Returns the bytes of a block for `length` bytes of data in `pieces` pieces.
pub(crate) fn size(length: usize, pieces: usize) -> usize {
    line_at(length) + LINE + pieces * PIECE
}

fn line_at(length: usize) -> usize {
    length.next_multiple_of(64)
}

/// The line behind `length` bytes of data. The holder of the `Line` keeps the memory mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    words: NonNull<AtomicU64>,
    length: usize,
    pieces: usize,
}

impl Line {
    /// Returns the line of data at `data`, in a block of `room` bytes. `None` if the block is not
    /// aligned, or too small for the pieces that the line names.
    ///
    /// # Safety
    /// The whole block is mapped as long as the line is used, and its words are accessed only as
    /// atomics.
    pub unsafe fn of(data: NonNull<u8>, length: usize, room: usize) -> Option<Line> {
        if line_at(length).checked_add(LINE)? > room {
            return None;
        }
        // SAFETY: `line_at(length)` is at most `room` by the check above.
        let words = unsafe { data.add(line_at(length)) }.cast::<AtomicU64>();
        let mut line = Line { words, length, pieces: 0 };
        if !words.is_aligned() {
            return None;
        }
        line.pieces = usize::try_from(line.word(PIECES).load(Acquire)).ok()?;
        let end = line.pieces.checked_mul(PIECE)?.checked_add(line_at(length) + LINE)?;
        (end <= room).then_some(line)
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < (LINE + self.pieces * PIECE) / 8, "no word {number}");
        // SAFETY: `of` and `begin` have checked alignment and room for `pieces`, which bounds
        // `number`.
        unsafe { self.words.add(number).as_ref() }
    }

    /// Returns the length of the data in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the average length of a piece in bytes.
    pub fn piece(&self) -> usize {
        self.length / self.pieces.max(1)
    }

    /// Returns the number of bytes that are written.
    pub fn written(&self) -> usize {
        (self.word(WRITTEN).load(Acquire) as usize).min(self.length)
    }

    /// Returns true if all bytes are written.
    pub fn is_full(&self) -> bool {
        self.written() == self.length
    }

    /// Announces that the borrower copies from the lender's memory, and has exposed its buffer with
    /// this tag (`together`).
    pub fn share(&self, tag: u32) {
        self.word(READS).store(u64::from(tag) << 32 | 1, Release);
    }

    /// Returns the tag with which the borrower has exposed its buffer, if it has.
    pub fn shared(&self) -> Option<u32> {
        let tag = (self.word(READS).load(Acquire) >> 32) as u32;
        (tag != 0).then_some(tag)
    }

    fn reads(&self) -> bool {
        self.word(READS).load(Acquire) != 0
    }

    /// Returns the word on which the borrower sleeps: the lower half of the number of written
    /// bytes.
    fn futex(&self) -> &AtomicU32 {
        futex::low_half(self.word(WRITTEN))
    }

    /// Waits until more than `than` bytes are written. `lives` returns false if the lender is dead.
    pub fn wait(&self, than: usize, lives: impl Fn() -> bool) -> Result<usize, Lost> {
        let more = || Some(self.written()).filter(|written| *written > than);
        let mut policy = WaitPolicy::default();
        loop {
            if let Some(written) = policy.poll(more) {
                return Ok(written);
            }
            // The lender stores, then looks for a sleeper; the borrower does it in reverse order.
            self.word(SLEEPS).store(1, SeqCst);
            let seen = self.futex().load(SeqCst);
            if seen as usize <= than {
                futex::sleep(self.futex(), seen, Some(Instant::now() + DOUBT));
            }
            self.word(SLEEPS).store(0, Relaxed);
            if !lives() {
                return more().ok_or(Lost);
            }
        }
    }

    /// Copies bytes from `at` on out of the lender's memory, some or all that `to` holds. Returns
    /// their number, or 0 if they may have changed or cannot be read.
    pub fn pull(&self, pid: u32, at: usize, to: &mut [u8]) -> usize {
        let wanted = to.len().min(REACH);
        self.word(READS).store(1, Release); // until `rest`
        let pulled = self.pull_piecewise(pid, at, &mut to[..wanted]);
        // The copy is complete before `is_full` is loaded.
        fence(SeqCst);
        if pulled && !self.is_full() { wanted } else { 0 }
    }

    /// Announces that the borrower has stopped copying: the lender need not pause.
    pub fn rest(&self) {
        self.word(READS).store(0, Release);
    }

    /// Copies bytes from `at` on out of the lender's memory, where they may change. Returns false
    /// if they cannot be read.
    pub fn pull_piecewise(&self, pid: u32, at: usize, mut to: &mut [u8]) -> bool {
        let mut begin = 0;
        for piece in 0..self.pieces {
            let word = |number| self.word(LINE / 8 + 2 * piece + number).load(Relaxed) as usize;
            let (address, length) = (word(0), word(1).min(self.length));
            let skipped = at.saturating_sub(begin).min(length);
            begin += length;
            let (now, later) = to.split_at_mut(to.len().min(length - skipped));
            if !now.is_empty() && remote::read(pid, address.wrapping_add(skipped), now).is_err() {
                return false;
            }
            to = later;
            if to.is_empty() {
                return true;
            }
        }
        false
    }

    /// Announces that the borrower has written the rest, which the dead lender had not.
    pub fn fill(&self) {
        self.word(WRITTEN).store(self.length as u64, Release);
    }

    /// Starts a loan in advance: nothing is written yet, and `pieces` has the data.
    pub fn begin(data: NonNull<u8>, length: usize, pieces: &[&[u8]]) -> Line {
        // SAFETY: the caller took a block of `size(length, pieces)` bytes.
        let words = unsafe { data.add(line_at(length)) }.cast();
        let line = Line { words, length, pieces: pieces.len() };
        let words = [(WRITTEN, 0), (READS, 0), (SLEEPS, 0), (PIECES, pieces.len() as u64)];
        let table = pieces
            .iter()
            .flat_map(|piece| [piece.as_ptr().expose_provenance() as u64, piece.len() as u64]);
        for (number, value) in words.into_iter().chain((LINE / 8..).zip(table)) {
            line.word(number).store(value, Release);
        }
        line
    }

    /// Announces the number of bytes that the lender has written.
    pub fn publish(&self, written: usize) {
        debug_assert!(written <= self.length, "{written} of {} bytes", self.length);
        self.word(WRITTEN).store(written as u64, SeqCst);
        if self.word(SLEEPS).load(SeqCst) != 0 {
            futex::wake(self.futex());
        }
    }

    /// Pauses the lender for a short time while the borrower copies.
    pub fn pause(&self) {
        if self.reads() {
            // A pause of a given length, no wait: the lender goes on while the borrower copies.
            let at_most = PAUSE + Duration::from_nanos(self.length as u64) / PAUSE_BYTES;
            wait::poll_for(at_most, || (!self.reads()).then_some(()));
        }
    }
}
