//! The `auto` policy: several predictors compete for the pages that are sent to one node.
//!
//! Each predictor predicts the page that a node will need next. The predictions and the pages that
//! were sent are compared with the pages that the node then needs ([`trust`](super::trust)). Only
//! predictors that are nearly always right are used, in this order: [history](super::history), the
//! [shape](super::sequence) of phases, the paper's [differences](super::differences), a
//! [stride](super::sequence), and the next page.
//!
//! A lock grant carries only pages that were written under the lock and that the node needed
//! before. A page is never sent to a node that is believed to have a current copy.
//!
//! **Turns.** If many nodes read much of one home at once, such as all of a matrix, all of them
//! wait for it. Then all wait together for the next home, and longer messages make it worse. So
//! nodes that read much get full messages in turn, a few nodes at a time. These proceed, and soon
//! all homes are busy.
//!
//! If many nodes step through a home's pages, nothing is piggybacked. The computation of each node
//! between its requests then overlaps with transfers to the others.

use std::collections::VecDeque;
use std::ops::Range;

use super::differences::Differences;
use super::history::{Change, Changes, History};
use super::sequence::Sequence;
use super::trust::{Judged, Of, Trial, Trusts, is_trusted, judge};
use super::{By, Carrier, Fate, Ride};
use crate::message::{NodeId, Page};

/// Maximum number of predictions of one predictor that are tried for a grant.
const GUESSES_MAX: usize = 64;
/// A node that needs more pages than this in one phase reads much.
const MUCH: usize = 24;
/// Maximum number of rides to a node that reads much while it is not its turn.
const MEANWHILE: usize = 1;
/// A turn ends when other nodes have sent this number of requests since the node's last turn.
const PATIENCE: u64 = 32;
/// Number of recent requests that show whether many nodes request at once.
const RECENT: usize = 16;
/// Maximum number of nodes among these requests that are not a crowd.
const CROWD: usize = 3;
/// Number of recent requests whose rate is measured.
const BURST: usize = 4;
/// Number of pages that may be sent with barriers before one of them has been used.
const TRIED: u64 = 4;
/// Number of phases for which this node counts as busy after a burst.
const BUSY: u64 = 64;
/// Maximum number of nodes that have their turn at once.
const TURNS: usize = 9;
/// A node that has not reported the fates of this number of pushes gets no more until it sends a
/// request.
const UNHEARD_MAX: u32 = 16;
/// Every `FORGIVING` phases each predictor is forgiven one wrong prediction.
const FORGIVING: u64 = 32;
/// The predictors of page rides, in the order of priority.
const PREDICTORS: [By; 5] = [By::History, By::Shape, By::Differences, By::Stride, By::Next];

/// State that is shared by all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    changes: Changes,
    trusts: Trusts,
    /// The nodes that have their turn, with the number of requests at its start.
    turns: Vec<(NodeId, u64)>,
    asked: u64,
    /// The nodes that sent the last requests, and the times.
    recent: VecDeque<(NodeId, u64)>,
    /// Number of pages that were sent with barriers, and number of those that were used.
    blind: (u64, u64),
    /// The phase until which this node counts as busy.
    busy_until: u64,
    /// The current time, and the transfer time of a page.
    clock: (u64, u64),
}

/// State of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    node: NodeId,
    history: History,
    sequence: Sequence,
    needed: Differences,
    trials: Of<Trial>,
    trusts: Trusts,
    /// A phase, and the number of pages granted to the node in it.
    given: (u64, usize),
    /// Number of pushes since the node last sent a report or a request.
    unheard: u32,
}

impl Known {
    /// Records a change of pages. Nodes other than the writer lose their current copies.
    pub fn changed(&mut self, pages: Range<Page>, change: Change, writer: Option<&mut Reader>) {
        let changed = self.changes.add(pages, change);
        if let Some(writer) = writer {
            changed.iter().for_each(|&page| writer.history.changed_itself(page, &self.changes));
        }
    }

    /// Records a request of a node.
    fn record_request(&mut self, node: NodeId) {
        self.asked += 1;
        self.recent.push_back((node, self.clock.0));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Returns true if many nodes request at once.
    fn is_crowded(&self) -> bool {
        let mut seen: Vec<NodeId> = self.recent.iter().map(|(node, _)| *node).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.len() > CROWD
    }

    /// Sets the current time, and the transfer time of a page in the same unit.
    pub fn tick(&mut self, now: u64, fetch: u64) {
        self.clock = (now, fetch);
    }

    /// Returns true if many nodes request pages, and more than two of them wait at a time, now or
    /// in recent phases.
    fn is_busy(&mut self, is_crowded: bool, phase: u64) -> bool {
        let (now, fetch) = self.clock;
        let since = self.recent.iter().rev().nth(BURST - 1).map(|(_, since)| *since);
        let is_burst = |since| 2 * now.saturating_sub(since) < BURST as u64 * fetch;
        if is_crowded && since.is_some_and(is_burst) {
            self.busy_until = phase + BUSY;
        }
        phase < self.busy_until
    }

    /// Gives a node its turn, if one is free. Returns true if it has it.
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
    /// Creates the state of a node without experience.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            history: History::default(),
            sequence: Sequence::default(),
            needed: Differences::default(),
            trials: Of::default(),
            trusts: Trusts::default(),
            given: (0, 0),
            unheard: 0,
        }
    }

    /// Learns the fate of a ride.
    pub fn learn(&mut self, known: &mut Known, Ride { page, by, fate }: Ride) {
        self.unheard = 0;
        match fate {
            Fate::Used => self.needs(known, page),
            Fate::Wasted | Fate::Idle => {
                for judged in Judged::all().filter(|judged| judged.by == by) {
                    if self.trials[judged].wastes(page) {
                        judge(&mut self.trusts, &mut known.trusts, judged, false);
                    }
                }
                // The home did not predict the pages that the node asked for.
                if by != By::Wanted {
                    self.history.was_wasted(page);
                }
            }
            Fate::Aboard | Fate::Late | Fate::Wanted => {}
        }
    }

    /// Learns that the node requested a page in a phase.
    pub fn asks(&mut self, known: &mut Known, page: Page, phase: u64) {
        if self.sequence.begins(phase) {
            if phase.is_multiple_of(FORGIVING) {
                for judged in Judged::all() {
                    self.trusts[judged].forgive();
                }
            }
            for judged in Judged::all() {
                for _ in 0..self.trials[judged].pass(phase) {
                    judge(&mut self.trusts, &mut known.trusts, judged, false);
                }
            }
        }
        self.unheard = 0;
        known.record_request(self.node);
        self.needs(known, page);
        self.history.gets(page, &mut known.changes);
    }

    /// Learns that the node has a current copy of the page.
    pub fn has(&mut self, known: &mut Known, page: Page) {
        self.history.gets(page, &mut known.changes);
    }

    fn needs(&mut self, known: &mut Known, page: Page) {
        for judged in Judged::all() {
            if let Some(right) = self.trials[judged].needs(page) {
                known.blind.1 += u64::from(right && judged.blind);
                judge(&mut self.trusts, &mut known.trusts, judged, right);
            }
        }
        self.history.needs(page);
        self.sequence.learn(page);
        self.needed.learn(page);
        for by in PREDICTORS.into_iter().filter(|&by| by != By::History) {
            let guess = self.guesses(by).take(GUESSES_MAX);
            let guess = { guess }.find(|&page| !self.history.has(page, &known.changes));
            self.trials[Judged { by, blind: false }].guess(guess);
        }
    }

    /// Returns the pages that a predictor expects next.
    fn guesses(&self, by: By) -> Box<dyn Iterator<Item = Page> + '_> {
        match by {
            By::History | By::Written => Box::new(self.history.predicted()),
            By::Shape => Box::new(self.sequence.shape()),
            By::Differences => Box::new(self.needed.next_pages()),
            By::Stride => Box::new(self.sequence.stride()),
            By::Next => Box::new(self.sequence.next_pages()),
            By::Chance | By::Wanted | By::Prefetch => Box::new(std::iter::empty()),
        }
    }

    /// Returns rides for the pages that the node requested along with another page: at most `room`
    /// of those for which `can` returns true.
    pub fn answer(
        &mut self,
        known: &mut Known,
        wanted: &[Page],
        room: usize,
        phase: u64,
        can: impl Fn(Page) -> bool,
    ) -> Vec<Ride> {
        let wanted = wanted.iter().copied().filter(|&page| can(page));
        let ride = |page| Ride { page, by: By::Wanted, fate: Fate::Aboard };
        let mut rides: Vec<Ride> = wanted.take(room).map(ride).collect();
        self.await_turn(known, &mut rides, phase);
        for ride in &rides {
            self.history.gets(ride.page, &mut known.changes);
        }
        rides
    }

    /// Drops rides if the node reads much and it is not its turn.
    fn await_turn(&mut self, known: &mut Known, rides: &mut Vec<Ride>, phase: u64) {
        if self.given.0 != phase {
            self.given = (phase, 0);
        }
        self.given.1 += 1 + rides.len();
        if self.given.1 > MUCH && rides.len() > MEANWHILE && !known.takes_turn(self.node) {
            rides.truncate(MEANWHILE);
        }
    }

    /// Predicts at most `room` pages for a grant, for which `can` returns true. `written` are the
    /// pages that a lock's grant names, in ascending order.
    pub fn predict(
        &mut self,
        known: &mut Known,
        carrier: Carrier,
        room: usize,
        phase: u64,
        written: &[Page],
        can: impl Fn(Page) -> bool,
    ) -> Vec<Ride> {
        // A barrier or lock does not show the node's position in its access pattern.
        let predictors: &[By] = match carrier {
            Carrier::Page => &PREDICTORS,
            Carrier::Barrier | Carrier::Arrival => &[By::History],
            Carrier::Push if self.unheard >= UNHEARD_MAX => &[],
            Carrier::Push => &[By::History],
            Carrier::Lock => &[By::Written],
        };
        let is_blind = !matches!(carrier, Carrier::Page | Carrier::Lock);
        let is_crowded = known.is_crowded();
        let is_busy = known.is_busy(is_crowded, phase);
        let mut rides: Vec<Ride> = Vec::new();
        for &by in predictors {
            let judged = Judged { by, blind: is_blind };
            // Blind predictions start with a few pages, until some of these have been used.
            let is_tried = is_blind && known.blind.0 >= TRIED + 8 * known.blind.1;
            if is_tried || !is_trusted(&self.trusts, &known.trusts, judged) {
                continue;
            }
            // A node that steps through pages computes in between, and larger messages would delay
            // other nodes. The same holds if many nodes request the same few pages at once.
            let by_steps = matches!(by, By::Shape | By::Differences | By::Stride);
            let by_pages = by == By::History && !is_blind;
            if is_crowded && (by_steps || by_pages && is_busy) {
                continue;
            }
            let depth = self.trials[judged].depth();
            let mut most = room.saturating_sub(rides.len()).min(depth);
            // These predictions have no end. Assume that phases are as long as before.
            let endless = matches!(by, By::Differences | By::Stride | By::Next);
            if let Some(longest) = self.sequence.longest().filter(|_| endless) {
                let given = if self.given.0 == phase { self.given.1 } else { 0 };
                most = most.min(longest.saturating_sub(given + 1));
            }
            let wanted = |page: &Page| {
                // A copy that only the lock's grant invalidates would prevent the ride.
                let is_of_it = by != By::Written
                    || written.binary_search(page).is_ok()
                        && self.history.has_dropped(*page, &known.changes);
                let is_ready = !carrier.is_ahead() || known.changes.is_its_homes(*page, phase);
                is_of_it && is_ready && !self.history.has(*page, &known.changes) && can(*page)
            };
            let guesses = self.guesses(by).take(GUESSES_MAX).filter(wanted);
            let new: Vec<Page> = guesses
                .filter(|page| rides.iter().all(|ride| ride.page != *page))
                .take(most)
                .collect();
            rides.extend(new.into_iter().map(|page| Ride { page, by, fate: Fate::Aboard }));
        }
        // Pages that are sent ahead of a barrier belong to the phase after it.
        let phase = phase + u64::from(carrier.is_ahead());
        if carrier == Carrier::Push && !rides.is_empty() {
            self.unheard += 1;
        }
        self.await_turn(known, &mut rides, phase);
        known.blind.0 += if is_blind { rides.len() as u64 } else { 0 };
        for ride in &rides {
            self.trials[Judged { by: ride.by, blind: is_blind }].sends(ride.page, phase);
            self.history.gets(ride.page, &mut known.changes);
        }
        rides
    }
}
