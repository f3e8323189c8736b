//! The taken addresses. This is the kernel's work for mmap, munmap and brk, with one memory map
//! for one process over all nodes.
//!
//! The program may use all addresses except those of mappings of the nodes' own processes
//! ([`reserved`](Addresses::reserve)). Its image is where the kernel puts position-independent
//! programs, its mappings where the kernel puts libraries; a heap follows the image.

use std::ops::Range;

use crate::inherit::Inheritance;
use crate::ranges::Ranges;
use crate::raw::Errno;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The range that needs a privilege, as in vm.mmap_min_addr.
const LOWEST: u64 = 64 << 10;
/// End of the addresses of programs.
pub const END: u64 = 1 << 47;
/// The range of mappings without a requested address, as long as there is room: at the place where
/// sanitizers expect libraries.
const MAPPINGS: Range<u64> = 0x7e80_0000_0000..END;
/// Most that they begin behind that, in bytes. The libraries of the nodes' processes, at random
/// addresses too, begin 500 GiB behind it or later.
const MAPPINGS_SHIFT_MAX: u64 = 128 << 30;
/// And then: above what sanitizers and garbage collectors want for themselves; wherever there is
/// room.
const FURTHER: [Range<u64>; 2] = [0x1400_0000_0000..MAPPINGS.start, 4 << 30..MAPPINGS.start];
/// The range for MAP_32BIT.
const LOW: Range<u64> = 1 << 30..2 << 30;

/// The wanted place of a mapping whose address the kernel may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// Here, if that is free; or 0.
    pub hint: u64,
    /// Below 2 GiB.
    pub low: bool,
}

impl Hint {
    /// Of mmap(2)'s arguments.
    pub fn of_mmap(a: &[u64; 6]) -> Self {
        Self { hint: a[0], low: a[3] as i32 & libc::MAP_32BIT != 0 }
    }
}

/// Why addresses cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They make no sense.
    Invalid,
    /// The addresses do not exist, or belong to Nagaya.
    None,
    /// Too low.
    Forbidden,
}

/// A program's addresses.
#[derive(Debug)]
pub struct Addresses {
    heap: Range<u64>,
    /// The heap's end, to the byte.
    heap_end: u64,
    /// Free ranges.
    free: Ranges,
    /// Ranges that were read from files.
    files: Ranges,
    inheritance: Inheritance,
    /// Ranges that the program may not use.
    reserved: Ranges,
    /// The preferred range of mappings.
    mappings: Range<u64>,
}

impl Addresses {
    /// Of a program whose image takes `image`, behind which there is room for a heap. The random
    /// number `seed` selects the start of its mappings.
    pub fn new(image: Range<u64>, heap_bytes: u64, seed: u64) -> Self {
        let heap = image.end..image.end + heap_bytes;
        let mut free = Ranges::default();
        free.insert(LOWEST..END);
        free.remove(image.start..heap.end);
        let (files, inheritance, reserved) = Default::default();
        let shift = seed % (MAPPINGS_SHIFT_MAX / PAGE) * PAGE;
        let mappings = MAPPINGS.start + shift..MAPPINGS.end;
        Self { heap_end: heap.start, heap, free, files, inheritance, reserved, mappings }
    }

    /// These are not the program's.
    pub fn reserve(&mut self, range: Range<u64>) {
        self.free.remove(range.clone());
        self.reserved.insert(range);
    }

    /// The heap.
    pub fn heap(&self) -> Range<u64> {
        self.heap.start..self.heap_end
    }

    /// The heap's end.
    pub fn heap_end(&self) -> u64 {
        self.heap_end
    }

    /// Returns addresses for this many bytes, if there are any.
    pub fn map(&mut self, bytes: u64, hint: Hint) -> Option<u64> {
        let bytes = whole(bytes)?;
        let start = self.hinted(bytes, hint).or_else(|| match hint.low {
            true => self.first_in(&LOW, bytes),
            false => {
                [&self.mappings].into_iter().chain(&FURTHER).find_map(|it| self.first_in(it, bytes))
            }
        })?;
        self.map_at(start..start + bytes);
        Some(start)
    }

    /// The hint, if it can be that.
    fn hinted(&self, bytes: u64, hint: Hint) -> Option<u64> {
        let start = (hint.hint - hint.hint % PAGE).max(LOWEST);
        let range = start..start.checked_add(bytes).filter(|_| hint.hint > 0)?;
        let fits = !hint.low || range.end <= LOW.end;
        (fits && self.free.covers(&range)).then_some(start)
    }

    fn first_in(&self, zone: &Range<u64>, bytes: u64) -> Option<u64> {
        // The last first.
        let holes: Vec<Range<u64>> = self.free.met(zone).collect();
        let clip = |hole: &Range<u64>| hole.start.max(zone.start)..hole.end.min(zone.end);
        holes.iter().rev().map(clip).find(|it| it.end - it.start >= bytes).map(|it| it.start)
    }

    /// Takes these addresses, also over present mappings.
    pub fn map_at(&mut self, range: Range<u64>) {
        self.files.remove(range.clone());
        self.inheritance.forget(&range);
        self.free.remove(range);
    }

    /// Nothing is there.
    pub fn is_free(&self, range: &Range<u64>) -> bool {
        self.free.covers(range)
    }

    /// Returns the ranges of the program.
    pub fn taken(&self) -> Ranges {
        let mut taken = Ranges::default();
        taken.insert(LOWEST..END);
        self.free.iter().chain(self.reserved.iter()).for_each(|range| taken.remove(range));
        taken.remove(self.behind_heap());
        taken
    }

    /// Returns the taken addresses in a range that are of no file.
    pub fn taken_in(&self, near: &Range<u64>) -> Ranges {
        let mut taken = Ranges::default();
        taken.insert(near.start.max(LOWEST)..near.end.min(END));
        let others = [&self.free, &self.reserved, &self.files];
        others.into_iter().flat_map(|it| it.met(near)).for_each(|range| taken.remove(range));
        taken.remove(self.behind_heap());
        taken
    }

    /// Bytes that the program has.
    pub fn taken_bytes(&self) -> u64 {
        self.taken().iter().map(|range| range.end - range.start).sum()
    }

    /// Bytes of these addresses at which nothing is.
    pub fn free_bytes(&self, range: &Range<u64>) -> u64 {
        let inside = |it: Range<u64>| it.end.min(range.end) - it.start.max(range.start);
        self.free.met(range).map(inside).sum()
    }

    /// Returns the room behind the heap, in whole pages.
    pub fn behind_heap(&self) -> Range<u64> {
        self.heap_end.next_multiple_of(PAGE)..self.heap.end
    }

    /// Something of the program is at all of these addresses.
    pub fn is_taken(&self, range: &Range<u64>) -> bool {
        let behind_heap = self.behind_heap();
        let meets = range.start < behind_heap.end && behind_heap.start < range.end;
        let is_there = range.start >= LOWEST && range.end <= END && !meets;
        is_there
            && self.free.met(range).next().is_none()
            && self.reserved.met(range).next().is_none()
    }

    /// Marks a range as mapped from a file.
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

    /// Returns the content of these addresses in forked children.
    pub fn inheritance(&self) -> &Inheritance {
        &self.inheritance
    }

    /// Sets the content of these addresses in a forked child, by one of the
    /// [`ADVICES`](crate::inherit::ADVICES), or returns an error.
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

    /// Addresses back; the heap's room is kept for it.
    pub fn unmap(&mut self, range: Range<u64>) {
        self.inheritance.forget(&range);
        self.files.remove(range.clone());
        let mut free = Ranges::default();
        free.insert(range.start.max(LOWEST)..range.end);
        let kept: Vec<_> = self.reserved.met(&range).collect();
        kept.into_iter().chain([self.heap.clone()]).for_each(|kept| free.remove(kept));
        free.iter().for_each(|range| self.free.insert(range));
    }

    /// The pages of such a request, if a program can have them.
    pub fn range(&self, start: u64, bytes: u64) -> Option<Range<u64>> {
        let end = start.checked_add(whole(bytes)?)?;
        (start.is_multiple_of(PAGE) && end <= END).then_some(start..end)
    }

    /// Those of a request for these very addresses.
    pub fn fixed(&self, start: u64, bytes: u64) -> Result<Range<u64>, Refusal> {
        if !start.is_multiple_of(PAGE) {
            return Err(Refusal::Invalid);
        }
        let range = self.range(start, bytes).ok_or(Refusal::None)?;
        match range.start < LOWEST {
            true => Err(Refusal::Forbidden),
            false if self.reserved.met(&range).next().is_some() => Err(Refusal::None),
            false => Ok(range),
        }
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

    const START: u64 = 0x5500_0000_0000;
    const FIRST: u64 = MAPPINGS.start;
    const ANYWHERE: Hint = Hint { hint: 0, low: false };

    fn addresses() -> Addresses {
        let mut it = Addresses::new(START..START + 10 * PAGE, 10 * PAGE, 0);
        it.reserve(FIRST + 1000 * PAGE..END);
        it
    }

    #[test]
    fn fresh_addresses_follow_and_holes_are_used_again() {
        let mut it = addresses();
        let first = it.map(3 * PAGE, ANYWHERE).unwrap();
        assert_eq!(first, FIRST);
        let second = it.map(1, ANYWHERE).unwrap();
        assert_eq!(second, first + 3 * PAGE);
        it.unmap(first..second);
        assert!(it.is_free(&(first..second)) && !it.is_taken(&(second - PAGE..second + PAGE)));
        assert_eq!(it.map(4 * PAGE, ANYWHERE).unwrap(), second + PAGE);
        assert_eq!(it.map(2 * PAGE, ANYWHERE), Some(first));
        assert_eq!(it.map(2000 * PAGE, ANYWHERE), Some(FURTHER[0].start), "where there is room");
        assert_eq!(it.map(END, ANYWHERE), None);
        assert_eq!(it.map(0, ANYWHERE), None);
    }

    #[test]
    fn mappings_begin_at_a_random_page_near_their_usual_place() {
        for seed in [1, 17, u64::MAX, u64::MAX / 3] {
            let mut it = Addresses::new(START..START + 10 * PAGE, 10 * PAGE, seed);
            let first = it.map(PAGE, ANYWHERE).expect("there is room");
            assert_eq!(first, FIRST + seed % (MAPPINGS_SHIFT_MAX / PAGE) * PAGE);
            // The range in front of it is used where the rest is not enough.
            it.reserve(first + 10 * PAGE..END);
            assert_eq!(it.map(20 * PAGE, ANYWHERE), Some(FURTHER[0].start));
        }
    }

    #[test]
    fn hints_are_followed_where_nothing_is() {
        let mut it = addresses();
        let at = |hint| Hint { hint, low: false };
        assert_eq!(it.map(PAGE, at(5 << 40)), Some(5 << 40));
        assert_eq!(it.map(PAGE, at((6 << 40) + 1)), Some(6 << 40), "to a whole page");
        assert_eq!(it.map(PAGE, at(5 << 40)), Some(FIRST));
        assert_eq!(it.map(PAGE, at(FIRST + 1000 * PAGE)), Some(FIRST + PAGE), "that is ours");
        assert_eq!(it.map(PAGE, at(PAGE)), Some(LOWEST));
        assert_eq!(it.map(PAGE, at(u64::MAX - 5)), Some(FIRST + 2 * PAGE));
        let low = it.map(PAGE, Hint { hint: 5 << 40, low: true }).unwrap();
        assert!(LOW.contains(&low));
        assert_eq!(it.map(2 << 30, Hint { hint: 0, low: true }), None);
    }

    #[test]
    fn fixed_addresses_are_any_but_ours() {
        let it = addresses();
        assert_eq!(it.fixed(0x7fff_8000, 16 << 40), Ok(0x7fff_8000..0x1000_7fff_8000));
        assert_eq!(it.fixed(FIRST + 5, PAGE), Err(Refusal::Invalid));
        assert_eq!(it.fixed(FIRST + 999 * PAGE, 2 * PAGE), Err(Refusal::None));
        assert_eq!(it.fixed(END - PAGE, 2 * PAGE), Err(Refusal::None));
        assert_eq!(it.fixed(0, PAGE), Err(Refusal::Forbidden));
    }

    #[test]
    fn the_heap_grows_and_shrinks_in_its_room() {
        let mut it = addresses();
        let start = START + 10 * PAGE;
        let two = start + 2 * PAGE;
        assert_eq!(it.set_heap_end(start + 100), Some((start..start + PAGE, start..start)));
        assert_eq!(it.set_heap_end(two), Some((start + PAGE..two, start + PAGE..start + PAGE)));
        assert!(it.is_taken(&(start..two)) && !it.is_taken(&(start..two + PAGE)));
        it.unmap(START..two);
        assert!(it.is_free(&(START..start)) && !it.is_free(&(start..two)), "its room is kept");
        assert!(it.taken().iter().eq(std::iter::once(start..two)));
        assert_eq!(it.set_heap_end(start), Some((two..two, start..two)));
        assert_eq!(it.set_heap_end(start + 11 * PAGE), None);
        assert_eq!(it.heap_end(), start);
    }

    #[test]
    fn file_backed_ranges_are_known() {
        let mut it = addresses();
        let at = it.map(8 * PAGE, ANYWHERE).unwrap();
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
        fn nothing_is_given_twice(steps in proptest::collection::vec((0..3u8, 0..40u64, 1..8u64), 0..100)) {
            let mut it = addresses();
            let mut taken = vec![false; 1000];
            for (what, at, pages) in steps {
                let start = FIRST + at * PAGE;
                let bytes = pages * PAGE;
                let of = |start: u64| {
                    let first = ((start - FIRST) / PAGE) as usize;
                    first..first + pages as usize
                };
                let is_free = !taken[of(start)].contains(&true);
                prop_assert_eq!(it.is_free(&(start..start + bytes)), is_free);
                let all = !taken[of(start)].contains(&false);
                prop_assert_eq!(it.is_taken(&(start..start + bytes)), all);
                match what {
                    0 => {
                        let given = it.map(bytes, ANYWHERE).unwrap();
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
                let mapped: u64 = it.taken().met(&MAPPINGS).map(|it| (it.end - it.start) / PAGE).sum();
                prop_assert_eq!(mapped, taken.iter().filter(|&&it| it).count() as u64);
            }
        }
    }
}
