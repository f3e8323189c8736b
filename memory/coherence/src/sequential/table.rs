//! The pages as a node sees them. Of most it knows no more than whose they were at first: what
//! it has of a page it writes down when that is first used, together with some neighbours'.

use std::hash::{Hash, Hasher};

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
    /// When a task could not use it last; 0: never.
    pub since: u64,
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
    /// First page, and whose from there on.
    allocations: Vec<Allocation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allocation {
    first: Page,
    owner: NodeId,
    everywhere: bool,
    me: NodeId,
    nodes: u32,
}

impl Table {
    /// How many there are.
    pub fn pages(&self) -> u64 {
        self.entries.pages()
    }

    /// More pages.
    pub fn allocate(
        &mut self,
        pages: u64,
        owner: NodeId,
        everywhere: bool,
        me: NodeId,
        nodes: u32,
    ) {
        let first = self.pages();
        self.allocations.push(Allocation { first, owner, everywhere, me, nodes });
        self.entries.grow(pages);
        // The first ones may share a chunk with pages before them that are used.
        let mut page = first;
        while page < first + pages && self.entries.next_used(page..page + 1) == page {
            *self.of(page) = unused(&self.allocations, page);
            page += 1;
        }
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

    /// All that is there of pages that were used.
    pub fn used(&mut self) -> impl Iterator<Item = (Page, &mut Entry)> {
        let pages = self.pages();
        self.entries.iter_mut().filter(move |(page, _)| *page < pages)
    }

    /// The pages that a node has, so far as we know, and of which we have no copy.
    pub fn only_at(&self, node: NodeId) -> Vec<Run> {
        let is = |entry: Entry| entry.owner == node && !entry.state.is_copy();
        let mut runs: Vec<Run> = Vec::new();
        let ends = self.allocations.iter().skip(1).map(|next| next.first).chain([self.pages()]);
        for (allocation, end) in self.allocations.iter().zip(ends) {
            let mut page = allocation.first;
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
fn unused(allocations: &[Allocation], page: Page) -> Entry {
    let behind = allocations.partition_point(|allocation| allocation.first <= page);
    let Allocation { owner, everywhere, me, nodes, .. } = allocations[behind - 1];
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
