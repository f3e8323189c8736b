//! A table by pages of which most are never used, and which may be all that there are addresses
//! for: it holds chunks of neighbours, and only those in which something was.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::message::Page;

/// Pages of a chunk: few, for memory that is used here and there.
const CHUNK: Page = 8;
/// Chunks of a part.
const CHUNKS: Page = 64;
/// Pages of a part.
const PART: Page = CHUNK * CHUNKS;

/// Something of each page of a chunk that is used.
type Chunk<T> = Option<Box<[T]>>;

/// Something of each page that is used.
#[derive(Clone, Debug)]
pub struct Sparse<T> {
    pages: Page,
    /// Those in which something is used, by number.
    parts: BTreeMap<Page, Box<[Chunk<T>]>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { pages: 0, parts: BTreeMap::new() }
    }
}

impl<T> Sparse<T> {
    /// How many pages there are, used or not.
    pub fn pages(&self) -> Page {
        self.pages
    }

    /// More pages, not used yet.
    pub fn grow(&mut self, pages: Page) {
        self.pages += pages;
    }

    /// What is held of a page, if one of its chunk is used.
    pub fn get(&self, page: Page) -> Option<&T> {
        let chunks = self.parts.get(&(page / PART))?;
        Some(&chunks[(page % PART / CHUNK) as usize].as_ref()?[(page % CHUNK) as usize])
    }

    /// What is held of a page, used from now on; `make` says what of those of a chunk that was
    /// not, also of the pages behind the last one.
    ///
    /// # Panics
    /// There is no such page.
    pub fn use_with(&mut self, page: Page, make: impl FnMut(Page) -> T) -> &mut T {
        assert!(page < self.pages.next_multiple_of(CHUNK), "page {page} is not there");
        let first = page - page % CHUNK;
        let none = || (0..CHUNKS).map(|_| None).collect();
        let chunks = self.parts.entry(page / PART).or_insert_with(none);
        let chunk = chunks[(page % PART / CHUNK) as usize]
            .get_or_insert_with(|| (first..first + CHUNK).map(make).collect());
        &mut chunk[(page - first) as usize]
    }

    /// The first of these pages that is in a chunk that is used; their end, if none is.
    pub fn next_used(&self, pages: Range<Page>) -> Page {
        if pages.is_empty() {
            return pages.start;
        }
        let last = (pages.end - 1) / PART;
        for (&part, chunks) in self.parts.range(pages.start / PART..=last) {
            let begin = (part * PART).max(pages.start);
            let rest = &chunks[(begin % PART / CHUNK) as usize..];
            if let Some(at) = rest.iter().position(Option::is_some) {
                let chunk = begin - begin % CHUNK + at as Page * CHUNK;
                return chunk.max(begin).min(pages.end);
            }
        }
        pages.end
    }

    /// All that is held, with its pages.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Page, &mut T)> {
        self.parts.iter_mut().flat_map(|(&part, chunks)| {
            let of = move |(at, chunk): (usize, _)| {
                let first = part * PART + at as Page * CHUNK;
                Option::into_iter(chunk).flat_map(move |chunk: &mut Box<[T]>| (first..).zip(chunk))
            };
            chunks.iter_mut().map(Option::as_mut).enumerate().flat_map(of)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_chunks_that_are_used_are_held() {
        let mut table: Sparse<u64> = Sparse::default();
        table.grow(100);
        assert_eq!((table.get(99), table.next_used(0..100), table.pages()), (None, 100, 100));
        *table.use_with(70, |page| page) += 1000;
        assert_eq!((table.get(70), table.get(71), table.get(72)), (Some(&1070), Some(&71), None));
        // Lists of others can begin behind the end.
        let ranges = [(0, 100), (71, 100), (72, 100), (5, 9), (500, 100)];
        let next = ranges.map(|(start, end)| table.next_used(start..end));
        assert_eq!(next, [64, 71, 100, 9, 500]);
        table.grow(1 << 35);
        assert_eq!(*table.use_with(70, |_| unreachable!("it is used")), 1070);
        assert_eq!((table.get(1_000_099), table.get(1 << 34)), (None, None));
        *table.use_with((1 << 34) + 3, |page| page) += 1;
        assert_eq!(table.next_used(72..1 << 35), 1 << 34);
        let held: Vec<(u64, u64)> = table.iter_mut().map(|(page, of)| (page, *of)).collect();
        assert_eq!((held[0], held[6], held.len()), ((64, 64), (70, 1070), 16));
        assert_eq!(held[11], ((1 << 34) + 3, (1 << 34) + 4));
    }
}
