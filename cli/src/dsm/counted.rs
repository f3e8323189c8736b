//! The statistics that a node writes at its end (`dsm::report`), from which the report is made.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Of a node.
#[derive(Debug, Default, Deserialize)]
pub struct Counted {
    pub seconds: f64,
    pub page_bytes: usize,
    pub totals: Totals,
    pub rides: Vec<OfRides>,
    pub pages: Vec<(u64, OfPage)>,
    /// First page, bytes, the number of the place that asked for it.
    #[serde(default)]
    pub allocations: Vec<(u64, u64, Option<usize>)>,
    pub observed: Option<Observed>,
}

#[derive(Debug, Default, Deserialize)]
pub struct Totals {
    pub page_messages: u64,
    pub messages: u64,
    pub bytes: u64,
    pub diffs: u64,
}

/// Rides by a carrier and a predictor.
#[derive(Debug, Deserialize)]
pub struct OfRides {
    carrier: String,
    by: String,
    #[serde(flatten)]
    rides: Rides,
}

/// Of a page, those of which there are none are not written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rides {
    #[serde(rename = "rides_predicted")]
    pub predicted: u64,
    #[serde(rename = "rides_sent")]
    pub sent: u64,
    #[serde(rename = "rides_used")]
    pub used: u64,
    #[serde(rename = "rides_wasted")]
    pub wasted: u64,
    #[serde(rename = "rides_late")]
    pub late: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct OfPage {
    pub home: u32,
    pub fetched: u64,
    pub written: u64,
    #[serde(flatten)]
    rides: Rides,
}

/// Samples, if they were requested.
#[derive(Debug, Deserialize)]
pub struct Observed {
    pub places: Vec<Place>,
    /// By page.
    pub code: Vec<(u64, Vec<Stops>)>,
    pub shared: Vec<(u64, Shared)>,
    /// Bytes of a larger page, fetches that it saves.
    pub larger: Vec<(usize, u64)>,
    #[serde(default)]
    pub in_order: InOrder,
}

/// Accesses to pages, by parts of 4 KB.
#[derive(Debug, Default, Deserialize)]
pub struct InOrder {
    /// At their home.
    pub happened: Vec<(u64, Vec<Happened>)>,
    /// For which parts this node fetched them.
    pub fetched_for: Vec<(u64, Vec<u8>)>,
    /// Nothing was left out.
    pub is_whole: bool,
}

/// A node has fetched the page (no parts), or changed parts.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Happened {
    pub node: usize,
    pub parts: u64,
}

/// An instruction, by its place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Place {
    pub file: String,
    pub offset: u64,
}

/// The number of times that a thread faulted at a place and fetched the page.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Stops {
    /// The number of the place.
    pub place: usize,
    pub stopped: u64,
    pub fetched: u64,
}

/// The number of times that several nodes wrote a page between two barriers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Shared {
    pub times: u64,
    pub bytes_differ: u64,
    pub small_pages_differ: u64,
}

impl Rides {
    fn add(&mut self, other: &Self) {
        self.predicted += other.predicted;
        self.sent += other.sent;
        self.used += other.used;
        self.wasted += other.wasted;
        self.late += other.late;
    }
}

/// Rides of all nodes, by carrier and predictor.
pub fn rides(nodes: &[Counted]) -> BTreeMap<(&str, &str), Rides> {
    let mut all: BTreeMap<_, Rides> = BTreeMap::new();
    for OfRides { carrier, by, rides } in nodes.iter().flat_map(|node| &node.rides) {
        all.entry((&**carrier, &**by)).or_default().add(rides);
    }
    all
}

/// The counters of a page on all nodes: the number of fetches and writes of each, in node order.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub home: usize,
    pub fetched: Vec<u64>,
    pub written: Vec<u64>,
    pub rides: Rides,
}

impl Page {
    pub fn fetches(&self) -> u64 {
        self.fetched.iter().sum()
    }

    /// Returns the home that would save most messages, and their number at least.
    ///
    /// The new home would not send its fetches and changes. The old home would have to fetch the
    /// page, at most once after each write of another node, and to send its writes. Reads of the
    /// home are not counted.
    pub fn better_home(&self) -> Option<(usize, u64)> {
        let others: u64 = (0..self.written.len())
            .filter(|node| *node != self.home)
            .map(|node| self.written[node])
            .sum();
        let costs = others + self.written[self.home];
        let saves = |node: usize| (self.fetched[node] + self.written[node]).checked_sub(costs);
        let other_nodes = (0..self.fetched.len()).filter(|node| *node != self.home);
        let (saved, node) = other_nodes.filter_map(|node| Some((saves(node)?, node))).max()?;
        (saved > 0).then_some((node, saved))
    }
}

/// All pages of which something was counted.
pub fn pages(nodes: &[Counted]) -> BTreeMap<u64, Page> {
    let mut pages = BTreeMap::new();
    for (node, counted) in nodes.iter().enumerate() {
        for (number, of) in &counted.pages {
            let page: &mut Page = pages.entry(*number).or_default();
            page.fetched.resize(nodes.len(), 0);
            page.written.resize(nodes.len(), 0);
            page.home = of.home as usize;
            page.fetched[node] = of.fetched;
            page.written[node] = of.written;
            page.rides.add(&of.rides);
        }
    }
    pages
}
