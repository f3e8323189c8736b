//! A large message is split into pieces, which its sender and its receiver copy at the same time.
//! Each copier claims one piece after the other.
//!
//! Two words count the claimed and the copied pieces. The words are reused for the next message,
//! and a tag in them names the current message. A late copier finds another tag. Then no piece is
//! left to copy, and its message is complete. `tests/pieces_model.rs` models it with loom.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::word::Word64;

/// Largest size of a piece in bytes.
const PIECE_BYTES_MAX: u64 = 64 << 10;
/// Smallest size of a piece in bytes.
const PIECE_BYTES_MIN: u64 = 32 << 10;

/// Longest message that can be split into pieces, in bytes.
pub const BYTES_MAX: u64 = PIECE_BYTES_MAX << 31;

/// Shortest message that is worth two copiers, in bytes. Each copies one half.
pub const BYTES_MIN: u64 = 2 * PIECE_BYTES_MIN;

/// Returns the piece size for a message of `bytes` bytes.
fn piece_bytes(bytes: u64) -> u64 {
    const PAGE: u64 = 4 << 10;
    bytes.div_ceil(2).next_multiple_of(PAGE).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
}

/// Packs a tag and a count into one word.
fn word(tag: u32, count: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(count)
}

fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Resets the words for a new message, of which `first` pieces are already claimed. The tag must
/// differ from the previous tag, unless no copier can be late.
pub fn begin<W: Word64>(claimed: &W, copied: &W, tag: u32, first: u32) {
    copied.store(word(tag, 0), Release);
    claimed.store(word(tag, first), Release);
}

/// Claims the next of `count` pieces. Returns its index, or `None` if no piece is left.
#[inline]
pub fn claim<W: Word64>(claimed: &W, tag: u32, count: u32) -> Option<u32> {
    let mut now = claimed.load(Relaxed);
    loop {
        let next = now as u32;
        if tag_of(now) != tag || next >= count {
            return None;
        }
        match claimed.compare_exchange(now, word(tag, next + 1)) {
            Ok(_) => return Some(next),
            Err(other) => now = other,
        }
    }
}

/// Counts a claimed piece as copied. Returns true if it was the last one.
pub fn finish<W: Word64>(copied: &W, tag: u32, count: u32) -> bool {
    let mut now = copied.load(Relaxed);
    loop {
        match copied.compare_exchange(now, now + 1) {
            Ok(_) => return now + 1 == word(tag, count),
            Err(other) => now = other,
        }
    }
}

/// Returns true if all `count` pieces are copied.
pub fn is_finished<W: Word64>(copied: &W, tag: u32, count: u32) -> bool {
    let now = copied.load(Acquire);
    tag_of(now) != tag || now as u32 >= count
}

/// Counters of one message at a time, in memory that both copiers reach.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Pieces {
    /// Tag and number of claimed pieces.
    claimed: AtomicU64,
    /// Tag and number of copied pieces.
    copied: AtomicU64,
    /// Errno of a failed copy, or 0.
    error: AtomicU32,
}

/// The pieces of one message.
#[derive(Debug, Clone, Copy)]
pub struct Shares<'a> {
    pieces: &'a Pieces,
    tag: u32,
    bytes: u64,
}

impl Pieces {
    /// Resets the counters for a new message; see [`begin`].
    pub fn begin(&self, tag: u32, first: u32) {
        self.error.store(0, Relaxed);
        begin(&self.claimed, &self.copied, tag, first);
    }

    /// Returns the pieces of the message with this tag and length.
    ///
    /// # Panics
    /// Panics if `bytes` exceeds [`BYTES_MAX`].
    pub fn of(&self, tag: u32, bytes: u64) -> Shares<'_> {
        assert!(bytes <= BYTES_MAX, "a message of {bytes} bytes has too many pieces");
        Shares { pieces: self, tag, bytes }
    }
}

impl Shares<'_> {
    fn count(&self) -> u32 {
        self.bytes.div_ceil(piece_bytes(self.bytes)) as u32
    }

    /// Claims a piece. Returns its offset and its size, or `None` if no piece is left.
    pub fn claim(&self) -> Option<(u64, u64)> {
        Some(self.piece(claim(&self.pieces.claimed, self.tag, self.count())?))
    }

    /// Returns the offset and the size of the first piece, for the copier that claimed it in
    /// [`Pieces::begin`].
    pub fn first(&self) -> (u64, u64) {
        self.piece(0)
    }

    fn piece(&self, index: u32) -> (u64, u64) {
        let piece = piece_bytes(self.bytes);
        let offset = u64::from(index) * piece;
        debug_assert!(offset <= self.bytes, "the piece lies in the message");
        (offset, piece.min(self.bytes - offset))
    }

    /// Counts a claimed piece as copied, or as failed with the errno `error`. Returns true if it
    /// was the last one.
    pub fn finish(&self, error: Option<i32>) -> bool {
        if let Some(error) = error {
            self.pieces.error.store(error as u32, Release);
        }
        finish(&self.pieces.copied, self.tag, self.count())
    }

    /// Returns the errno of the copy, or 0 on success. Returns `None` until all pieces are copied.
    pub fn finished(&self) -> Option<i32> {
        if !is_finished(&self.pieces.copied, self.tag, self.count()) {
            return None;
        }
        let error = self.pieces.error.load(Acquire) as i32;
        // With another tag, the errno belongs to another message.
        let is_ours = tag_of(self.pieces.copied.load(Relaxed)) == self.tag;
        Some(if is_ours { error } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_whole_message() {
        for bytes in [1, 4096, BYTES_MIN, 65537, 100_000, 131_072, 131_073, 1 << 20, 3 << 30] {
            let pieces = Pieces::default();
            pieces.begin(7, 0);
            let shares = pieces.of(7, bytes);
            let mut next = 0;
            while let Some((offset, length)) = shares.claim() {
                assert_eq!((offset, shares.finished()), (next, None));
                next += length;
                assert_eq!(shares.finish(None), next == bytes, "{bytes}");
            }
            assert_eq!((next, shares.finished()), (bytes, Some(0)));
        }
        assert_eq!(piece_bytes(BYTES_MIN) * 2, BYTES_MIN);
        assert_eq!(piece_bytes(u64::from(u32::MAX)), PIECE_BYTES_MAX);
    }

    #[test]
    fn a_failed_copy_reports_its_errno() {
        const EFAULT: i32 = 14;
        let pieces = Pieces::default();
        pieces.begin(1, 1);
        let shares = pieces.of(1, 1000);
        assert_eq!((shares.first(), shares.claim()), ((0, 1000), None));
        assert!(shares.finish(Some(EFAULT)));
        assert_eq!(shares.finished(), Some(EFAULT));
        // From here on the words count another message.
        pieces.begin(2, 0);
        assert_eq!((shares.claim(), shares.finished()), (None, Some(0)));
    }

    #[test]
    fn a_late_copier_claims_no_piece_of_another_message() {
        let pieces = Pieces::default();
        pieces.begin(1, 0);
        let late = pieces.of(1, 1 << 20);
        pieces.begin(2, 0);
        assert_eq!((late.claim(), late.finished()), (None, Some(0)));
        assert!(pieces.of(2, 1 << 20).claim().is_some());
    }
}
