//! Which addresses of the segment are taken: what the kernel does for mmap, munmap and brk,
//! where one process has one memory map and not one a node.

use std::ops::Range;

use crate::inherit::Inheritance;
use crate::ranges::Ranges;
use crate::raw::Errno;

/// Bytes of a page of the segment.
pub const PAGE: u64 = 4096;

/// Addresses of a segment: what is loaded at first, then the heap, then mappings.
#[derive(Debug)]
pub struct Addresses {
    all: Range<u64>,
    heap: Range<u64>,
    /// The heap's end, to the byte.
    heap_end: u64,
    /// Holes below `end`: they hold zeros, or will, and are closed.
    free: Ranges,
    /// What was read from files.
    files: Ranges,
    inheritance: Inheritance,
    /// Nothing from here on has ever been used.
    end: u64,
}

impl Addresses {
    /// Of a segment in which all below `first` is taken, and room for a heap follows.
    pub fn new(all: Range<u64>, first: u64, heap_bytes: u64) -> Self {
        let heap = first..first + heap_bytes;
        let (heap_end, end) = (heap.start, heap.end);
        let (free, files, inheritance) = Default::default();
        Self { all, heap, heap_end, free, files, inheritance, end }
    }

    /// The end of what has ever been used.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The heap.
    pub fn heap(&self) -> Range<u64> {
        self.heap.start..self.heap_end
    }

    /// The heap's end.
    pub fn heap_end(&self) -> u64 {
        self.heap_end
    }

    /// Addresses for so many bytes, if there are any.
    pub fn map(&mut self, bytes: u64) -> Option<u64> {
        let bytes = whole(bytes)?;
        let hole = self.free.first_of(bytes).map(|hole| hole.start);
        let start = hole.unwrap_or(self.end);
        let end = start.checked_add(bytes).filter(|&end| end <= self.all.end)?;
        self.map_at(start..end);
        Some(start)
    }

    /// These addresses, whatever is there.
    pub fn map_at(&mut self, range: Range<u64>) {
        if range.end > self.end {
            let end = std::mem::replace(&mut self.end, range.end);
            if end < range.start {
                self.free.insert(end..range.start);
            }
        }
        self.files.remove(range.clone());
        self.inheritance.forget(&range);
        self.free.remove(range);
    }

    /// Nothing is there.
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        self.free.covers(&(range.start..range.end.min(self.end).max(range.start)))
    }

    /// Where nothing is, below the end.
    pub fn holes(&self) -> impl Iterator<Item = Range<u64>> {
        self.free.iter().chain([self.behind_heap()])
    }

    fn behind_heap(&self) -> Range<u64> {
        self.heap_end.next_multiple_of(PAGE)..self.heap.end
    }

    /// Something is at all of these addresses.
    pub fn is_taken(&self, range: &Range<u64>) -> bool {
        let behind_heap = self.behind_heap();
        let meets = range.start < behind_heap.end && behind_heap.start < range.end;
        range.end <= self.end && !meets && self.free.met(range).next().is_none()
    }

    /// What was mapped there is of a file.
    pub fn is_of_file(&mut self, range: Range<u64>) {
        self.files.insert(range);
    }

    /// Of these, the first that are of no file.
    pub fn not_of_file(&self, range: Range<u64>) -> Range<u64> {
        let mut rest = range;
        let mut files: Vec<Range<u64>> = self.files.met(&rest).collect();
        while let Some(file) = files.pop() {
            if file.start > rest.start {
                return rest.start..file.start;
            }
            rest.start = file.end.min(rest.end);
        }
        rest
    }

    /// What forked children get of these addresses.
    pub fn inheritance(&self) -> &Inheritance {
        &self.inheritance
    }

    /// A forked child gets these as one of the [`ADVICES`](crate::inherit::ADVICES) says; or an
    /// error.
    pub fn is_inherited(&mut self, range: Range<u64>, advice: i32) -> Result<(), Errno> {
        if !self.is_taken(&range) {
            return Err(libc::ENOMEM);
        }
        if advice == libc::MADV_WIPEONFORK && self.files.met(&range).next().is_some() {
            return Err(libc::EINVAL);
        }
        self.inheritance.advise(range, advice);
        Ok(())
    }

    /// Addresses back. Of the heap and what was loaded at first nothing is given to others.
    pub fn unmap(&mut self, range: Range<u64>) {
        let mapped = range.start.max(self.heap.end)..range.end.min(self.end);
        self.inheritance.forget(&range);
        self.files.remove(range);
        self.free.insert(mapped);
    }

    /// The pages of such a request, if they are the segment's.
    pub fn range(&self, start: u64, bytes: u64) -> Option<Range<u64>> {
        let end = start.checked_add(whole(bytes)?)?;
        let is_ours = start.is_multiple_of(PAGE) && self.all.start <= start && end <= self.all.end;
        is_ours.then_some(start..end)
    }

    /// The heap's new end, if it can be that; from which page to which it is to be opened and
    /// closed: one of them is empty.
    pub fn set_heap_end(&mut self, end: u64) -> Option<(Range<u64>, Range<u64>)> {
        if !(self.heap.start..=self.heap.end).contains(&end) {
            return None;
        }
        let up = |at: u64| at.next_multiple_of(PAGE);
        let before = up(std::mem::replace(&mut self.heap_end, end));
        self.inheritance.forget(&(up(end)..before.max(up(end))));
        Some((before..up(end).max(before), up(end).min(before)..before))
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
        assert_eq!(first, START + 20 * PAGE);
        let second = it.map(1).unwrap();
        assert_eq!(second, first + 3 * PAGE);
        it.unmap(first..second);
        assert!(it.is_free(&(first..second)) && !it.is_taken(&(second - PAGE..second + PAGE)));
        assert_eq!(it.map(4 * PAGE).unwrap(), second + PAGE);
        assert_eq!(it.map(2 * PAGE), Some(first));
        assert_eq!(it.map(2000 * PAGE), None);
        assert_eq!(it.map(0), None);
    }

    #[test]
    fn the_heap_grows_and_shrinks_in_its_room() {
        let mut it = addresses();
        let start = START + 10 * PAGE;
        let two = start + 2 * PAGE;
        assert_eq!(it.set_heap_end(start + 100), Some((start..start + PAGE, start..start)));
        assert_eq!(it.set_heap_end(two), Some((start + PAGE..two, start + PAGE..start + PAGE)));
        assert!(it.is_taken(&(start..two)) && !it.is_taken(&(start..two + PAGE)));
        assert_eq!(it.set_heap_end(start), Some((two..two, start..two)));
        assert_eq!(it.set_heap_end(start + 11 * PAGE), None);
        assert_eq!(it.heap_end(), start);
    }

    #[test]
    fn what_is_of_files_is_known() {
        let mut it = addresses();
        let at = it.map(8 * PAGE).unwrap();
        let pages = |from: u64, to: u64| at + from * PAGE..at + to * PAGE;
        it.is_of_file(pages(2, 3));
        it.is_of_file(pages(3, 5));
        assert_eq!(it.not_of_file(pages(0, 8)), pages(0, 2));
        assert_eq!(it.not_of_file(pages(2, 8)), pages(5, 8));
        assert!(it.not_of_file(pages(2, 5)).is_empty());
        it.map_at(pages(2, 3));
        it.unmap(pages(4, 5));
        assert_eq!(it.not_of_file(pages(0, 8)), pages(0, 3));
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice(steps in proptest::collection::vec((0..3u8, 0..40u64, 1..8u64), 0..200)) {
            let mut it = addresses();
            let mut taken = vec![false; 1000];
            for (what, at, pages) in steps {
                let start = START + (20 + at) * PAGE;
                let bytes = pages * PAGE;
                let of = |start: u64| {
                    let first = ((start - START) / PAGE) as usize;
                    first..first + pages as usize
                };
                let is_free = !taken[of(start)].contains(&true);
                prop_assert_eq!(it.is_free(&(start..start + bytes)), is_free);
                let all = !taken[of(start)].contains(&false);
                prop_assert_eq!(it.is_taken(&(start..start + bytes)), all);
                match what {
                    0 => {
                        let given = it.map(bytes).unwrap();
                        prop_assert!(!taken[of(given)].contains(&true));
                        taken[of(given)].fill(true);
                    }
                    1 => {
                        it.map_at(start..start + bytes);
                        taken[of(start)].fill(true);
                    }
                    _ => {
                        it.unmap(start..start + bytes);
                        taken[of(start)].fill(false);
                    }
                }
                let free: u64 = it.free.iter().map(|hole| (hole.end - hole.start) / PAGE).sum();
                let below = ((it.end() - START) / PAGE) as usize;
                let counted = taken[20..below].iter().filter(|&&it| !it).count() as u64;
                prop_assert_eq!(free, counted);
            }
        }
    }
}
