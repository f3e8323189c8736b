//! The table of a node's pages. A page has an entry from its first use until it is reset. Of all
//! other pages the node knows only the initial state.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use super::migratory::Migratory;
use super::nodes::Nodes;
use super::page::State;
use crate::message::{NodeId, Page};
use crate::run::{NOBODY, Run};
use crate::sparse::Sparse;

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub state: State,
    /// The last known owner. When this node requests ownership, it enters itself here, and then the
    /// next node that requests ownership from it.
    pub owner: NodeId,
    /// If this node is the owner: the nodes that have copies. Some may have evicted theirs.
    pub copies: Nodes,
    /// The nodes whose read requests wait here.
    pub readers: Nodes,
    /// The next owner, whose request waits here.
    pub next: Option<Next>,
    /// In `Gathering`: the nodes that have not acknowledged yet. Before ownership arrives: the
    /// nodes that have acknowledged.
    pub answers: Nodes,
    /// Whether resumed tasks have used the page.
    pub fresh: Fresh,
    /// The node whose invalidation waits until tasks have used the page.
    pub invalid_for: Option<NodeId>,
    /// A task waits for this page, which is requested as a prefetch.
    pub is_wanted: bool,
    /// This node owns the page, which holds zeros: no task has used it yet.
    pub is_new: bool,
    /// Whether ownership moves on a read.
    pub migratory: Migratory,
    /// How this node counts the page among the pages that it was the first to use.
    pub first_use: FirstUse,
    /// The time of the last fault; 0 if there was none.
    pub since: u64,
}

/// The state of a page in the counts of [`Sweeps`](crate::ride::sweeps::Sweeps).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum FirstUse {
    /// Not counted: this node was not the first to use it.
    #[default]
    No,
    /// Prepared, and its use is unknown.
    Prepared,
    /// Used.
    Used,
}

/// The next owner of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Next {
    pub node: NodeId,
    /// The node has a copy, according to its request.
    pub has: bool,
    pub hops: u16,
}

/// Whether tasks that were resumed at a page have used it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Fresh {
    /// They have used it.
    #[default]
    No,
    /// They are not known to have used it.
    Yes,
    /// They are not known to have used it, and another node waits for that.
    Held,
}

/// All pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The entries of used pages. An unused page is in its initial state.
    entries: Sparse<Entry>,
    /// The initial state of pages, each from this page on.
    allocations: Vec<(Page, First)>,
}

/// The initial state of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    pub owner: NodeId,
    /// True if all other nodes have copies.
    pub everywhere: bool,
    pub me: NodeId,
    pub nodes: u32,
}

impl Table {
    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.entries.pages()
    }

    /// Adds pages.
    pub fn allocate(&mut self, pages: u64, first: First) {
        let begin = self.pages();
        self.entries.grow(pages);
        self.renew(begin..begin + pages, first);
    }

    /// Resets pages to an initial state, whether they were used or not.
    pub fn renew(&mut self, pages: Range<Page>, first: First) {
        let behind = self.allocations.partition_point(|(page, _)| *page <= pages.end);
        let rest = self.allocations[..behind].last().map(|(_, rest)| *rest);
        self.allocations.retain(|(page, _)| !pages.contains(page) && *page != pages.end);
        let at = self.allocations.partition_point(|(page, _)| *page < pages.start);
        let rest = rest.filter(|_| pages.end < self.pages()).map(|rest| (pages.end, rest));
        self.allocations.splice(at..at, [(pages.start, first)].into_iter().chain(rest));
        self.allocations.dedup_by(|next, before| next.1 == before.1);
        self.entries.forget(pages);
    }

    /// Returns the entry of an existing page, for changes.
    pub fn of(&mut self, page: Page) -> &mut Entry {
        let allocations = &self.allocations;
        self.entries.use_with(page, |page| unused(allocations, page))
    }

    /// Returns the entry of a page, if the page exists.
    pub fn get(&self, page: Page) -> Option<Entry> {
        (page < self.pages()).then(|| match self.entries.get(page) {
            Some(entry) => *entry,
            None => unused(&self.allocations, page),
        })
    }

    /// Returns the first of these pages that has an entry, or the end of the range.
    pub fn next_used(&self, pages: Range<Page>) -> Page {
        self.entries.next_used(pages)
    }

    /// Returns the first of these pages that is not in its initial state, or the end of the range.
    pub fn next_touched(&self, pages: Range<Page>) -> Page {
        let is_as_at_first =
            |page| self.entries.get(page).is_none_or(|it| *it == unused(&self.allocations, page));
        let mut page = self.next_used(pages.clone());
        while page < pages.end && is_as_at_first(page) {
            page = self.next_used(page + 1..pages.end);
        }
        page
    }

    /// Returns true if all pages without an entry are this node's, and no other node has copies.
    pub fn owns_unused(&self) -> bool {
        self.allocations.iter().all(|(_, first)| first.owner == first.me && !first.everywhere)
    }

    /// Returns the entries of all used pages.
    pub fn used(&mut self) -> impl Iterator<Item = (Page, &mut Entry)> {
        self.entries.iter_mut()
    }

    /// Returns the pages whose last known owner is `node` and that have no copy here.
    pub fn only_at(&self, node: NodeId) -> Vec<Run> {
        let is = |entry: Entry| entry.owner == node && !entry.state.has_bytes();
        let mut runs: Vec<Run> = Vec::new();
        let ends = self.allocations.iter().skip(1).map(|next| next.0).chain([self.pages()]);
        for ((first, _), end) in self.allocations.iter().zip(ends) {
            let mut page = *first;
            while page < end {
                let used = self.entries.next_used(page..end);
                if used > page && is(unused(&self.allocations, page)) {
                    runs.push(Run { first: page, pages: used - page, writer: NOBODY });
                }
                page = used;
                while page < end && self.entries.get(page).is_some() {
                    if self.get(page).is_some_and(is) {
                        runs.push(Run { first: page, pages: 1, writer: NOBODY });
                    }
                    page += 1;
                }
            }
        }
        joined(runs)
    }
}

/// Merges neighbouring runs.
fn joined(runs: Vec<Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.range().end == run.first => last.pages += run.pages,
            _ => joined.push(run),
        }
    }
    joined
}

/// Returns the initial state of a page.
fn unused(allocations: &[(Page, First)], page: Page) -> Entry {
    let behind = allocations.partition_point(|(first, _)| *first <= page);
    let First { owner, everywhere, me, nodes } = allocations[behind - 1].1;
    let mut copies = Nodes::default();
    let state = match (owner == me, everywhere) {
        (true, false) => State::ReadWrite,
        (true, true) => {
            copies = Nodes::all(nodes).without(Nodes::one(me));
            State::ReadOwner
        }
        (false, true) => State::ReadOnly,
        (false, false) => State::None,
    };
    Entry {
        state,
        owner,
        copies,
        readers: Nodes::default(),
        next: None,
        answers: Nodes::default(),
        fresh: Fresh::No,
        invalid_for: None,
        is_wanted: false,
        is_new: state == State::ReadWrite,
        migratory: Migratory::default(),
        first_use: FirstUse::No,
        since: 0,
    }
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

    /// Each page is in the state of its last allocation or reset, whether it was used before or
    /// not.
    #[test]
    fn a_page_keeps_its_last_setting() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut table, mut wanted) = (Table::default(), Vec::new());
            for _ in 0..12 {
                let owner = random.below(3) as NodeId;
                let first = First { owner, everywhere: random.one_in(4), me: 2, nodes: 3 };
                let most = 1 + random.below(300);
                if wanted.is_empty() || random.one_in(3) {
                    table.allocate(most as u64, first);
                    wanted.resize(wanted.len() + most, first);
                } else {
                    let begin = random.below(wanted.len());
                    let end = (begin + most).min(wanted.len());
                    table.renew(begin as Page..end as Page, first);
                    wanted[begin..end].fill(first);
                }
                table.of(random.below(wanted.len()) as Page);
                for (page, first) in (0..table.pages()).zip(&wanted) {
                    assert_eq!(table.get(page), Some(unused(&[(0, *first)], page)), "seed {seed}");
                }
                let pages: Vec<_> = table.only_at(1).iter().flat_map(Run::range).collect();
                let only = |page: &Page| {
                    wanted[*page as usize].owner == 1 && !wanted[*page as usize].everywhere
                };
                assert_eq!(pages, (0..table.pages()).filter(only).collect::<Vec<_>>());
                let page = random.below(wanted.len()) as Page;
                let mut other = table.clone();
                let end = table.pages();
                assert_eq!(other.next_touched(0..end), end, "seed {seed}");
                other.of(page).since = 1;
                assert_eq!(other.next_touched(0..end), page, "seed {seed}");
                assert_eq!(other.next_touched(page + 1..end), end, "seed {seed}");
            }
        }
    }
}
