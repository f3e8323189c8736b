//! Where in a region blocks lie: pure bookkeeping, of offsets, by the region's owner alone.
//!
//! A block that comes back is the next of its size to go out, while it is still in the
//! caches of those who used it, and its pages are there. What nobody has wanted for a
//! while goes back to the free areas, neighbours joined, of which the smallest that is
//! large enough is cut; then its pages can be given back to the system.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// Blocks are multiples of this.
pub const UNIT: usize = 4096;

/// The blocks of a region of `size` bytes.
#[derive(Debug)]
pub struct Allocator {
    /// Free areas: length by offset, and the same, shortest first.
    areas: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    /// Blocks that came back, by length; the latest last. With the time.
    warm: HashMap<usize, VecDeque<(usize, u64)>>,
}

/// The length of a block for `length` bytes: few different ones, at most an eighth more.
fn rounded(length: usize) -> Option<usize> {
    let step = (length.max(1).checked_next_power_of_two()? / 16).max(UNIT);
    length.max(1).checked_next_multiple_of(step)
}

impl Allocator {
    /// All of it is free.
    pub fn new(size: usize) -> Self {
        let size = size - size % UNIT;
        let mut new =
            Self { areas: BTreeMap::new(), by_length: BTreeSet::new(), warm: HashMap::new() };
        if size > 0 {
            new.insert(0, size);
        }
        new
    }

    /// A block of at least `length` bytes, and whether it is fresh: its pages may not be
    /// there.
    pub fn take(&mut self, length: usize) -> Option<(Range<usize>, bool)> {
        let length = rounded(length)?;
        if let Some((at, _)) = self.warm.get_mut(&length).and_then(VecDeque::pop_back) {
            return Some((at..at + length, false));
        }
        if let Some(block) = self.cut(length) {
            return Some((block, true));
        }
        // What is warm in other lengths may do when it is joined.
        for (length, blocks) in std::mem::take(&mut self.warm) {
            blocks.into_iter().for_each(|(at, _)| self.join(at..at + length));
        }
        Some((self.cut(length)?, true))
    }

    /// Takes back a block that [`Allocator::take`] gave, at time `now`.
    pub fn give(&mut self, block: Range<usize>, now: u64) {
        self.warm.entry(block.len()).or_default().push_back((block.start, now));
    }

    /// A block that nobody has wanted since `time`: it is a free area now, of which the
    /// pages are not needed.
    pub fn cool(&mut self, time: u64) -> Option<Range<usize>> {
        let is_old = |blocks: &VecDeque<(usize, u64)>| blocks.front().is_some_and(|b| b.1 < time);
        let (&length, blocks) = self.warm.iter_mut().find(|(_, blocks)| is_old(blocks))?;
        let (at, _) = blocks.pop_front()?;
        if blocks.is_empty() {
            self.warm.remove(&length);
        }
        self.join(at..at + length);
        Some(at..at + length)
    }

    fn cut(&mut self, length: usize) -> Option<Range<usize>> {
        let &(has, at) = self.by_length.range((length, 0)..).next()?;
        self.remove(at, has);
        if has > length {
            self.insert(at + length, has - length);
        }
        Some(at..at + length)
    }

    fn join(&mut self, block: Range<usize>) {
        let Range { mut start, mut end } = block;
        if let Some((&at, &length)) = self.areas.range(..start).next_back() {
            assert!(at + length <= start, "a block came back twice");
            if at + length == start {
                self.remove(at, length);
                start = at;
            }
        }
        if let Some(&length) = self.areas.get(&end) {
            self.remove(end, length);
            end += length;
        }
        self.insert(start, end - start);
    }

    fn insert(&mut self, at: usize, length: usize) {
        self.areas.insert(at, length);
        self.by_length.insert((length, at));
    }

    fn remove(&mut self, at: usize, length: usize) {
        self.areas.remove(&at);
        self.by_length.remove(&(length, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_block_that_was_freed_last_is_reused_first() {
        let mut allocator = Allocator::new(1 << 20);
        let [a, b] = [0, 1].map(|_| allocator.take(10_000).expect("room").0);
        allocator.give(a.clone(), 1);
        allocator.give(b.clone(), 2);
        assert_eq!(allocator.take(9_000), Some((b, false)));
        assert_eq!(allocator.cool(1), None);
        assert_eq!(allocator.cool(2), Some(a));
    }

    #[test]
    fn freed_neighbours_merge_into_one_area() {
        let mut allocator = Allocator::new(1 << 20);
        assert_eq!(allocator.take((1 << 20) + 1), None);
        assert_eq!(allocator.take(usize::MAX), None);
        let blocks: Vec<_> =
            std::iter::from_fn(|| allocator.take(4096)).map(|taken| taken.0).collect();
        assert_eq!(blocks.len(), 256);
        blocks.into_iter().rev().for_each(|block| allocator.give(block, 0));
        assert_eq!(allocator.take(1 << 20), Some((0..1 << 20, true)));
    }

    proptest! {
        #[test]
        fn blocks_are_large_enough_inside_and_apart(
            steps in prop::collection::vec((any::<bool>(), 1usize..300_000, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut allocator = Allocator::new(4 << 20);
            let mut out: Vec<Range<usize>> = Vec::new();
            for (now, (take, length, which)) in steps.into_iter().enumerate() {
                if take {
                    if let Some((block, _)) = allocator.take(length) {
                        prop_assert!(block.len() >= length && block.end <= 4 << 20);
                        prop_assert!(block.len() <= length + length / 8 + UNIT);
                        for other in &out {
                            prop_assert!(block.end <= other.start || other.end <= block.start);
                        }
                        out.push(block);
                    }
                } else if !out.is_empty() {
                    allocator.give(out.swap_remove(which.index(out.len())), now as u64);
                    allocator.cool((now as u64).saturating_sub(20));
                }
            }
            out.into_iter().for_each(|block| allocator.give(block, 0));
            prop_assert_eq!(allocator.take(4 << 20), Some((0..4 << 20, true)));
        }
    }
}
