//! The line behind memory that is lent in advance, by which lender and borrower see how far the
//! other is (`advance`).

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};

use crate::advance::Lost;
use crate::remote;
use sync::futex;
use sync::wait::{self, DOUBT};

/// Bytes that are copied from the lender's memory before it is asked whether they count.
const REACH: usize = 256 << 10;
/// How long to look for more before sleeping.
const LOOK: Duration = Duration::from_micros(50);
/// The lender's pauses for a borrower that copies: at most this, and a nanosecond for each so
/// many bytes of the message.
const PAUSE: Duration = Duration::from_micros(5);
const PAUSE_BYTES: u32 = 4;

/// Where the words are: what the lender writes often, and what the borrower does, in a cache
/// line each.
const WRITTEN: usize = 0;
const READS: usize = 8;
const SLEEPS: usize = 9;
const PIECES: usize = 10;
/// Bytes of both lines.
const LINE: usize = 128;
/// Bytes of a piece's address and length.
const PIECE: usize = 16;

/// Bytes of a block for so many bytes of data, in so many pieces.
pub(crate) fn size(length: usize, pieces: usize) -> usize {
    line_at(length) + LINE + pieces * PIECE
}

fn line_at(length: usize) -> usize {
    length.next_multiple_of(64)
}

/// The line behind `length` bytes of data, in memory that its holder keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    words: NonNull<AtomicU64>,
    length: usize,
    pieces: usize,
}

impl Line {
    /// Of data at `data`, in a block of `room` bytes. Nothing if that is too small for what
    /// the line says, or not aligned.
    ///
    /// # Safety
    /// All of the block is mapped as long as the line is used, and words there are reached as
    /// atomics alone.
    pub unsafe fn of(data: NonNull<u8>, length: usize, room: usize) -> Option<Line> {
        if line_at(length).checked_add(LINE)? > room {
            return None;
        }
        // SAFETY: inside the block.
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
        assert!(number < (LINE + self.pieces * PIECE) / 8);
        // SAFETY: in the block, and aligned, as `of` and `begin` have seen to.
        unsafe { self.words.add(number).as_ref() }
    }

    /// Bytes, when all are there.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Bytes of a piece, on the average.
    pub fn piece(&self) -> usize {
        self.length / self.pieces.max(1)
    }

    /// Bytes from the start that are there.
    pub fn written(&self) -> usize {
        (self.word(WRITTEN).load(Acquire) as usize).min(self.length)
    }

    /// Whether all is there.
    pub fn is_full(&self) -> bool {
        self.written() == self.length
    }

    /// The borrower copies from the lender's memory, or does no more.
    fn say_reads(&self, reads: bool) {
        self.word(READS).store(reads.into(), Release);
    }

    fn reads(&self) -> bool {
        self.word(READS).load(Acquire) != 0
    }

    /// The lender's half of the word that tells how much is written: what the borrower sleeps on.
    fn futex(&self) -> &AtomicU32 {
        futex::low_half(self.word(WRITTEN))
    }

    /// Waits until more than `than` bytes are there. `lives` tells whether the lender does.
    pub fn wait(&self, than: usize, lives: impl Fn() -> bool) -> Result<usize, Lost> {
        let more = || Some(self.written()).filter(|written| *written > than);
        loop {
            if let Some(written) = wait::poll_for(LOOK, more) {
                return Ok(written);
            }
            // The lender stores, then looks whether we sleep; we the other way round.
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

    /// Copies bytes from `at` on out of the lender's memory, some or all of those that are
    /// wanted. How many; 0 if they may not be what was sent, or cannot be read.
    pub fn pull(&self, pid: u32, at: usize, to: &mut [u8]) -> usize {
        let wanted = to.len().min(REACH);
        self.say_reads(true); // until `rest`
        let pulled = self.pull_piecewise(pid, at, &mut to[..wanted]);
        // What was read was read before.
        fence(SeqCst);
        if pulled && !self.is_full() { wanted } else { 0 }
    }

    /// The borrower copies no more: the lender need not pause.
    pub fn rest(&self) {
        self.say_reads(false);
    }

    fn pull_piecewise(&self, pid: u32, at: usize, mut to: &mut [u8]) -> bool {
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

    /// The borrower writes what the lender, which has died, did not: `rest` has done it.
    pub fn fill(&self) {
        self.word(WRITTEN).store(self.length as u64, Release);
    }

    /// The lender begins: nothing is written yet, and it all lies here.
    pub fn begin(data: NonNull<u8>, length: usize, pieces: &[&[u8]]) -> Line {
        // SAFETY: the block is as large as `size` says.
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

    /// The lender says how much is written.
    pub fn publish(&self, written: usize) {
        if written < self.length {
            return self.word(WRITTEN).store(written as u64, Release);
        }
        self.word(WRITTEN).store(written as u64, SeqCst);
        if self.word(SLEEPS).load(SeqCst) != 0 {
            futex::wake(self.futex());
        }
    }

    /// The lender lets the borrower copy, for a while.
    pub fn pause(&self) {
        if self.reads() {
            let long = PAUSE + Duration::from_nanos(self.length as u64) / PAUSE_BYTES;
            wait::poll_for(long, || (!self.reads()).then_some(()));
        }
    }
}
