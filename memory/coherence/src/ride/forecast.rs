//! The forecast: for each other node, the pages of this node that it will request next.
//!
//! The forecast learns from requests and from the fates of rides. It selects the pages that a grant
//! carries. It does not read the protocol's state, and the protocol does not depend on it: a wrong
//! prediction costs only bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use super::auto;
use super::choices::{Choices, Sequence};
use super::differences::{Differences, Patterns};
use super::granularity::Granularity;
use super::history::Change;
use super::runs::Runs;
use super::{By, Carrier, Fate, Policy, Ride};
use crate::message::{NodeId, Page};

/// Maximum number of predicted pages that are tried until enough of them can be sent.
const GUESSES_MAX: usize = 64;

/// The forecast for all other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Forecast {
    policy: Policy,
    /// How the paper's policies fill the gaps of its description.
    choices: Choices,
    /// The table of patterns that all nodes share with [`Choices::shared`].
    patterns: Patterns,
    /// State of the paper's policies.
    others: BTreeMap<NodeId, Other>,
    /// State of the [`auto`] policy.
    known: auto::Known,
    readers: BTreeMap<NodeId, auto::Reader>,
    /// State of the [`runs`](super::runs) policy.
    runs: BTreeMap<NodeId, Runs>,
    /// Number of barriers passed.
    phase: u64,
}

/// State of the paper's policies for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Other {
    needed: Differences,
    granularity: [Granularity; Carrier::ALL.len()],
}

/// The prediction for a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The predicted pages.
    pub rides: Vec<Ride>,
    /// Number of rides, from the first on, that the grant carries. The granularity control may hold
    /// back the rest.
    pub sent: usize,
}

impl Forecast {
    /// Creates a forecast that knows no node yet.
    pub fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Selects other choices than the default. Call this before the first request.
    pub fn choose(&mut self, choices: Choices) {
        self.choices = choices;
    }

    /// The paper's policies learn the next page of a node's sequence.
    fn learn_page(&mut self, node: NodeId, page: Page) {
        let needed = &mut self.others.entry(node).or_default().needed;
        if self.choices.shared {
            needed.exchange(&mut self.patterns);
            needed.learn(page);
            needed.exchange(&mut self.patterns);
        } else {
            needed.learn(page);
        }
    }

    /// Returns true if the policy has rides.
    pub fn is_on(&self) -> bool {
        self.policy != Policy::Normal
    }

    /// Learns the fate of a ride from the node that received it.
    pub fn learn(&mut self, node: NodeId, ride: Ride) {
        if self.policy == Policy::Auto {
            reader(&mut self.readers, node).learn(&mut self.known, ride);
        } else if self.policy == Policy::Runs {
            if ride.fate == Fate::Used {
                self.runs.entry(node).or_default().uses(ride.page);
            }
        } else if ride.fate == Fate::Used {
            if self.choices.sequence == Sequence::Needed {
                self.learn_page(node, ride.page);
            }
            let other = self.others.entry(node).or_default();
            other.granularity.iter_mut().for_each(|it| it.used(ride.page));
        }
    }

    /// Sets the current time, and the transfer time of a page in the same unit.
    pub fn tick(&mut self, now: u64, fetch: u64) {
        self.known.tick(now, fetch);
    }

    /// Learns that a node requested a page.
    pub fn asked(&mut self, node: NodeId, page: Page) {
        if self.policy == Policy::Auto {
            reader(&mut self.readers, node).asks(&mut self.known, page, self.phase);
        } else if self.policy == Policy::Runs {
            self.runs.entry(node).or_default().asks(page);
        } else if self.is_on() {
            self.learn_page(node, page);
            let other = self.others.entry(node).or_default();
            other.granularity.iter_mut().for_each(|it| it.asked(page));
        }
    }

    /// Learns that these pages change, so that other nodes' copies become invalid. `barrier` is
    /// true if a barrier named the pages. `by_others` is true if their home is not the only writer.
    pub fn changed(&mut self, writer: NodeId, pages: Range<Page>, barrier: bool, by_others: bool) {
        if self.policy == Policy::Auto {
            let change = Change { barrier, by_others, phase: self.phase };
            self.known.changed(pages, change, self.readers.get_mut(&writer));
        }
    }

    /// Returns the nodes that have requested pages before.
    pub fn readers(&self) -> Vec<NodeId> {
        self.readers.keys().copied().collect()
    }

    /// Learns that a node has a current copy of a page, which it received ahead of a barrier.
    pub fn has(&mut self, node: NodeId, page: Page) {
        if let Some(reader) = self.readers.get_mut(&node) {
            reader.has(&mut self.known, page);
        }
    }

    /// Learns that a barrier was passed.
    pub fn passed(&mut self) {
        self.phase += u64::from(self.policy == Policy::Auto);
        if self.choices.barrier_ends {
            for other in self.others.values_mut() {
                other.granularity[Carrier::Page as usize].judge(self.choices);
            }
        }
    }

    /// Returns the rides for pages that a node requested along with another page, if the policy has
    /// such requests.
    pub fn answer(
        &mut self,
        node: NodeId,
        wanted: &[Page],
        room: usize,
        can: impl Fn(Page) -> bool,
    ) -> Prediction {
        let mut rides = Vec::new();
        if self.policy == Policy::Auto {
            let reader = reader(&mut self.readers, node);
            rides = reader.answer(&mut self.known, wanted, room, self.phase, can);
        }
        Prediction { sent: rides.len(), rides }
    }

    /// Predicts the pages for a grant to a node: at most `room` pages that it will request next and
    /// for which `can` returns true. `written` are the pages that the grant names.
    ///
    /// Call this exactly once for each grant, after all reports of the node were learnt.
    pub fn predict(
        &mut self,
        node: NodeId,
        carrier: Carrier,
        room: usize,
        written: impl Iterator<Item = Page>,
        can: impl Fn(Page) -> bool,
    ) -> Prediction {
        let Some(by) = self.policy.predictor(carrier) else {
            return Prediction { rides: Vec::new(), sent: 0 };
        };
        if self.policy == Policy::Auto {
            let reader = reader(&mut self.readers, node);
            let known = &mut self.known;
            let written = if carrier == Carrier::Lock { written.collect() } else { Vec::new() };
            let rides = reader.predict(known, carrier, room, self.phase, &written, can);
            return Prediction { sent: rides.len(), rides };
        }
        if self.policy == Policy::Runs {
            let pages = self.runs.entry(node).or_default().predicted();
            let aboard = |page| Ride { page, by, fate: Fate::Aboard };
            let rides: Vec<Ride> = pages.filter(|&page| can(page)).take(room).map(aboard).collect();
            return Prediction { sent: rides.len(), rides };
        }
        let (choices, shared) = (self.choices, self.choices.shared);
        let Other { needed, granularity } = self.others.entry(node).or_default();
        let granularity = &mut granularity[carrier as usize];
        granularity.judge(choices);
        if shared {
            needed.exchange(&mut self.patterns);
        }
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
        if shared {
            needed.exchange(&mut self.patterns);
        }
        granularity.begin(most > 0, pages.clone());
        let aboard = |page| Ride { page, by, fate: Fate::Aboard };
        let sent = most.min(pages.len());
        if choices.sequence == Sequence::Transferred {
            pages[..sent].iter().for_each(|&page| self.learn_page(node, page));
        }
        Prediction { rides: pages.into_iter().map(aboard).collect(), sent }
    }
}

/// Returns the state of the `auto` policy for a node.
fn reader(readers: &mut BTreeMap<NodeId, auto::Reader>, node: NodeId) -> &mut auto::Reader {
    readers.entry(node).or_insert_with(|| auto::Reader::new(node))
}
