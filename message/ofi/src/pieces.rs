//! A large message in pieces, which its sender and its receiver copy at the same time: each
//! claims one after the other.
//!
//! The words may be used for one message after the other: a tag tells for which they are. Who
//! comes late, when the words are another message's, finds that there is nothing to be claimed
//! and that his message is copied.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use sync::word::Word64;

/// Bytes of a piece of the longest messages, and least of one.
const PIECE: [u64; 2] = [64 << 10, 32 << 10];

/// Longest message that is cut into pieces.
pub const BYTES_MAX: u64 = PIECE[0] << 31;

/// Shortest of which it is worth it: then each side copies a half.
pub const BYTES_MIN: u64 = 2 * PIECE[1];

/// Bytes of a piece of a message.
fn piece_of(bytes: u64) -> u64 {
    const PAGE: u64 = 4 << 10;
    bytes.div_ceil(2).next_multiple_of(PAGE).clamp(PIECE[1], PIECE[0])
}

/// A word: the tag, and a number of pieces.
fn word(tag: u32, count: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(count)
}

fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Claims the next of so many pieces.
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

/// A piece that was claimed is copied. Whether it was the last.
pub fn finish<W: Word64>(copied: &W, tag: u32, count: u32) -> bool {
    let mut now = copied.load(Relaxed);
    loop {
        match copied.compare_exchange(now, now + 1) {
            Ok(_) => return now + 1 == word(tag, count),
            Err(other) => now = other,
        }
    }
}

/// Whether so many are copied.
pub fn is_finished<W: Word64>(copied: &W, tag: u32, count: u32) -> bool {
    let now = copied.load(Acquire);
    tag_of(now) != tag || now as u32 >= count
}

/// How far a message is.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Pieces {
    /// Pieces that somebody copies or has copied.
    claimed: AtomicU64,
    /// Pieces that are copied.
    copied: AtomicU64,
    /// Why one could not be: an errno.
    error: AtomicU32,
}

/// The pieces of one message: where they are counted, and how long it is.
#[derive(Debug, Clone, Copy)]
pub struct Shares<'a> {
    pieces: &'a Pieces,
    tag: u32,
    bytes: u64,
}

impl Pieces {
    /// Begins to count those of a new message, of which so many are claimed. Its tag is not the
    /// last one's, unless nobody can come late.
    pub fn begin(&self, tag: u32, claimed: u32) {
        self.copied.store(word(tag, 0), Relaxed);
        self.error.store(0, Release);
        self.claimed.store(word(tag, claimed), Release);
    }

    /// Those of the message with this tag and so many bytes.
    pub fn of(&self, tag: u32, bytes: u64) -> Shares<'_> {
        assert!(bytes <= BYTES_MAX);
        Shares { pieces: self, tag, bytes }
    }
}

impl Shares<'_> {
    fn count(&self) -> u32 {
        self.bytes.div_ceil(piece_of(self.bytes)) as u32
    }

    /// Claims a piece: where it begins, and its bytes.
    pub fn claim(&self) -> Option<(u64, u64)> {
        Some(self.piece(claim(&self.pieces.claimed, self.tag, self.count())?))
    }

    /// The first piece, of somebody for whom it is claimed from the beginning.
    pub fn first(&self) -> (u64, u64) {
        self.piece(0)
    }

    fn piece(&self, number: u32) -> (u64, u64) {
        let piece = piece_of(self.bytes);
        let begin = u64::from(number) * piece;
        (begin, piece.min(self.bytes - begin))
    }

    /// A piece that was claimed is copied, or cannot be: an errno. Whether it was the last.
    pub fn finish(&self, error: Option<i32>) -> bool {
        if let Some(error) = error {
            self.pieces.error.store(error as u32, Relaxed);
        }
        finish(&self.pieces.copied, self.tag, self.count())
    }

    /// Whether all are copied: then what hindered it, or 0.
    pub fn finished(&self) -> Option<i32> {
        if !is_finished(&self.pieces.copied, self.tag, self.count()) {
            return None;
        }
        let error = self.pieces.error.load(Acquire) as i32;
        // Words that are another message's by now say nothing of ours.
        let is_ours = tag_of(self.pieces.copied.load(Relaxed)) == self.tag;
        Some(if is_ours { error } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_message() {
        for bytes in [1, 4096, BYTES_MIN, 65537, 100_000, 131_072, 131_073, 1 << 20, 3 << 30] {
            let pieces = Pieces::default();
            pieces.begin(7, 0);
            let shares = pieces.of(7, bytes);
            let mut next = 0;
            while let Some((begin, length)) = shares.claim() {
                assert_eq!((begin, shares.finished()), (next, None));
                next += length;
                assert_eq!(shares.finish(None), next == bytes, "{bytes}");
            }
            assert_eq!((next, shares.finished()), (bytes, Some(0)));
        }
        assert_eq!(piece_of(BYTES_MIN) * 2, BYTES_MIN);
        assert_eq!(piece_of(u64::from(u32::MAX)), PIECE[0]);
    }

    #[test]
    fn what_cannot_be_copied_is_told() {
        let pieces = Pieces::default();
        pieces.begin(1, 1);
        let shares = pieces.of(1, 1000);
        assert_eq!((shares.first(), shares.claim()), ((0, 1000), None));
        assert!(shares.finish(Some(libc::EFAULT)));
        assert_eq!(shares.finished(), Some(libc::EFAULT));
        // The words are another message's.
        pieces.begin(2, 0);
        assert_eq!((shares.claim(), shares.finished()), (None, Some(0)));
    }
}
