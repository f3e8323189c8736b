//! The state of each page of a region. Unused pages, which are the most, take no memory.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::access::Access;

/// Pages of a chunk: few, for memory that is used here and there.
const CHUNK: u64 = 16;

/// The state of a page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Page {
    pub access: Access,
    /// The memory has it: nothing fails any more that writes to the alias.
    pub is_there: bool,
}

impl Page {
    /// Of one that was never used.
    pub const NONE: Self = Self { access: Access::None, is_there: false };
}

/// Of all pages.
#[derive(Debug, Default)]
pub struct Pages {
    chunks: BTreeMap<u64, [Page; CHUNK as usize]>,
}

impl Pages {
    pub fn get(&self, page: u64) -> Page {
        let chunk = self.chunks.get(&(page / CHUNK));
        chunk.map_or(Page::NONE, |chunk| chunk[(page % CHUNK) as usize])
    }

    /// Changes what is known of these.
    pub fn change(&mut self, pages: Range<u64>, mut change: impl FnMut(&mut Page)) {
        let mut page = pages.start;
        while page < pages.end {
            let end = (page - page % CHUNK + CHUNK).min(pages.end);
            let none = || [Page::NONE; CHUNK as usize];
            let chunk = self.chunks.entry(page / CHUNK).or_insert_with(none);
            let first = (page % CHUNK) as usize;
            chunk[first..first + (end - page) as usize].iter_mut().for_each(&mut change);
            page = end;
        }
    }

    /// Nothing is known of these any more, however many they are.
    pub fn forget(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        let last = (pages.end - 1) / CHUNK;
        let held: Vec<u64> =
            self.chunks.range(pages.start / CHUNK..=last).map(|(&at, _)| at).collect();
        for at in held {
            let all = at * CHUNK..(at + 1) * CHUNK;
            let of = all.start.max(pages.start)..all.end.min(pages.end);
            match of == all {
                true => {
                    self.chunks.remove(&at);
                }
                false => self.change(of, |page| *page = Page::NONE),
            }
        }
    }

    /// Returns the state of the first page, and the number of pages from there on with the same
    /// state.
    pub fn alike(&self, pages: Range<u64>) -> (Page, u64) {
        let first = self.get(pages.start);
        let mut page = pages.start;
        while page < pages.end {
            let end = (page - page % CHUNK + CHUNK).min(pages.end);
            match self.chunks.get(&(page / CHUNK)) {
                None if first == Page::NONE => {
                    let next = self.chunks.range(page / CHUNK..).next();
                    page = next.map_or(pages.end, |(at, _)| at * CHUNK).min(pages.end);
                }
                None => break,
                Some(chunk) => {
                    let from = (page % CHUNK) as usize;
                    let rest = &chunk[from..from + (end - page) as usize];
                    let count = rest.iter().take_while(|it| **it == first).count() as u64;
                    page += count;
                    if page < end {
                        break;
                    }
                }
            }
        }
        (first, page - pages.start)
    }

    /// Those of which something is known, in order.
    pub fn known(&self) -> impl Iterator<Item = Range<u64>> {
        self.chunks.iter().flat_map(|(&at, chunk)| {
            let mut runs: Vec<Range<u64>> = Vec::new();
            for (page, _) in (at * CHUNK..).zip(*chunk).filter(|(_, it)| *it != Page::NONE) {
                match runs.last_mut() {
                    Some(last) if last.end == page => last.end += 1,
                    _ => runs.push(page..page + 1),
                }
            }
            runs
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_keeps_its_last_setting_and_others_take_no_room() {
        let (mut pages, mut wanted) = (Pages::default(), vec![Page::NONE; 1000]);
        let mut seed = 7u64;
        let mut below = |most: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % most
        };
        for _ in 0..2000 {
            let start = below(1000);
            let range = start..(start + below(200)).min(1000);
            let part = &mut wanted[range.start as usize..range.end as usize];
            if below(2) == 0 {
                part.fill(Page::NONE);
                pages.forget(range);
            } else {
                let access = [Access::None, Access::Read, Access::Write][below(3) as usize];
                part.iter_mut().for_each(|page| page.access = access);
                pages.change(range, |page| page.access = access);
            }
            let from = below(1000);
            let (first, count) = pages.alike(from..1000);
            let rest = &wanted[from as usize..];
            let same = rest.iter().take_while(|it| **it == rest[0]).count() as u64;
            assert_eq!((first, count), (rest[0], same));
            let known = pages.known().flatten();
            assert!(known.eq((0..1000).filter(|&page| wanted[page as usize] != Page::NONE)));
        }
        assert_eq!(pages.alike(2000..1 << 47), (Page::NONE, (1 << 47) - 2000));
        pages.forget(0..1 << 47);
        assert!(pages.chunks.is_empty());
    }
}
