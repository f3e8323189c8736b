//! Copies of other nodes' pages on this node, in the order of their arrival.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

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

    /// Returns the oldest copy whose sequence number is at least `first`, with that number.
    pub fn next(&self, first: u64) -> Option<(u64, Page)> {
        self.pages.range(first..).next().map(|(&number, &page)| (number, page))
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
