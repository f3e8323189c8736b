//! History: which of our pages a node needed, and whether it can still have them.
//!
//! A page is of no use to who has it as it is. So every change of a page that the home hears
//! of (its own, another's diff, a notice at a barrier) counts it up, and what a node got last
//! is remembered with that count. What it needed again and again, and what was changed since,
//! it will need once more: pages are judged one by one, by what became of them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::message::Page;

/// Pages of one node that are remembered; when they are too many, it begins anew.
const PAGES_MAX: usize = 1 << 16;
/// A page that was needed so often, and sent in vain so often less, is foreseen.
const ENOUGH: i8 = 2;
/// Phases after which a page that another changed counts as its home's alone again.
const LONG: u64 = 16;
/// More is not remembered.
const MOST: i8 = 4;

/// What changes each page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes(BTreeMap<Page, Changed>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Changed {
    /// How often it was.
    times: u64,
    /// And how often, when a barrier named it last.
    named: u64,
    /// In which phase another than its home changed it last.
    by_others: Option<u64>,
}

/// Who changes pages, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// As a barrier says.
    pub barrier: bool,
    /// Another than their home, or others, too.
    pub by_others: bool,
    /// Barriers passed.
    pub phase: u64,
}

/// What a node got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    pages: BTreeMap<Page, Got>,
    /// Those that were needed often enough, by when they were needed last.
    order: BTreeMap<u64, Page>,
    clock: u64,
    /// When the page that is needed now was needed before.
    at: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Got {
    /// How often it was changed before.
    changes: u64,
    /// How often it was needed, less how often it was sent in vain.
    credit: i8,
    needed: u64,
}

impl Changes {
    /// How often.
    pub fn of(&self, page: Page) -> u64 {
        self.0.get(&page).map_or(0, |changed| changed.times)
    }

    /// These change; answers which of them anybody ever got.
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

    /// Only its home has changed it for some time: what the home has is what all will see.
    pub fn is_its_homes(&self, page: Page, phase: u64) -> bool {
        let by_others = self.0.get(&page).and_then(|changed| changed.by_others);
        by_others.is_none_or(|at| at + LONG < phase)
    }

    /// Somebody gets it: from now on it counts.
    pub fn count(&mut self, page: Page) -> u64 {
        self.0.entry(page).or_default().times
    }
}

impl History {
    /// It has the page as it is, so far as we know.
    pub fn has(&self, page: Page, changes: &Changes) -> bool {
        self.pages.get(&page).is_some_and(|got| got.changes == changes.of(page))
    }

    /// It has dropped what it got, since a barrier named the page.
    pub fn has_dropped(&self, page: Page, changes: &Changes) -> bool {
        let named = changes.0.get(&page).map_or(0, |changed| changed.named);
        self.pages.get(&page).is_some_and(|got| got.changes < named)
    }

    /// It gets the page as it is now.
    pub fn gets(&mut self, page: Page, changes: &mut Changes) {
        if self.pages.len() >= PAGES_MAX {
            *self = Self::default();
        }
        self.pages.entry(page).or_default().changes = changes.count(page);
    }

    /// It changed the page itself, and keeps what it has, if that was as it was before.
    pub fn changed_itself(&mut self, page: Page, changes: &Changes) {
        if let Some(got) = self.pages.get_mut(&page)
            && got.changes + 1 == changes.of(page)
        {
            got.changes += 1;
        }
    }

    /// It needs the page: asks for it, or has used what was sent.
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

    /// The page was sent in vain.
    pub fn was_wasted(&mut self, page: Page) {
        if let Some(got) = self.pages.get_mut(&page) {
            got.credit = (got.credit - MOST).max(-MOST);
            if got.credit < ENOUGH {
                self.order.remove(&got.needed);
            }
        }
    }

    /// What it needed often enough, in the order in which it needed them last, from the page on
    /// that it needs now.
    pub fn foresees(&self) -> impl Iterator<Item = Page> {
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
    fn what_was_needed_twice_and_changed_is_foreseen_in_its_order() {
        let (mut history, mut changes) = (History::default(), Changes::default());
        let foreseen = |history: &History, changes: &Changes| -> Vec<Page> {
            history.foresees().filter(|&page| !history.has(page, changes)).collect()
        };
        needs(&mut history, &mut changes, &[7, 3, 9]);
        changes.add(0..10, CHANGE);
        assert!(foreseen(&history, &changes).is_empty(), "once is not often");
        needs(&mut history, &mut changes, &[7, 3]);
        assert!(foreseen(&history, &changes).is_empty(), "it has them");
        assert!(!history.has_dropped(3, &changes));
        assert_eq!(changes.add(0..10, Change { barrier: true, ..CHANGE }), [3, 7, 9]);
        assert!(history.has_dropped(3, &changes));
        assert_eq!(foreseen(&history, &changes), [7, 3]);
        history.was_wasted(7);
        assert_eq!(foreseen(&history, &changes), [3]);
    }

    #[test]
    fn who_changes_a_page_keeps_what_it_has() {
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
