//! The accesses to each page in order, by parts of 4 KB, for `nagaya dsm report`. It derives the
//! effect of pages of that size from them.
//!
//! A page's home sees the order of fetches and diffs of other nodes. Only the node that fetches
//! knows which part it needs. Of the home's own writes, and of reads after the page has arrived,
//! only the first part is seen.

use std::collections::BTreeMap;

use coherence::message::{NodeId, Page};
use serde::Serialize;

/// Bytes of a part.
const PART: usize = 4096;
/// Number of parts that are distinguished. The last one stands for all that follow.
const PARTS_MAX: usize = 64;
/// Maximum number of stored accesses.
const HAPPENED_MAX: usize = 1 << 22;

/// An access at the home: another node has fetched a page (no parts), or a node has changed parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Happened {
    node: NodeId,
    /// One bit for each part.
    parts: u64,
}

/// The accesses of a node.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    happened: BTreeMap<Page, Vec<Happened>>,
    /// The parts for which pages were fetched to this node.
    fetched_for: BTreeMap<Page, Vec<u8>>,
    /// The part of the last fault at each page.
    stopped_at: BTreeMap<Page, u8>,
    kept: usize,
}

/// The accesses as they are written.
#[derive(Debug, Serialize)]
pub(crate) struct InOrder {
    happened: Vec<(Page, Vec<Happened>)>,
    fetched_for: Vec<(Page, Vec<u8>)>,
    /// True if all accesses were stored.
    is_whole: bool,
}

fn part(at: usize) -> u8 {
    (at / PART).min(PARTS_MAX - 1) as u8
}

impl Accesses {
    /// Records a fault at a byte of a page.
    pub fn stopped(&mut self, page: Page, at: usize) {
        self.stopped_at.insert(page, part(at));
    }

    /// Records that a page is fetched to this node.
    pub fn fetches(&mut self, page: Page) {
        let part = self.stopped_at.get(&page).copied().unwrap_or_default();
        if self.keeps() {
            self.fetched_for.entry(page).or_default().push(part);
        }
    }

    /// Records that a page of this home is sent to a node.
    pub fn sends(&mut self, page: Page, to: NodeId) {
        self.add(page, Happened { node: to, parts: 0 });
    }

    /// Records that a node has changed these bytes of a page of this home.
    pub fn changed(&mut self, page: Page, node: NodeId, ranges: &[std::ops::Range<usize>]) {
        let parts = ranges.iter().filter(|range| !range.is_empty());
        let parts = parts.flat_map(|range| part(range.start)..=part(range.end - 1));
        self.add(page, Happened { node, parts: parts.fold(0, |all, part| all | 1 << part) });
    }

    /// Records that this node begins to write a page of its own.
    pub fn wrote(&mut self, page: Page, me: NodeId) {
        let part = self.stopped_at.get(&page).copied().unwrap_or_default();
        self.add(page, Happened { node: me, parts: 1 << part });
    }

    fn add(&mut self, page: Page, happened: Happened) {
        if self.keeps() {
            self.happened.entry(page).or_default().push(happened);
        }
    }

    fn keeps(&mut self) -> bool {
        self.kept += 1;
        self.kept <= HAPPENED_MAX
    }

    /// Returns all accesses.
    pub fn in_order(&self) -> InOrder {
        InOrder {
            happened: self.happened.clone().into_iter().collect(),
            fetched_for: self.fetched_for.clone().into_iter().collect(),
            is_whole: self.kept <= HAPPENED_MAX,
        }
    }
}
