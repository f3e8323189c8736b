//! The table of a node's pages. A page has an entry from its first use on. Of all other pages the
//! node knows only the home.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use super::event::Options;
use super::homes::Homes;
use super::page::State;
use super::statistics::PageStatistics;
use crate::message::{NodeId, Page};
use crate::sparse::Sparse;

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub state: State,
    pub home: NodeId,
    /// The time of the last request.
    pub since: u64,
    pub counts: PageStatistics,
}

/// All pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The used pages. An unused page has its home elsewhere and no copy here.
    entries: Sparse<Entry>,
    /// The initial placement of homes: first page, distribution, and number of nodes.
    allocations: Vec<(Page, Homes, u32)>,
}

impl Table {
    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.entries.pages()
    }

    /// Adds pages.
    pub fn allocate(&mut self, pages: u64, homes: Homes, options: &Options) {
        let Options { me, nodes, alone, .. } = *options;
        let first = self.pages();
        // Consecutive allocations at one node share an element.
        if !matches!((homes, self.allocations.last()), (Homes::At(_), Some(last)) if last.1 == homes)
        {
            self.allocations.push((first, homes, nodes));
        }
        self.entries.grow(pages);
        for page in homes.at(me, nodes, pages).flatten() {
            self.of(first + page).state = if alone { State::Alone } else { State::Home };
        }
    }

    /// Returns the entry of an existing page, for changes.
    pub fn of(&mut self, page: Page) -> &mut Entry {
        let allocations = &self.allocations;
        self.entries.use_with(page, |page| untouched(allocations, page))
    }

    /// Returns the entry of a page, if the page exists.
    pub fn get(&self, page: Page) -> Option<Entry> {
        (page < self.pages()).then(|| match self.entries.get(page) {
            Some(entry) => *entry,
            None => untouched(&self.allocations, page),
        })
    }

    /// Returns the first of these pages that has an entry, or the end of the range. All pages
    /// before it have their home elsewhere and no copy here.
    pub fn next_touched(&self, pages: Range<Page>) -> Page {
        self.entries.next_used(pages)
    }

    /// Resets the statistics of all pages.
    pub fn forget_statistics(&mut self) {
        for (_, entry) in self.entries.iter_mut() {
            entry.counts = PageStatistics::default();
        }
    }
}

/// Returns the entry of an unused page, which has its home elsewhere.
fn untouched(allocations: &[(Page, Homes, u32)], page: Page) -> Entry {
    let behind = allocations.partition_point(|(first, ..)| *first <= page);
    let (first, homes, nodes) = allocations[behind - 1];
    let home = homes.of(page - first, nodes);
    Entry { state: State::Invalid, home, since: 0, counts: PageStatistics::default() }
}

/// Tables are equal if all pages have equal state, with or without an entry.
impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        let pages = self.pages();
        pages == other.pages() && (0..pages).all(|page| self.get(page) == other.get(page))
    }
}

impl Eq for Table {}

impl Hash for Table {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pages().hash(state);
        (0..self.pages()).for_each(|page| self.get(page).hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::ride::Policy;

    fn options(nodes: u32, me: NodeId) -> Options {
        let rides = Policy::Normal;
        Options { nodes, me, tasks: 1, migrate: false, alone: true, rides, pages_max: 1 }
    }

    /// Each page has the home of its allocation and its last state, whether it was used before or
    /// after later allocations.
    #[test]
    fn a_page_lives_where_its_allocation_says_used_or_not() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let options = options(5, 2);
            let (mut table, mut wanted) = (Table::default(), Vec::new());
            for _ in 0..12 {
                let homes = match random.one_in(2) {
                    true => Homes::At(random.below(3) as NodeId),
                    false => {
                        let (pages, first) = (1 + random.below(40), random.below(5));
                        Homes::Blocks { pages: pages as u64, first: first as NodeId }
                    }
                };
                let pages = random.below(200) as u64;
                table.allocate(pages, homes, &options);
                wanted.extend((0..pages).map(|page| {
                    let home = homes.of(page, options.nodes);
                    (home, if home == options.me { State::Alone } else { State::Invalid })
                }));
                if !wanted.is_empty() && random.one_in(2) {
                    let page = random.below(wanted.len());
                    table.of(page as Page).state = State::Clean;
                    wanted[page].1 = State::Clean;
                }
            }
            let of = |page| table.get(page).map(|entry| (entry.home, entry.state));
            let seen: Vec<_> = (0..table.pages()).map_while(of).collect();
            assert_eq!(seen, wanted, "seed {seed}");
            assert_eq!(of(wanted.len() as Page), None);
        }
    }

    #[test]
    fn copies_elsewhere_take_no_room() {
        let options = options(1024, 7);
        let mut table = Table::default();
        let homes = Homes::Blocks { pages: 1000, first: 0 };
        table.allocate(1_024_000, homes, &options);
        assert_eq!(table.next_touched(0..8000), 7000, "ours begin there");
        assert_eq!(table.next_touched(8000..1_024_000), 1_024_000);
        let mut other = table.clone();
        table.of(500_000);
        assert!(table == other, "that it was looked at makes no difference");
        other.of(500_000).state = State::Fetching;
        assert!(table != other);
    }
}
