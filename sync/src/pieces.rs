//! A large message is split into pieces, which its sender and its receiver copy at the same time.
//! Each copier claims one piece after the other.
//!
//! Two words count the claimed and the copied pieces. The words are reused for the next message,
//! and a tag in them names the current message. A late copier finds another tag. Then no piece is
//! left to copy, and its message is complete. `tests/pieces_model.rs` models it with loom.
//!
//! A receiver can also expose its buffer ([`Exposed`]): then the second copier finds the address
//! beside these words.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::futex;
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

/// Counts a claimed piece as copied. Returns true if it was the last one. A copier whose message
/// was given up counts nothing.
pub fn finish<W: Word64>(copied: &W, tag: u32, count: u32) -> bool {
    let mut now = copied.load(Relaxed);
    loop {
        if tag_of(now) != tag {
            return false;
        }
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

/// Starts the next message, whose `values` its copiers find in `words`. Returns its tag, which is
/// not 0. The caller is the only one that does this, and no copier of the previous message copies.
pub fn expose<W: Word64, const N: usize>(
    claimed: &W,
    copied: &W,
    words: [&W; N],
    values: [u64; N],
) -> u32 {
    let tag = tag_of(claimed.load(Relaxed)).wrapping_add(1).max(1);
    // A late copier of the previous message must not claim a piece with the new values.
    claimed.store(word(tag, u32::MAX), Release);
    for (word, value) in words.into_iter().zip(values) {
        word.store(value, Release);
    }
    begin(claimed, copied, tag, 0);
    tag
}

/// Returns the values in `words`. If another message has begun meanwhile, they may be its values;
/// then the next claim for the former message fails.
pub fn exposed<W: Word64, const N: usize>(words: [&W; N]) -> [u64; N] {
    words.map(|word| word.load(Acquire))
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

    /// Copies pieces by `copy` until none is left: first `claimed`, if there is one. `copy` gets
    /// offset and size, and fails with an errno. Returns true if a piece copied here was the last
    /// of the message to be copied.
    pub fn copy(
        &self,
        mut claimed: Option<(u64, u64)>,
        mut copy: impl FnMut(u64, u64) -> Result<(), i32>,
    ) -> bool {
        let mut was_last = false;
        while let Some((offset, length)) = claimed.take().or_else(|| self.claim()) {
            was_last |= self.finish(copy(offset, length).err());
        }
        was_last
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

/// A buffer that its owner exposes for one message at a time, and the progress of that message.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Exposed {
    pieces: Pieces,
    /// Address of the buffer.
    to: AtomicU64,
    /// Bytes that are copied.
    bytes: AtomicU64,
    /// Offset of these bytes in the sender's data.
    from: AtomicU64,
}

/// A message that a second copier may copy into an exposed buffer.
#[derive(Debug, Clone, Copy)]
pub struct Helped<'a> {
    /// Address of the owner's buffer.
    pub to: u64,
    /// Bytes that are copied.
    pub bytes: u64,
    /// Offset of these bytes in the sender's data.
    pub from: u64,
    /// The pieces.
    pub shares: Shares<'a>,
}

impl Exposed {
    /// Exposes `bytes` bytes at address `to`, for the sender's data from offset `from` on. Returns
    /// the tag, which is not 0. Only the owner calls this, when no copier can be copying.
    ///
    /// # Panics
    /// Panics if `bytes` exceeds [`BYTES_MAX`].
    pub fn expose(&self, to: u64, bytes: u64, from: u64) -> (u32, Shares<'_>) {
        let Pieces { claimed, copied, error } = &self.pieces;
        error.store(0, Relaxed);
        let tag = expose(claimed, copied, self.words(), [to, bytes, from]);
        (tag, self.pieces.of(tag, bytes))
    }

    /// Returns the tag of the message for which the buffer is, or was, exposed.
    pub fn tag(&self) -> u32 {
        tag_of(self.pieces.claimed.load(Acquire))
    }

    /// Returns message `tag`, which the owner has begun. If it is over, no piece of it is left, and
    /// the addresses may be of another one. `None` if the length is invalid.
    pub fn helped(&self, tag: u32) -> Option<Helped<'_>> {
        let [to, bytes, from] = exposed(self.words());
        let shares = Shares { pieces: &self.pieces, tag, bytes };
        (bytes <= BYTES_MAX).then_some(Helped { to, bytes, from, shares })
    }

    /// Returns the word on which the owner sleeps until all pieces are copied.
    pub fn futex(&self) -> &AtomicU32 {
        futex::low_half(&self.pieces.copied)
    }

    fn words(&self) -> [&AtomicU64; 3] {
        [&self.to, &self.bytes, &self.from]
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
