//! What happened to each page, in order, by parts of 4 KB: for `nagaya dsm report`, which tells
//! from it what pages of that size would do.
//!
//! A page's home sees in what order others fetch it and send what they have changed; which part
//! a fetch was for, only who was stopped there knows. Of what a page's home writes itself,
//! and of what is read once a page is here, no more is seen than the first part.

use std::collections::BTreeMap;

use coherence::message::{NodeId, Page};
use serde::Serialize;

/// Bytes of a part.
const PART: usize = 4096;
/// Parts that are told apart; the last stands for those behind it, too.
const PARTS_MAX: usize = 64;
/// Of these more are not kept.
const HAPPENED_MAX: usize = 1 << 22;

/// Where it lives: another node has fetched a page (no parts), or somebody has changed parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Happened {
    node: NodeId,
    /// A bit each.
    parts: u64,
}

/// Of one node.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    happened: BTreeMap<Page, Vec<Happened>>,
    /// For which parts pages were fetched to here.
    fetched_for: BTreeMap<Page, Vec<u8>>,
    /// Where somebody was stopped last.
    stopped_at: BTreeMap<Page, u8>,
    kept: usize,
}

/// As it is written.
#[derive(Debug, Serialize)]
pub(crate) struct InOrder {
    happened: Vec<(Page, Vec<Happened>)>,
    fetched_for: Vec<(Page, Vec<u8>)>,
    /// All of it.
    is_whole: bool,
}

fn part(at: usize) -> u8 {
    (at / PART).min(PARTS_MAX - 1) as u8
}

impl Accesses {
    /// A thread was stopped at a byte of a page.
    pub fn stopped(&mut self, page: Page, at: usize) {
        self.stopped_at.insert(page, part(at));
    }

    /// A page is fetched to here.
    pub fn fetches(&mut self, page: Page) {
        let part = self.stopped_at.get(&page).copied().unwrap_or_default();
        if self.keeps() {
            self.fetched_for.entry(page).or_default().push(part);
        }
    }

    /// A page that lives here is sent to a node.
    pub fn sends(&mut self, page: Page, to: NodeId) {
        self.add(page, Happened { node: to, parts: 0 });
    }

    /// A node has changed these bytes of a page that lives here.
    pub fn changed(&mut self, page: Page, node: NodeId, ranges: &[std::ops::Range<usize>]) {
        let parts = ranges.iter().filter(|range| !range.is_empty());
        let parts = parts.flat_map(|range| part(range.start)..=part(range.end - 1));
        self.add(page, Happened { node, parts: parts.fold(0, |all, part| all | 1 << part) });
    }

    /// This node begins to write a page that lives here.
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

    /// All of it.
    pub fn in_order(&self) -> InOrder {
        InOrder {
            happened: self.happened.clone().into_iter().collect(),
            fetched_for: self.fetched_for.clone().into_iter().collect(),
            is_whole: self.kept <= HAPPENED_MAX,
        }
    }
}
