//! Shares of a reduction's elements: each rank combines a slice, piece by piece.

use std::ops::Range;

/// Bytes that are combined at once. They stay in the cache meanwhile.
pub const PIECE: usize = 16 << 10;
/// Slices begin at multiples of this number of bytes.
const LINE: usize = 64;

/// Returns the elements that a rank combines: an equal share, in whole cache lines if the size of
/// an element allows it.
pub fn slice(count: usize, size: usize, rank: usize, ranks: usize) -> Range<usize> {
    let whole = (LINE / size).max(1);
    let each = count.div_ceil(ranks).next_multiple_of(whole);
    (rank * each).min(count)..((rank + 1) * each).min(count)
}

/// Returns a slice's pieces: ranges of elements of at most [`PIECE`] bytes.
pub fn pieces(slice: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let length = (PIECE / size).max(1);
    slice.clone().step_by(length).map(move |first| first..slice.end.min(first + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_their_pieces_cover_all_elements_once() {
        for (count, size, ranks) in
            [(0, 4, 3), (1, 8, 2), (1000, 4, 3), (100_000, 16, 7), (37, 24, 5)]
        {
            let mut next = 0;
            for rank in 0..ranks {
                for piece in pieces(slice(count, size, rank, ranks), size) {
                    assert_eq!(piece.start, next, "{count} {size} {ranks}");
                    assert!(piece.len() * size <= PIECE);
                    next = piece.end;
                }
            }
            assert_eq!(next, count);
        }
    }
}
