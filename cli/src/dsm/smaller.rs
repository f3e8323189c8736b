//! Estimates the effect of pages of 4 KB from the accesses to each page in order
//! (`dsm::accesses`): the number of fetches at least, and at most.
//!
//! The lower bound counts a fetch for the part at which a thread faulted, if other nodes have
//! changed it since the node had it. The upper bound counts one for each part that other nodes may
//! have changed. Neither later reads of a present page nor the home's writes after the first part
//! are recorded.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::counted::{Counted, Happened};

/// Bytes of a part.
const PART: usize = 4096;

/// The measured fetches, and the estimate for pages of 4 KB.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Smaller {
    pub fetches: u64,
    pub least: u64,
    pub most: u64,
    /// Pages without an estimate, since their home moved.
    pub unknown: u64,
}

/// The parts that a node has certainly, and possibly.
#[derive(Clone, Copy, Default)]
struct Has {
    perhaps: u64,
    surely: u64,
}

/// Returns the estimate of all pages, or `None` if the nodes' files lack the data or no page is
/// larger.
pub fn smaller(nodes: &[Counted]) -> Option<Smaller> {
    let parts = nodes[0].page_bytes / PART;
    let all = if parts >= 64 { u64::MAX } else { (1 << parts) - 1 };
    let orders: Option<Vec<_>> =
        nodes.iter().map(|node| Some(&node.observed.as_ref()?.in_order)).collect();
    let orders = orders.filter(|orders| parts > 1 && orders.iter().all(|it| it.is_whole))?;
    let mut homes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (node, order) in orders.iter().enumerate() {
        for (page, _) in &order.happened {
            homes.entry(*page).or_default().push(node);
        }
    }
    let mut wanted: HashMap<(u64, usize), VecDeque<u8>> = HashMap::new();
    for (node, order) in orders.iter().enumerate() {
        for (page, parts) in &order.fetched_for {
            wanted.insert((*page, node), parts.iter().copied().collect());
        }
    }
    let mut sum = Smaller::default();
    for (home, order) in orders.iter().enumerate() {
        for (page, happened) in &order.happened {
            if homes[page].len() > 1 {
                sum.unknown += u64::from(homes[page][0] == home);
                continue;
            }
            let mut nodes: HashMap<usize, Has> = HashMap::new();
            let mut writers = BTreeSet::new();
            for &Happened { node, parts: changed } in happened {
                if changed != 0 {
                    // A page that several wrote is its home's alone after the next barrier, which
                    // then writes it unseen.
                    writers.insert(node);
                    let is_seen = node != home && writers.len() == 1;
                    for (_, has) in nodes.iter_mut().filter(|(other, _)| **other != node) {
                        has.perhaps &= !changed;
                        has.surely &= if is_seen { !changed } else { 0 };
                    }
                    continue;
                }
                sum.fetches += 1;
                let has = nodes.entry(node).or_default();
                sum.most += u64::from((all & !has.surely).count_ones());
                has.surely = all;
                let part = wanted.get_mut(&(*page, node)).and_then(VecDeque::pop_front);
                if let Some(part) = part.filter(|part| has.perhaps & 1 << part == 0) {
                    sum.least += 1;
                    has.perhaps |= 1 << part;
                }
            }
        }
    }
    Some(sum)
}
