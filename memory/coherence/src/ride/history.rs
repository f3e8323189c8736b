//! History: the pages that a node needed, and whether its copies are still current.
//!
//! A node does not need a page of which it has a current copy. So the home counts the changes of
//! each page: its own, other nodes' diffs, and notices at barriers. Each page that a node received
//! is stored with this count. A node will need a page again if it needed it repeatedly and the page
//! has changed since. Each page is rated by the fate of its own rides.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::message::Page;

/// Maximum number of pages per node. A full history is cleared.
const PAGES_MAX: usize = 1 << 16;
/// A page is predicted if its credit is at least this.
const ENOUGH: i8 = 2;
/// Number of phases after which a page that another node changed counts as its home's alone again.
const LONG: u64 = 16;
/// Upper limit of a page's credit.
const MOST: i8 = 4;

/// The changes of all pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes(BTreeMap<Page, Changed>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Changed {
    /// Number of changes.
    times: u64,
    /// Value of `times` when a barrier last named the page.
    named: u64,
    /// The last phase in which a node other than the home changed it.
    by_others: Option<u64>,
}

/// A change of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// True if a barrier reported it.
    pub barrier: bool,
    /// True if the home is not the only writer.
    pub by_others: bool,
    /// Number of barriers passed.
    pub phase: u64,
}

/// The pages that a node received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    pages: BTreeMap<Page, Got>,
    /// The pages that are predicted, by the time of their last use.
    order: BTreeMap<u64, Page>,
    clock: u64,
    /// The previous use of the page that is needed now.
    at: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Got {
    /// Number of changes of the page when the node received it.
    changes: u64,
    /// Number of times the page was needed, reduced for each time it was sent in vain.
    credit: i8,
    needed: u64,
}

impl Changes {
    /// Returns the number of changes of a page.
    pub fn of(&self, page: Page) -> u64 {
        self.0.get(&page).map_or(0, |changed| changed.times)
    }

    /// Records a change of pages. Returns those of them that any node has received.
    pub fn add(&mut self, pages: Range<Page>, change: Change) -> Vec<Page> {
        let changed = self.0.range_mut(pages).map(|(page, changed)| {
            changed.times += 1;
            if change.barrier {
                changed.named = changed.times;
            }
            if change.by_others {
                changed.by_others = Some(change.phase);
            }
            *page
        });
        changed.collect()
    }

    /// Returns true if only its home has changed the page for some time. The home's contents are
    /// then what all nodes will see.
    pub fn is_its_homes(&self, page: Page, phase: u64) -> bool {
        let by_others = self.0.get(&page).and_then(|changed| changed.by_others);
        by_others.is_none_or(|at| at + LONG < phase)
    }

    /// Starts to count the changes of a page. Returns the number so far.
    pub fn count(&mut self, page: Page) -> u64 {
        self.0.entry(page).or_default().times
    }
}

impl History {
    /// Returns true if the node is believed to have a current copy of the page.
    pub fn has(&self, page: Page, changes: &Changes) -> bool {
        self.pages.get(&page).is_some_and(|got| got.changes == changes.of(page))
    }

    /// Returns true if the node has dropped its copy, since a barrier has named the page.
    pub fn has_dropped(&self, page: Page, changes: &Changes) -> bool {
        let named = changes.0.get(&page).map_or(0, |changed| changed.named);
        self.pages.get(&page).is_some_and(|got| got.changes < named)
    }

    /// Records that the node receives the current page.
    pub fn gets(&mut self, page: Page, changes: &mut Changes) {
        if self.pages.len() >= PAGES_MAX {
            *self = Self::default();
        }
        self.pages.entry(page).or_default().changes = changes.count(page);
    }

    /// Records that the node changed the page itself. Its copy stays current if it was current
    /// before.
    pub fn changed_itself(&mut self, page: Page, changes: &Changes) {
        if let Some(got) = self.pages.get_mut(&page)
            && got.changes + 1 == changes.of(page)
        {
            got.changes += 1;
        }
    }

    /// Records that the node needs the page: it requested it, or used a ride.
    pub fn needs(&mut self, page: Page) {
        let got = self.pages.entry(page).or_default();
        self.order.remove(&got.needed);
        self.at = got.needed;
        self.clock += 1;
        got.needed = self.clock;
        got.credit = (got.credit + 1).min(MOST);
        if got.credit >= ENOUGH {
            self.order.insert(self.clock, page);
        }
    }

    /// Records that the page was sent in vain.
    pub fn was_wasted(&mut self, page: Page) {
        if let Some(got) = self.pages.get_mut(&page) {
            got.credit = (got.credit - MOST).max(-MOST);
            if got.credit < ENOUGH {
                self.order.remove(&got.needed);
            }
        }
    }

    /// Predicts the pages that the node needed often enough. They are in the order of their last
    /// use, starting after the page that is needed now.
    pub fn predicted(&self) -> impl Iterator<Item = Page> {
        let (before, after) = (self.order.range(..=self.at), self.order.range(self.at + 1..));
        after.chain(before).map(|(_, page)| *page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Change = Change { barrier: false, by_others: false, phase: 0 };

    fn needs(history: &mut History, changes: &mut Changes, pages: &[Page]) {
        for &page in pages {
            history.needs(page);
            history.gets(page, changes);
        }
    }

    #[test]
    fn pages_needed_twice_after_changes_are_predicted_in_order() {
        let (mut history, mut changes) = (History::default(), Changes::default());
        let prediction = |history: &History, changes: &Changes| -> Vec<Page> {
            history.predicted().filter(|&page| !history.has(page, changes)).collect()
        };
        needs(&mut history, &mut changes, &[7, 3, 9]);
        changes.add(0..10, CHANGE);
        assert!(prediction(&history, &changes).is_empty(), "once is not often");
        needs(&mut history, &mut changes, &[7, 3]);
        assert!(prediction(&history, &changes).is_empty(), "it has them");
        assert!(!history.has_dropped(3, &changes));
        assert_eq!(changes.add(0..10, Change { barrier: true, ..CHANGE }), [3, 7, 9]);
        assert!(history.has_dropped(3, &changes));
        assert_eq!(prediction(&history, &changes), [7, 3]);
        history.was_wasted(7);
        assert_eq!(prediction(&history, &changes), [3]);
    }

    #[test]
    fn a_writer_keeps_its_pages() {
        let (mut history, mut changes) = (History::default(), Changes::default());
        history.gets(5, &mut changes);
        changes.add(5..6, CHANGE);
        history.changed_itself(5, &changes);
        assert!(history.has(5, &changes));
        changes.add(5..6, CHANGE);
        changes.add(5..6, CHANGE);
        history.changed_itself(5, &changes);
        assert!(!history.has(5, &changes), "another changed it, too");
    }
}
