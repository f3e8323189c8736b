//! Copies of other nodes' pages on this node. Their number is limited, and the oldest are evicted
//! first. The owner is not notified: a node without a copy acknowledges an invalidation too.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::event::Action;
use super::node::Node;
use super::page::{Happens, State};
use super::table::Fresh;
use crate::message::Page;

/// The copies in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    pages: BTreeMap<u64, Page>,
    places: BTreeMap<Page, u64>,
    /// Sequence numbers start at 1.
    last: u64,
}

impl Copies {
    /// Returns the number of copies.
    pub fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Records that a page has become a copy, or is no longer one.
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

/// Only the order of the copies matters.
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
    /// Evicts copies above the limit. Copies that tasks have not used yet, or are about to write,
    /// stay.
    pub(super) fn drop_copies(&mut self, actions: &mut Vec<Action>) {
        self.drop_to(self.options.copies_max, false, actions);
    }

    /// Evicts the oldest copies until `copies` are left. For a driver that is short of memory. It
    /// should keep as many as tasks need at once. A page at which tasks were resumed long ago
    /// counts as used.
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
            // The driver reports the use of a page only if another node waits for it.
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
