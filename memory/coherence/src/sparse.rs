//! A sparse table of pages. It has an entry for each used page only, and may span the whole address
//! space.
//!
//! The entries of 64 neighbouring pages share one vector, with a bit for each page that has an
//! entry. So sparse use of memory costs no more per used page than dense use.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::message::Page;

/// Pages of a part: the number of bits of [`Part::used`].
const PART: Page = u64::BITS as Page;

/// The entries of neighbouring pages.
#[derive(Clone, Debug)]
struct Part<T> {
    /// Bit mask of the pages that have an entry. The lowest bit is the first page.
    used: u64,
    /// The entries, in the order of their pages.
    entries: Vec<T>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { used: 0, entries: Vec::new() }
    }
}

impl<T> Part<T> {
    fn has(&self, at: u32) -> bool {
        self.used >> at & 1 == 1
    }

    /// Returns the number of entries before this page.
    fn index(&self, at: u32) -> usize {
        (self.used & ((1 << at) - 1)).count_ones() as usize
    }

    fn add(&mut self, at: u32, entry: T) {
        // A vector starts with room for four entries, but many parts have one.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len().max(1));
        }
        self.entries.insert(self.index(at), entry);
        self.used |= 1 << at;
    }

    /// Keeps only the entries of the pages in `kept`.
    fn keep(&mut self, kept: u64) {
        let mut used = self.used;
        self.entries.retain(|_| {
            let lowest = used & used.wrapping_neg();
            used ^= lowest;
            lowest & kept != 0
        });
        self.entries.shrink_to_fit();
        self.used &= kept;
    }
}

/// A table with an entry for each used page.
#[derive(Clone, Debug)]
pub struct Sparse<T> {
    pages: Page,
    /// The parts that contain a used page, by number.
    parts: BTreeMap<Page, Part<T>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { pages: 0, parts: BTreeMap::new() }
    }
}

/// Returns the part of a page, and the page's index in it.
fn place(page: Page) -> (Page, u32) {
    (page / PART, (page % PART) as u32)
}

impl<T> Sparse<T> {
    /// Returns the total number of pages, used or not.
    pub fn pages(&self) -> Page {
        self.pages
    }

    /// Adds unused pages.
    pub fn grow(&mut self, pages: Page) {
        self.pages += pages;
    }

    /// Returns the entry of a page, if it is used.
    pub fn get(&self, page: Page) -> Option<&T> {
        let (part, at) = place(page);
        let part = self.parts.get(&part)?;
        part.has(at).then(|| &part.entries[part.index(at)])
    }

    /// Returns the entry of a page. Calls `make` to create the entry if the page was unused.
    ///
    /// # Panics
    /// The table has no such page.
    pub fn use_with(&mut self, page: Page, make: impl FnOnce(Page) -> T) -> &mut T {
        assert!(page < self.pages, "page {page} is not there");
        let (part, at) = place(page);
        let part = self.parts.entry(part).or_default();
        if !part.has(at) {
            part.add(at, make(page));
        }
        let index = part.index(at);
        &mut part.entries[index]
    }

    /// Removes the entries of these pages, which become unused.
    pub fn forget(&mut self, pages: Range<Page>) {
        if pages.is_empty() {
            return;
        }
        let last = (pages.end - 1) / PART;
        let parts: Vec<Page> =
            self.parts.range(pages.start / PART..=last).map(|(&part, _)| part).collect();
        for number in parts {
            let first = number * PART;
            let (from, to) = (pages.start.max(first) - first, pages.end.min(first + PART) - first);
            let gone = (u64::MAX >> (PART - (to - from))) << from;
            let Some(part) = self.parts.get_mut(&number) else { continue };
            if part.used & !gone == 0 {
                self.parts.remove(&number);
            } else if part.used & gone != 0 {
                part.keep(!gone);
            }
        }
    }

    /// Returns the first of these pages that is used, or the end of the range.
    pub fn next_used(&self, pages: Range<Page>) -> Page {
        if pages.is_empty() {
            return pages.start;
        }
        let last = (pages.end - 1) / PART;
        for (&number, part) in self.parts.range(pages.start / PART..=last) {
            let begin = (number * PART).max(pages.start);
            let rest = part.used >> (begin % PART);
            if rest != 0 {
                return (begin + Page::from(rest.trailing_zeros())).min(pages.end);
            }
        }
        pages.end
    }

    /// Returns all entries, with their pages.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Page, &mut T)> {
        self.parts.iter_mut().flat_map(|(&number, part)| {
            let used = part.used;
            let pages = (0..PART).filter(move |at| used >> at & 1 == 1);
            pages.map(move |at| number * PART + at).zip(&mut part.entries)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_are_used_have_entries() {
        let mut table: Sparse<u64> = Sparse::default();
        table.grow(100);
        assert_eq!((table.get(99), table.next_used(0..100), table.pages()), (None, 100, 100));
        *table.use_with(70, |page| page) += 1000;
        assert_eq!((table.get(70), table.get(69), table.get(71)), (Some(&1070), None, None));
        // Ranges that come from other nodes may start beyond the end of the table.
        let ranges = [(0, 100), (70, 100), (71, 100), (5, 9), (0, 70), (500, 100)];
        let next = ranges.map(|(start, end)| table.next_used(start..end));
        assert_eq!(next, [70, 70, 100, 9, 70, 500]);
        table.grow(1 << 35);
        assert_eq!(*table.use_with(70, |_| unreachable!("it is used")), 1070);
        assert_eq!((table.get(1_000_099), table.get(1 << 34)), (None, None));
        *table.use_with((1 << 34) + 3, |page| page) += 1;
        assert_eq!(table.next_used(71..1 << 35), (1 << 34) + 3);
        *table.use_with(64, |page| page) += 2;
        let used: Vec<(u64, u64)> = table.iter_mut().map(|(page, of)| (page, *of)).collect();
        assert_eq!(used, [(64, 66), (70, 1070), ((1 << 34) + 3, (1 << 34) + 4)]);
    }

    /// Each page keeps the value that was stored last, unless it was removed. A part with one page
    /// has room for one entry.
    #[test]
    fn forgotten_entries_take_no_room() {
        let mut random = crate::random::Random::new(7);
        let (mut table, mut wanted) = (Sparse::default(), BTreeMap::new());
        table.grow(1000);
        for round in 0..4000u64 {
            let page = random.below(1000) as Page;
            if random.one_in(20) {
                let pages = page..(page + random.below(200) as Page).min(1000);
                table.forget(pages.clone());
                wanted.retain(|page, _| !pages.contains(page));
            } else {
                *table.use_with(page, |_| 0) = round;
                wanted.insert(page, round);
            }
            let held: Vec<(Page, u64)> = table.iter_mut().map(|(page, it)| (page, *it)).collect();
            assert!(held.iter().copied().eq(wanted.iter().map(|(page, it)| (*page, *it))));
            assert_eq!(table.get(page), wanted.get(&page));
            let next = wanted.range(page..).next().map_or(1000, |(next, _)| *next);
            assert_eq!(table.next_used(page..1000), next);
        }
        table.forget(0..1000);
        assert!(table.parts.is_empty());
        table.use_with(500, |_| 0);
        assert_eq!(table.parts[&7].entries.capacity(), 1);
    }
}
