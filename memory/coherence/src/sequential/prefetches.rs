//! The state of prefetching: predictions, and the pages of requests in flight.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::message::{NodeId, Page};
use crate::ride::Ride;
use crate::ride::forecast::Forecast;
use crate::ride::sweeps::Sweeps;
use crate::run::Run;

/// A set of pages as disjoint ranges that do not touch: start to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PageSet(BTreeMap<Page, Page>);

impl PageSet {
    /// Returns true if the set has the page.
    pub fn has(&self, page: Page) -> bool {
        self.0.range(..=page).next_back().is_some_and(|(_, &end)| page < end)
    }

    /// Adds pages.
    pub fn add(&mut self, pages: Range<Page>) {
        if pages.is_empty() {
            return;
        }
        let (mut start, mut end) = (pages.start, pages.end);
        while let Some((&from, &to)) = self.0.range(..=end).next_back()
            && to >= start
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Removes pages.
    pub fn remove(&mut self, pages: Range<Page>) {
        while let Some((&from, &to)) = self.0.range(..pages.end).next_back()
            && to > pages.start
            && !pages.is_empty()
        {
            self.0.remove(&from);
            if to > pages.end {
                self.0.insert(pages.end, to);
            }
            if from < pages.start {
                self.0.insert(from, pages.start);
            }
        }
    }
}

/// A node's state of prefetching.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Prefetches {
    pub forecast: Forecast,
    /// First uses of unused pages, and first writes to pages that were read.
    pub uses: Sweeps,
    pub writes: Sweeps,
    /// Pages that a test selects for the next step, instead of predicted ones.
    pub suggested: Vec<Page>,
    /// The pages that may be predicted, if the driver registers them.
    pub predictable: Option<PageSet>,
    /// The current request is a prefetch itself and names no other pages.
    pub is_prefetch: bool,
    /// The pages that are requested along with a page, in the order of their expected use.
    pub requested: BTreeMap<Page, Vec<Ride>>,
    /// The pages that queued requests name, by page and requester.
    pub waiting: BTreeMap<(Page, NodeId), Vec<Run>>,
    /// The pages that arrived together, by mark.
    pub unused: BTreeMap<Page, Vec<Ride>>,
}

impl Prefetches {
    /// Creates the state with this predictor.
    pub fn new(forecast: Forecast) -> Self {
        Self { forecast, uses: Sweeps::of_memory(), ..Self::default() }
    }

    /// Returns true if no prefetch is in flight.
    pub fn is_idle(&self) -> bool {
        self.requested.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_announced_entries_exist_until_they_are_withdrawn() {
        let mut predictable = PageSet::default();
        [3..4, 63..65, 200..201, 65..66, 64..66]
            .into_iter()
            .for_each(|pages| predictable.add(pages));
        let has = |predictable: &PageSet| {
            (0..300).filter(|&page| predictable.has(page)).collect::<Vec<_>>()
        };
        assert_eq!(has(&predictable), [3, 63, 64, 65, 200]);
        predictable.remove(10..65);
        assert_eq!(has(&predictable), [3, 65, 200]);
        predictable.remove(65..201);
        assert_eq!(has(&predictable), [3]);
        predictable.remove(0..64);
        assert_eq!(predictable, PageSet::default());
    }
}
