//! Which addresses of the segment are taken: what the kernel does for mmap, munmap and brk,
//! where one process has one memory map and not one a node.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a page of the segment.
pub const PAGE: u64 = 4096;

/// What was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Where it begins.
    pub start: u64,
    /// It has been used before, and may hold anything.
    pub is_used: bool,
}

/// Addresses of a segment: what is loaded at first, then the heap, then mappings.
#[derive(Debug)]
pub struct Addresses {
    all: Range<u64>,
    heap: Range<u64>,
    /// The heap's end, to the byte; and where it has been.
    heap_end: u64,
    heap_most: u64,
    /// Holes below `end`: from, to.
    free: BTreeMap<u64, u64>,
    /// Nothing from here on has ever been used.
    end: u64,
}

impl Addresses {
    /// Of a segment in which all below `first` is taken, and room for a heap follows.
    pub fn new(all: Range<u64>, first: u64, heap_bytes: u64) -> Self {
        let heap = first..first + heap_bytes;
        let (heap_end, end) = (heap.start, heap.end);
        Self { all, heap, heap_end, heap_most: heap_end, free: BTreeMap::new(), end }
    }

    /// The end of what has ever been used.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The heap's end.
    pub fn heap_end(&self) -> u64 {
        self.heap_end
    }

    /// Addresses for so many bytes, if there are any.
    pub fn map(&mut self, bytes: u64) -> Option<Given> {
        let bytes = whole(bytes)?;
        let hole = self.free.iter().find(|(from, to)| **to - **from >= bytes);
        if let Some((&start, _)) = hole {
            self.take(start..start + bytes);
            return Some(Given { start, is_used: true });
        }
        let start = self.end;
        let end = start.checked_add(bytes).filter(|&end| end <= self.all.end)?;
        self.end = end;
        Some(Given { start, is_used: false })
    }

    /// These addresses, whatever is there.
    pub fn map_at(&mut self, start: u64, bytes: u64) -> Option<Given> {
        let range = self.range(start, bytes)?;
        let is_used = range.start < self.end;
        if range.end > self.end {
            let end = std::mem::replace(&mut self.end, range.end);
            if end < range.start {
                self.give(end..range.start);
            }
        }
        self.take(range);
        Some(Given { start, is_used })
    }

    /// Addresses back; which pages those are. Of the heap and what was loaded at first nothing
    /// is given to others.
    pub fn unmap(&mut self, start: u64, bytes: u64) -> Option<Range<u64>> {
        let range = self.range(start, bytes)?;
        let mapped = range.start.max(self.heap.end)..range.end.min(self.end);
        if !mapped.is_empty() {
            self.take(mapped.clone());
            self.give(mapped);
        }
        Some(range)
    }

    /// The pages of such a request, if they are the segment's.
    pub fn range(&self, start: u64, bytes: u64) -> Option<Range<u64>> {
        let end = start.checked_add(whole(bytes)?)?;
        let is_ours = start.is_multiple_of(PAGE) && self.all.start <= start && end <= self.all.end;
        is_ours.then_some(start..end)
    }

    /// The heap's new end, if it can be that; from which page to which it is to be opened or
    /// closed, and whether what is opened has been used before.
    pub fn set_heap_end(&mut self, end: u64) -> Option<(Range<u64>, Range<u64>, bool)> {
        if !(self.heap.start..=self.heap.end).contains(&end) {
            return None;
        }
        let up = |at: u64| at.next_multiple_of(PAGE);
        let before = up(std::mem::replace(&mut self.heap_end, end));
        let opened = before..up(end).max(before);
        let closed = up(end).min(before)..before;
        let is_used = opened.start < self.heap_most;
        self.heap_most = self.heap_most.max(opened.end);
        Some((opened, closed, is_used))
    }

    /// Takes what of it is free.
    fn take(&mut self, range: Range<u64>) {
        let holes: Vec<(u64, u64)> = self
            .free
            .range(..range.end)
            .rev()
            .map(|(&from, &to)| (from, to))
            .take_while(|&(_, to)| to > range.start)
            .collect();
        for (from, to) in holes {
            self.free.remove(&from);
            if from < range.start {
                self.free.insert(from, range.start);
            }
            if to > range.end {
                self.free.insert(range.end, to);
            }
        }
    }

    /// Frees what is not free.
    fn give(&mut self, range: Range<u64>) {
        let (mut from, mut to) = (range.start, range.end);
        if let Some((&before, &end)) = self.free.range(..=from).next_back()
            && end == from
        {
            from = before;
        }
        if let Some(end) = self.free.remove(&to) {
            to = end;
        }
        self.free.insert(from, to);
    }
}

fn whole(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE).filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 1 << 30;

    fn addresses() -> Addresses {
        Addresses::new(START..START + 1000 * PAGE, START + 10 * PAGE, 10 * PAGE)
    }

    #[test]
    fn fresh_addresses_follow_and_holes_are_used_again() {
        let mut it = addresses();
        let first = it.map(3 * PAGE).unwrap();
        assert_eq!(first, Given { start: START + 20 * PAGE, is_used: false });
        let second = it.map(1).unwrap();
        assert_eq!(second.start, first.start + 3 * PAGE);
        assert_eq!(it.unmap(first.start, 3 * PAGE), Some(first.start..second.start));
        assert_eq!(it.map(4 * PAGE).unwrap().start, second.start + PAGE);
        assert_eq!(it.map(2 * PAGE), Some(Given { start: first.start, is_used: true }));
        assert_eq!(it.map(2000 * PAGE), None);
        assert_eq!(it.map(0), None);
    }

    #[test]
    fn the_heap_grows_and_shrinks_in_its_room() {
        let mut it = addresses();
        let start = START + 10 * PAGE;
        assert_eq!(it.set_heap_end(start + 100), Some((start..start + PAGE, start..start, false)));
        let two = start + 2 * PAGE;
        assert_eq!(
            it.set_heap_end(two),
            Some((start + PAGE..two, start + PAGE..start + PAGE, false))
        );
        assert_eq!(it.set_heap_end(start), Some((two..two, start..two, false)));
        assert_eq!(it.set_heap_end(start + 1), Some((start..start + PAGE, start..start, true)));
        assert_eq!(it.set_heap_end(start + 11 * PAGE), None);
        assert_eq!(it.heap_end(), start + 1);
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice(steps in proptest::collection::vec((0..3u8, 0..40u64, 1..8u64), 0..200)) {
            let mut it = addresses();
            let mut taken = vec![false; 1000];
            for (what, at, pages) in steps {
                let start = START + (20 + at) * PAGE;
                let set = |taken: &mut Vec<bool>, start: u64, value| {
                    let first = ((start - START) / PAGE) as usize;
                    taken[first..first + pages as usize].fill(value);
                };
                match what {
                    0 => {
                        let given = it.map(pages * PAGE).unwrap();
                        let first = ((given.start - START) / PAGE) as usize;
                        prop_assert!(taken[first..first + pages as usize].iter().all(|&it| !it));
                        set(&mut taken, given.start, true);
                    }
                    1 => {
                        it.map_at(start, pages * PAGE).unwrap();
                        set(&mut taken, start, true);
                    }
                    _ => {
                        it.unmap(start, pages * PAGE).unwrap();
                        set(&mut taken, start, false);
                    }
                }
                for (&from, &to) in &it.free {
                    let range = ((from - START) / PAGE) as usize..((to - START) / PAGE) as usize;
                    prop_assert!(!range.is_empty() && taken[range].iter().all(|&it| !it));
                }
                let free: u64 = it.free.iter().map(|(from, to)| (to - from) / PAGE).sum();
                let below = ((it.end() - START) / PAGE) as usize;
                let counted = taken[20..below].iter().filter(|&&it| !it).count() as u64;
                prop_assert_eq!(free, counted);
            }
        }
    }
}
