//! The pages as a node sees them. Of most it knows no more than whose they were at first: a page
//! has an entry from the time that it is first used until it is reset.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use super::migratory::Migratory;
use super::nodes::Nodes;
use super::page::State;
use crate::message::{NodeId, Page};
use crate::run::{NOBODY, Run};
use crate::sparse::Sparse;

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub state: State,
    /// Who was the owner last, so far as we know; this node from the time that it asks for the
    /// page, and then who has asked after it.
    pub owner: NodeId,
    /// If it is ours: who has copies. Some have dropped theirs.
    pub copies: Nodes,
    /// Who waits here for a copy.
    pub readers: Nodes,
    /// Who gets the page from us.
    pub next: Option<Next>,
    /// While we gather: who has not said yet that its copy is gone. Before we have the page:
    /// who has said it.
    pub answers: Nodes,
    /// Tasks were let go on, and have not used it yet.
    pub fresh: Fresh,
    /// Who wants our copy to be gone, as soon as tasks have used it.
    pub invalid_for: Option<NodeId>,
    /// A task waits for a page that is hoped for.
    pub is_wanted: bool,
    /// It is ours and holds zeros: no task has used it yet.
    pub is_new: bool,
    /// Whether it goes as a whole to who asks for a copy.
    pub migratory: Migratory,
    /// How this node counts the page among those that it has used first.
    pub first_use: FirstUse,
    /// When a task could not use it last; 0: never.
    pub since: u64,
}

/// A page as [`Sweeps`](crate::ride::sweeps::Sweeps) counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum FirstUse {
    /// Not at all: nobody here was the first to use it.
    #[default]
    No,
    /// It was prepared, and is not known to be used.
    Prepared,
    /// It is used.
    Used,
}

/// Who gets a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Next {
    pub node: NodeId,
    /// It has a copy, as it says.
    pub has: bool,
    pub hops: u16,
}

/// Whether tasks that were let go on with a page have used it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Fresh {
    /// They have.
    #[default]
    No,
    /// They have not, so far as we know.
    Yes,
    /// And somebody waits until they have.
    Held,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// What is unused here is as it was at first.
    entries: Sparse<Entry>,
    /// How pages are at first, from this one on.
    allocations: Vec<(Page, First)>,
}

/// How a page is at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct First {
    pub owner: NodeId,
    /// All others have copies.
    pub everywhere: bool,
    pub me: NodeId,
    pub nodes: u32,
}

impl Table {
    /// How many there are.
    pub fn pages(&self) -> u64 {
        self.entries.pages()
    }

    /// More pages.
    pub fn allocate(&mut self, pages: u64, first: First) {
        let begin = self.pages();
        self.entries.grow(pages);
        self.renew(begin..begin + pages, first);
    }

    /// These pages are as they are at first; used or not.
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

    /// One that is there, to change it.
    pub fn of(&mut self, page: Page) -> &mut Entry {
        let allocations = &self.allocations;
        self.entries.use_with(page, |page| unused(allocations, page))
    }

    /// One, if it is there.
    pub fn get(&self, page: Page) -> Option<Entry> {
        (page < self.pages()).then(|| match self.entries.get(page) {
            Some(entry) => *entry,
            None => unused(&self.allocations, page),
        })
    }

    /// The first of these of which something is written down; their end, if there is none.
    pub fn next_used(&self, pages: Range<Page>) -> Page {
        self.entries.next_used(pages)
    }

    /// The first of these that is not as it was at first; their end, if there is none.
    pub fn next_touched(&self, pages: Range<Page>) -> Page {
        let is_as_at_first =
            |page| self.entries.get(page).is_none_or(|it| *it == unused(&self.allocations, page));
        let mut page = self.next_used(pages.clone());
        while page < pages.end && is_as_at_first(page) {
            page = self.next_used(page + 1..pages.end);
        }
        page
    }

    /// All that is there of pages that were used.
    pub fn used(&mut self) -> impl Iterator<Item = (Page, &mut Entry)> {
        self.entries.iter_mut()
    }

    /// The pages that a node has, so far as we know, and of which nothing is here.
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

/// Neighbours as one.
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

/// What is known of a page that was never used.
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

/// That there is room for a page makes no difference.
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
    use crate::story::Random;

    /// Whatever was used before pages came or began anew: each is as it was said last.
    #[test]
    fn a_page_is_as_it_was_said_last() {
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
