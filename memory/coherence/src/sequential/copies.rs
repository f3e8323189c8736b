//! Copies of others' pages that are here: they are kept as long as there is room, and the oldest
//! go first. Their owner need not know: who has no copy any more says so when it is told to drop
//! it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::event::Action;
use super::node::Node;
use super::page::{Happens, State};
use super::table::Fresh;
use crate::message::Page;

/// In the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    pages: BTreeMap<u64, Page>,
    places: BTreeMap<Page, u64>,
    /// Counted from 1.
    last: u64,
}

impl Copies {
    /// How many.
    pub fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// A page has become a copy of another's, or is one no more.
    pub fn set(&mut self, page: Page, is_copy: bool) {
        let place = match is_copy {
            true => {
                self.last += 1;
                self.pages.insert(self.last, page);
                self.places.insert(page, self.last)
            }
            false => self.places.remove(&page),
        };
        if let Some(place) = place {
            self.pages.remove(&place);
        }
    }
}

/// Their order is all that matters.
impl PartialEq for Copies {
    fn eq(&self, other: &Self) -> bool {
        self.pages.values().eq(other.pages.values())
    }
}

impl Eq for Copies {}

impl Hash for Copies {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pages.len().hash(state);
        self.pages.values().for_each(|page| page.hash(state));
    }
}

impl Node {
    /// Drops what is too much. What tasks have not used yet, or are about to write, stays.
    pub(super) fn drop_copies(&mut self, actions: &mut Vec<Action>) {
        self.drop_to(self.options.copies_max, false, actions);
    }

    /// Keeps so many copies of others' pages at this time, and drops the oldest others: for a
    /// driver that is short of memory. It should keep as many as tasks need at once: those that
    /// were let go on with a page long ago are taken to have used it.
    pub fn shrink(&mut self, copies: u64, now: u64, actions: &mut Vec<Action>) {
        self.now = now;
        self.drop_to(copies, true, actions);
    }

    fn drop_to(&mut self, copies: u64, by_time: bool, actions: &mut Vec<Action>) {
        let mut over = self.copies.count().saturating_sub(copies);
        let mut after = 0;
        while over > 0 {
            let Some((&order, &page)) = self.copies.pages.range(after..).next() else { return };
            after = order + 1;
            let entry = self.pages.of(page);
            let (state, fresh, since) = (entry.state, entry.fresh, entry.since);
            // That tasks have used it nobody says, unless somebody waits for it.
            let is_used = by_time && self.now > since.saturating_add(self.options.rest);
            let may_go = fresh == Fresh::No || fresh == Fresh::Yes && is_used;
            if matches!(state, State::ReadOnly | State::Ahead) && may_go {
                self.counts.dropped += 1;
                self.happens(page, Happens::Drop, None, actions);
                over -= 1;
            }
        }
    }
}
