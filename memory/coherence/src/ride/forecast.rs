//! What a node foresees of others: which of its pages each will need next.
//!
//! It is told what others ask this node for and what of rides they used, and asked what may go
//! along with a grant. It sees no state of the protocol and none depends on it: a wrong guess
//! costs bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use super::auto;
use super::differences::Differences;
use super::granularity::Granularity;
use super::history::Change;
use super::runs::Runs;
use super::{By, Carrier, Fate, Policy, Ride};
use crate::message::{NodeId, Page};

/// Guesses that are looked at until enough pages are found that can go along.
const GUESSES_MAX: usize = 64;

/// Of all other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Forecast {
    policy: Policy,
    /// As the paper has it.
    others: BTreeMap<NodeId, Other>,
    /// As [`auto`] has it.
    known: auto::Known,
    readers: BTreeMap<NodeId, auto::Reader>,
    /// As [`runs`](super::runs) has it.
    runs: BTreeMap<NodeId, Runs>,
    /// Barriers passed.
    phase: u64,
}

/// Of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Other {
    needed: Differences,
    granularity: [Granularity; Carrier::ALL.len()],
}

/// What is foreseen for a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// What was foreseen.
    pub rides: Vec<Ride>,
    /// How many of them go along, from the first on: less, where granularity holds them back.
    pub sent: usize,
}

impl Forecast {
    /// Of nobody yet.
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Whether anything can ride at all.
    pub fn is_on(&self) -> bool {
        self.policy != Policy::Normal
    }

    /// A node says what became of a ride that we sent.
    pub fn learn(&mut self, node: NodeId, ride: Ride) {
        if self.policy == Policy::Auto {
            reader(&mut self.readers, node).learn(&mut self.known, ride);
        } else if self.policy == Policy::Runs {
            if ride.fate == Fate::Used {
                self.runs.entry(node).or_default().uses(ride.page);
            }
        } else if ride.fate == Fate::Used {
            let other = self.others.entry(node).or_default();
            other.needed.learn(ride.page);
            other.granularity.iter_mut().for_each(|it| it.used(ride.page));
        }
    }

    /// The time, and how long a page takes on its way, in the same unit.
    pub fn tick(&mut self, now: u64, fetch: u64) {
        self.known.tick(now, fetch);
    }

    /// A node asks for a page.
    pub fn asked(&mut self, node: NodeId, page: Page) {
        if self.policy == Policy::Auto {
            reader(&mut self.readers, node).asks(&mut self.known, page, self.phase);
        } else if self.policy == Policy::Runs {
            self.runs.entry(node).or_default().asks(page);
        } else if self.is_on() {
            let other = self.others.entry(node).or_default();
            other.needed.learn(page);
            other.granularity.iter_mut().for_each(|it| it.asked(page));
        }
    }

    /// These pages change: whoever else had them will need them anew.
    /// A barrier names them, or not; and their writer is their home alone, or not.
    pub fn changed(&mut self, writer: NodeId, pages: Range<Page>, barrier: bool, by_others: bool) {
        if self.policy == Policy::Auto {
            let change = Change { barrier, by_others, phase: self.phase };
            self.known.changed(pages, change, self.readers.get_mut(&writer));
        }
    }

    /// Whom something is known of.
    pub fn readers(&self) -> Vec<NodeId> {
        self.readers.keys().copied().collect()
    }

    /// What went to a node ahead of a barrier is what it has after that.
    pub fn has(&mut self, node: NodeId, page: Page) {
        if let Some(reader) = self.readers.get_mut(&node) {
            reader.has(&mut self.known, page);
        }
    }

    /// A barrier is passed.
    pub fn passed(&mut self) {
        self.phase += u64::from(self.policy == Policy::Auto);
    }

    /// What goes along with a grant to a node, at most `room` pages: those that it will need
    /// next, of those that `can`. `written` are the pages that the grant names.
    ///
    /// To be called for each grant once, after all that the node has told was learnt.
    pub fn foresee(
        &mut self,
        node: NodeId,
        carrier: Carrier,
        room: usize,
        written: impl Iterator<Item = Page>,
        can: impl Fn(Page) -> bool,
    ) -> Foreseen {
        let Some(by) = self.policy.predictor(carrier) else {
            return Foreseen { rides: Vec::new(), sent: 0 };
        };
        if self.policy == Policy::Auto {
            let reader = reader(&mut self.readers, node);
            let known = &mut self.known;
            let written = if carrier == Carrier::Lock { written.collect() } else { Vec::new() };
            let rides = reader.foresee(known, carrier, room, self.phase, &written, can);
            return Foreseen { sent: rides.len(), rides };
        }
        if self.policy == Policy::Runs {
            let pages = self.runs.entry(node).or_default().foresees();
            let aboard = |page| Ride { page, by, fate: Fate::Aboard };
            let rides: Vec<Ride> = pages.filter(|&page| can(page)).take(room).map(aboard).collect();
            return Foreseen { sent: rides.len(), rides };
        }
        let Other { needed, granularity } = self.others.entry(node).or_default();
        let granularity = &mut granularity[carrier as usize];
        granularity.judge();
        let most = granularity.pages().min(room);
        let mut pages: Vec<Page> = Vec::new();
        let mut look = |guesses: &mut dyn Iterator<Item = Page>| {
            for page in guesses.take(GUESSES_MAX) {
                if can(page) && !pages.contains(&page) {
                    pages.push(page);
                }
                if pages.len() >= most.max(1) {
                    break;
                }
            }
        };
        match by {
            By::Differences => look(&mut needed.next_pages()),
            By::Written => look(&mut { written }),
            _ => {}
        }
        granularity.begin(most > 0, pages.clone());
        let aboard = |page| Ride { page, by, fate: Fate::Aboard };
        let sent = most.min(pages.len());
        Foreseen { rides: pages.into_iter().map(aboard).collect(), sent }
    }
}

/// What is known of one node.
fn reader(readers: &mut BTreeMap<NodeId, auto::Reader>, node: NodeId) -> &mut auto::Reader {
    readers.entry(node).or_insert_with(|| auto::Reader::new(node))
}
