//! The allocator of a region: pure bookkeeping of offsets, by the region's owner.
//!
//! A block that comes back is the next of its size to be used: it is still in the caches of its
//! users, and its pages are populated. Blocks that nobody has used for some time join the free
//! areas, merged with their neighbours, and their pages can be returned to the system. A new block
//! is cut from the smallest area that is large enough.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// Blocks are multiples of this, in bytes.
pub const UNIT: usize = 4096;

/// The blocks of a region of `size` bytes.
#[derive(Debug)]
pub struct Allocator {
    /// Free areas: length by offset; and the same areas by length.
    areas: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    /// Returned blocks and the times of their return, by length; the latest is the last.
    warm: HashMap<usize, VecDeque<(usize, u64)>>,
}

/// Rounds to the length of a block: few different lengths, at most an eighth more.
fn rounded(length: usize) -> Option<usize> {
    let step = (length.max(1).checked_next_power_of_two()? / 16).max(UNIT);
    length.max(1).checked_next_multiple_of(step)
}

impl Allocator {
    /// Returns the allocator of a region that is free.
    pub fn new(size: usize) -> Self {
        let size = size - size % UNIT;
        let mut new =
            Self { areas: BTreeMap::new(), by_length: BTreeSet::new(), warm: HashMap::new() };
        if size > 0 {
            new.insert(0, size);
        }
        new
    }

    /// Returns a block of at least `length` bytes, and true if it is fresh: its pages may not be
    /// populated.
    pub fn take(&mut self, length: usize) -> Option<(Range<usize>, bool)> {
        let length = rounded(length)?;
        if let Some((at, _)) = self.warm.get_mut(&length).and_then(VecDeque::pop_back) {
            return Some((at..at + length, false));
        }
        if let Some(block) = self.cut(length) {
            return Some((block, true));
        }
        // Returned blocks of other lengths may suffice when they are merged.
        for (length, blocks) in std::mem::take(&mut self.warm) {
            blocks.into_iter().for_each(|(at, _)| self.join(at..at + length));
        }
        Some((self.cut(length)?, true))
    }

    /// Returns a block from [`Allocator::take`], at time `now`.
    pub fn give(&mut self, block: Range<usize>, now: u64) {
        self.warm.entry(block.len()).or_default().push_back((block.start, now));
    }

    /// Makes a block that was returned before `time` a free area. Returns the block, whose pages
    /// are not needed.
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
            assert!(at + length <= start, "a block was returned twice");
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
