//! A table by pages of which most are never used: it holds chunks of neighbours, and only
//! those in which something was.

use std::ops::Range;

use crate::message::Page;

/// Pages of a chunk.
const CHUNK: Page = 64;

/// Something of each page that is used.
#[derive(Clone, Debug)]
pub struct Sparse<T> {
    pages: Page,
    chunks: Vec<Option<Box<[T]>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { pages: 0, chunks: Vec::new() }
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
        self.chunks.resize_with(self.pages.div_ceil(CHUNK) as usize, || None);
    }

    /// What is held of a page, if one of its chunk is used.
    pub fn get(&self, page: Page) -> Option<&T> {
        Some(&self.chunks.get((page / CHUNK) as usize)?.as_ref()?[(page % CHUNK) as usize])
    }

    /// What is held of a page, used from now on; `make` says what of those of a chunk that was
    /// not, also of the pages behind the last one.
    ///
    /// # Panics
    /// There is no such page.
    pub fn use_with(&mut self, page: Page, make: impl FnMut(Page) -> T) -> &mut T {
        let first = page - page % CHUNK;
        let chunk = self.chunks[(page / CHUNK) as usize]
            .get_or_insert_with(|| (first..first + CHUNK).map(make).collect());
        &mut chunk[(page - first) as usize]
    }

    /// The first of these pages that is in a chunk that is used; their end, if none is.
    pub fn next_used(&self, pages: Range<Page>) -> Page {
        let mut page = pages.start;
        while page < pages.end && self.chunks[(page / CHUNK) as usize].is_none() {
            page = (page - page % CHUNK + CHUNK).min(pages.end);
        }
        page
    }

    /// All that is held, with its pages.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Page, &mut T)> {
        let of = |(at, chunk): (usize, _)| {
            let first = at as Page * CHUNK;
            Option::into_iter(chunk).flat_map(move |chunk: &mut Box<[T]>| (first..).zip(chunk))
        };
        self.chunks.iter_mut().map(Option::as_mut).enumerate().flat_map(of)
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
        assert_eq!((table.get(70), table.get(99)), (Some(&1070), Some(&99)));
        // Lists of others can begin behind the end.
        let ranges = [(0, 100), (99, 100), (5, 9), (500, 100)];
        let next = ranges.map(|(start, end)| table.next_used(start..end));
        assert_eq!(next, [64, 99, 9, 500]);
        table.grow(1_000_000);
        assert_eq!(*table.use_with(70, |_| unreachable!("it is used")), 1070);
        assert_eq!((table.get(1_000_099), table.get(10_000_000)), (None, None));
        let held: Vec<(u64, u64)> = table.iter_mut().map(|(page, of)| (page, *of)).collect();
        assert_eq!((held[0], held[6], held.len()), ((64, 64), (70, 1070), 64));
    }
}
