//! `auto`: several predictors compete for what goes along to one node.
//!
//! All of them say which page a node will need next; what they said, and what was sent, is held
//! against what the node then needs ([`trust`](super::trust)). Only those that are right nearly
//! always are heard, in this order: [history](super::history), the
//! [shape](super::sequence) of phases, the paper's [differences](super::differences), a
//! [stride](super::sequence), and the next page. With a lock only pages go that were written
//! under it, and were needed before. What a node has already, as far as we know, is never sent.
//!
//! **Turns.** Where many nodes read much of one home at once (each all of a matrix), all wait
//! for it together, and then together for the next: the larger the messages, the more so. So
//! who reads much gets full messages in turn, a few nodes at a time: they go ahead, and soon all
//! homes have something to do. And where many go through a home's pages by steps, nothing rides:
//! what they compute in between goes on beside what others are sent.

use std::collections::VecDeque;
use std::ops::Range;

use super::differences::Differences;
use super::history::{Changes, History};
use super::sequence::Sequence;
use super::trust::{Trial, Trusts, heard, judge};
use super::{By, Carrier, Fate, Ride};
use crate::message::{NodeId, Page};

/// Guesses of one predictor that are looked at for a grant.
const GUESSES_MAX: usize = 64;
/// Who needs more pages than that in one phase reads much.
const MUCH: usize = 24;
/// What goes along with a message to who reads much, and whose turn it is not.
const MEANWHILE: usize = 1;
/// A turn ends when its node has not asked while others asked so often.
const PATIENCE: u64 = 64;
/// Asks in which many nodes are looked for,
const RECENT: usize = 16;
/// and how many are not many.
const CROWD: usize = 3;
/// How many have their turn at once.
const TURNS: usize = 8;
/// The predictors of page rides, those to be heard first first.
const PREDICTORS: [By; 5] = [By::History, By::Shape, By::Differences, By::Stride, By::Next];

/// What is known of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    changes: Changes,
    trusts: Trusts,
    /// Whose turn it is, and since when they have not asked.
    turns: Vec<(NodeId, u64)>,
    asked: u64,
    /// Who asked last.
    recent: VecDeque<NodeId>,
}

/// What is known of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    node: NodeId,
    history: History,
    sequence: Sequence,
    needed: Differences,
    trials: [Trial; By::ALL.len()],
    trusts: Trusts,
    /// Pages that it was given in which phase.
    given: (u64, usize),
}

impl Known {
    /// Somebody changes pages, as a barrier says or not: who has them and is not the writer
    /// needs them anew.
    pub fn changed(&mut self, pages: Range<Page>, barrier: bool, writer: Option<&mut Reader>) {
        let changed = self.changes.add(pages, barrier);
        if let Some(writer) = writer {
            changed.iter().for_each(|&page| writer.history.changed_itself(page, &self.changes));
        }
    }

    /// A node asks.
    fn hears(&mut self, node: NodeId) {
        self.asked += 1;
        self.recent.push_back(node);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Many nodes ask at once.
    fn is_crowded(&self) -> bool {
        let mut seen: Vec<NodeId> = self.recent.iter().copied().collect();
        seen.sort_unstable();
        seen.dedup();
        seen.len() > CROWD
    }

    /// It is this node's turn.
    fn takes_turn(&mut self, node: NodeId) -> bool {
        let asked = self.asked;
        self.turns.retain(|(whose, since)| *whose != node && asked - since <= PATIENCE);
        let has = self.turns.len() < TURNS;
        if has {
            self.turns.push((node, asked));
        }
        has
    }
}

impl Reader {
    /// Nothing yet.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            history: History::default(),
            sequence: Sequence::default(),
            needed: Differences::default(),
            trials: Default::default(),
            trusts: Trusts::default(),
            given: (0, 0),
        }
    }

    /// It says what became of a ride.
    pub fn learn(&mut self, known: &mut Known, Ride { page, by, fate }: Ride) {
        match fate {
            Fate::Used => self.needs(known, page),
            Fate::Wasted => {
                if self.trials[by as usize].wastes(page) {
                    judge(&mut self.trusts, &mut known.trusts, by, false);
                }
                self.history.was_wasted(page);
            }
            Fate::Aboard | Fate::Late => {}
        }
    }

    /// It asks for a page, in a phase.
    pub fn asks(&mut self, known: &mut Known, page: Page, phase: u64) {
        if self.sequence.begins(phase) {
            self.trusts[By::History as usize].forgive();
            self.trusts[By::Written as usize].forgive();
            for by in By::ALL {
                for _ in 0..self.trials[by as usize].pass(phase) {
                    judge(&mut self.trusts, &mut known.trusts, by, false);
                }
            }
        }
        known.hears(self.node);
        self.needs(known, page);
        self.history.gets(page, &mut known.changes);
    }

    fn needs(&mut self, known: &mut Known, page: Page) {
        for by in By::ALL {
            if let Some(right) = self.trials[by as usize].needs(page) {
                judge(&mut self.trusts, &mut known.trusts, by, right);
            }
        }
        self.history.needs(page);
        self.sequence.learn(page);
        self.needed.learn(page);
        for by in PREDICTORS.into_iter().filter(|&by| by != By::History) {
            let guess = self.guesses(by).take(GUESSES_MAX);
            let guess = { guess }.find(|&page| !self.history.has(page, &known.changes));
            self.trials[by as usize].guess(guess);
        }
    }

    /// What it will need, as one says.
    fn guesses(&self, by: By) -> Box<dyn Iterator<Item = Page> + '_> {
        match by {
            By::History | By::Written => Box::new(self.history.foresees()),
            By::Shape => Box::new(self.sequence.shape()),
            By::Differences => Box::new(self.needed.next_pages()),
            By::Stride => Box::new(self.sequence.stride()),
            By::Next => Box::new(self.sequence.next_pages()),
            By::Chance => Box::new(std::iter::empty()),
        }
    }

    /// What goes along with a grant, at most `room` pages, which `can`. `written` are the pages
    /// that a lock's grant names, in their order.
    pub fn foresee(
        &mut self,
        known: &mut Known,
        carrier: Carrier,
        room: usize,
        phase: u64,
        written: &[Page],
        can: impl Fn(Page) -> bool,
    ) -> Vec<Ride> {
        // A barrier or a lock says nothing of where the node stands.
        let predictors: &[By] = match carrier {
            Carrier::Page => &PREDICTORS,
            Carrier::Barrier => &[By::History],
            Carrier::Lock => &[By::Written],
        };
        let is_crowded = known.is_crowded();
        let mut rides: Vec<Ride> = Vec::new();
        for &by in predictors {
            if !heard(&self.trusts, &known.trusts, by) {
                continue;
            }
            // Who goes by steps computes in between, and others wait meanwhile.
            let by_steps = matches!(by, By::Shape | By::Differences | By::Stride);
            if by_steps && is_crowded {
                continue;
            }
            let depth = self.trials[by as usize].depth();
            let most = room.saturating_sub(rides.len()).min(depth);
            let wanted = |page: &Page| {
                // A copy that only the lock's grant takes away is in the way.
                let is_of_it = by != By::Written
                    || written.binary_search(page).is_ok()
                        && self.history.has_dropped(*page, &known.changes);
                is_of_it && !self.history.has(*page, &known.changes) && can(*page)
            };
            let guesses = self.guesses(by).take(GUESSES_MAX).filter(wanted);
            let new: Vec<Page> = guesses
                .filter(|page| rides.iter().all(|ride| ride.page != *page))
                .take(most)
                .collect();
            rides.extend(new.into_iter().map(|page| Ride { page, by, fate: Fate::Aboard }));
        }
        if self.given.0 != phase {
            self.given = (phase, 0);
        }
        self.given.1 += 1 + rides.len();
        if self.given.1 > MUCH && rides.len() > MEANWHILE && !known.takes_turn(self.node) {
            rides.truncate(MEANWHILE);
        }
        for ride in &rides {
            self.trials[ride.by as usize].sends(ride.page, phase);
            self.history.gets(ride.page, &mut known.changes);
        }
        rides
    }
}
