//! A node's state for sequential consistency, and what a driver can ask of it.
//!
//! `step` handles events, `pages` applies the rules of pages, `ahead` prefetches pages, and `evict`
//! limits the number of copies.

use std::ops::Range;

use super::copies::Copies;
use super::event::Options;
use super::message::PAGES_MAX;
use super::nodes::{NODES_MAX, Nodes};
use super::page::State;
use super::prefetches::Prefetches;
use super::statistics::Statistics;
use super::table::{Entry, First, Table};
use crate::message::{NodeId, Page};
use crate::ride::forecast::Forecast;

/// The state machine of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub(super) options: Options,
    pub(super) now: u64,
    pub(super) pages: Table,
    pub(super) copies: Copies,
    pub(super) prefetches: Prefetches,
    /// Pages that are being reset: nothing of them is prefetched.
    pub(super) closed: Vec<Range<Page>>,
    pub(super) lost: Nodes,
    pub(super) counts: Statistics,
}

impl Node {
    /// Creates a node without pages.
    ///
    /// # Panics
    /// The options are invalid.
    pub fn new(options: Options) -> Self {
        let Options { nodes, me, pages_max, .. } = options;
        assert!(me < nodes && nodes <= NODES_MAX, "a node among nodes");
        assert!((1..=PAGES_MAX).contains(&pages_max), "a message has room for a page");
        Self {
            options,
            now: 0,
            pages: Table::default(),
            copies: Copies::default(),
            prefetches: Prefetches::new(Forecast::new(options.rides)),
            closed: Vec::new(),
            lost: Nodes::default(),
            counts: Statistics::default(),
        }
    }

    /// Returns the node's statistics.
    pub fn statistics(&self) -> &Statistics {
        &self.counts
    }

    /// Resets the statistics.
    pub fn forget_statistics(&mut self) {
        self.counts = Statistics::default();
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages.pages()
    }

    /// Returns the number of copies of other nodes' pages.
    pub fn copies(&self) -> u64 {
        self.copies.count()
    }

    /// Returns the state of a page on this node.
    pub fn state(&self, page: Page) -> Option<State> {
        Some(self.pages.get(page)?.state)
    }

    /// Returns the first of these pages that tasks here have used or other nodes have requested
    /// here, or the end of the range. A page's initial owner knows of its use on any node.
    pub fn next_touched(&self, pages: Range<Page>) -> Page {
        self.pages.next_touched(pages)
    }

    /// Returns the first of these pages that other nodes own or have copies of, or that is
    /// requested here, or the end of the range. Pages without an entry are not looked at:
    /// [`owns_unused`](Self::owns_unused) tells of those.
    pub fn next_shared(&self, pages: Range<Page>) -> Page {
        let is_alone = |entry: Entry| {
            entry.state == State::ReadWrite && entry.next.is_none() && entry.readers.is_empty()
        };
        self.first_not(pages, is_alone)
    }

    /// Returns true if this node owns all pages that no task has used.
    pub fn owns_unused(&self) -> bool {
        self.pages.owns_unused()
    }

    /// Returns true if the bytes here are the current contents of the page.
    pub fn can_be_read(&self, page: Page) -> bool {
        self.state(page).is_some_and(State::has_bytes)
    }

    /// Returns the last known owner of a page.
    pub fn owner(&self, page: Page) -> Option<NodeId> {
        let entry = self.pages.get(page)?;
        let is_ours = entry.state.owns() || entry.state == State::Gathering;
        Some(if is_ours { self.options.me } else { entry.owner })
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the time of the last step.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns true if no request of this node's tasks for these pages is in flight.
    pub fn is_quiet(&self, pages: &Range<Page>) -> bool {
        self.first_busy(pages.clone()) == pages.end
    }

    /// Returns the first of these pages for which a request of this node's tasks is in flight, or
    /// the end of the range.
    pub fn first_busy(&self, pages: Range<Page>) -> Page {
        let rests = |entry: Entry| !entry.state.waits() && entry.state != State::Gathering;
        self.first_not(pages, rests)
    }

    /// Returns the first of these pages with an entry for which `is_so` is false, or the end.
    fn first_not(&self, pages: Range<Page>, is_so: impl Fn(Entry) -> bool) -> Page {
        let end = pages.end;
        let mut page = self.pages.next_used(pages);
        while page < end && self.pages.get(page).is_some_and(&is_so) {
            page = self.pages.next_used(page + 1..end);
        }
        page
    }

    /// Returns the initial state of pages.
    pub(super) fn first(&self, owner: NodeId, everywhere: bool) -> First {
        let Options { me, nodes, .. } = self.options;
        assert!(owner < nodes, "a node owns the pages");
        First { owner, everywhere, me, nodes }
    }

    /// Returns true if no request is in flight and no node waits.
    pub fn is_idle(&self) -> bool {
        let pages = 0..self.pages();
        let rests = |entry: Entry| {
            entry.readers.is_empty() && entry.next.is_none() && entry.invalid_for.is_none()
        };
        self.prefetches.is_idle()
            && self.is_quiet(&pages)
            && self.first_not(pages.clone(), rests) == pages.end
    }
}
