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
use super::history::{Change, Changes, History};
use super::sequence::Sequence;
use super::trust::{Judged, Of, Trial, Trusts, heard, judge};
use super::{By, Carrier, Fate, Ride};
use crate::message::{NodeId, Page};

/// Guesses of one predictor that are looked at for a grant.
const GUESSES_MAX: usize = 64;
/// Who needs more pages than that in one phase reads much.
const MUCH: usize = 24;
/// What goes along with a message to who reads much, and whose turn it is not.
const MEANWHILE: usize = 1;
/// A turn ends when its node has not asked while others asked so often.
const PATIENCE: u64 = 32;
/// Asks in which many nodes are looked for,
const RECENT: usize = 16;
/// and how many are not many.
const CROWD: usize = 3;
/// Asks that tell how fast they follow each other.
const BURST: usize = 4;
/// Pages that may go with barriers before one of them was used.
const TRIED: u64 = 4;
/// Phases for which who was busy stays so.
const BUSY: u64 = 64;
/// How many have their turn at once.
const TURNS: usize = 9;
/// Who has not said what became of so many pushes gets no more until it asks for something.
const UNHEARD_MAX: u32 = 16;
/// Phases after which one that was wrong is forgiven.
const FORGIVING: u64 = 32;
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
    /// Who asked last, and when.
    recent: VecDeque<(NodeId, u64)>,
    /// Pages that went with barriers, and those of them that were used.
    blind: (u64, u64),
    /// The phase before which as many ask at once as before.
    busy_until: u64,
    /// The time, and how long pages take on their way.
    clock: (u64, u64),
}

/// What is known of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    node: NodeId,
    history: History,
    sequence: Sequence,
    needed: Differences,
    trials: Of<Trial>,
    trusts: Trusts,
    /// Pages that it was given in which phase.
    given: (u64, usize),
    /// Pushes since it said anything.
    unheard: u32,
}

impl Known {
    /// Somebody changes pages: who has them and is not the writer
    /// needs them anew.
    pub fn changed(&mut self, pages: Range<Page>, change: Change, writer: Option<&mut Reader>) {
        let changed = self.changes.add(pages, change);
        if let Some(writer) = writer {
            changed.iter().for_each(|&page| writer.history.changed_itself(page, &self.changes));
        }
    }

    /// A node asks.
    fn hears(&mut self, node: NodeId) {
        self.asked += 1;
        self.recent.push_back((node, self.clock.0));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Many nodes ask at once.
    fn is_crowded(&self) -> bool {
        let mut seen: Vec<NodeId> = self.recent.iter().map(|(node, _)| *node).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.len() > CROWD
    }

    /// The time, and how long a page takes from here to there, in the same unit.
    pub fn tick(&mut self, now: u64, fetch: u64) {
        self.clock = (now, fetch);
    }

    /// Of many more than two wait at a time, or did not long ago.
    fn is_busy(&mut self, is_crowded: bool, phase: u64) -> bool {
        let (now, fetch) = self.clock;
        let since = self.recent.iter().rev().nth(BURST - 1).map(|(_, since)| *since);
        let is_burst = |since| 2 * now.saturating_sub(since) < BURST as u64 * fetch;
        if is_crowded && since.is_some_and(is_burst) {
            self.busy_until = phase + BUSY;
        }
        phase < self.busy_until
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
            trials: Of::default(),
            trusts: Trusts::default(),
            given: (0, 0),
            unheard: 0,
        }
    }

    /// It says what became of a ride.
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
                self.history.was_wasted(page);
            }
            Fate::Aboard | Fate::Late => {}
        }
    }

    /// It asks for a page, in a phase.
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
        known.hears(self.node);
        self.needs(known, page);
        self.history.gets(page, &mut known.changes);
    }

    /// It has the page as it is.
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
            // Nobody is tried with all at once.
            let is_tried = is_blind && known.blind.0 >= TRIED + 8 * known.blind.1;
            if is_tried || !heard(&self.trusts, &known.trusts, judged) {
                continue;
            }
            // Who goes by steps computes in between, and others wait meanwhile; so do they where
            // many want the same few pages at once.
            let by_steps = matches!(by, By::Shape | By::Differences | By::Stride);
            let by_pages = by == By::History && !is_blind;
            if is_crowded && (by_steps || by_pages && is_busy) {
                continue;
            }
            let depth = self.trials[judged].depth();
            let mut most = room.saturating_sub(rides.len()).min(depth);
            // Who knows no end: phases are as long as before.
            let endless = matches!(by, By::Differences | By::Stride | By::Next);
            if let Some(longest) = self.sequence.longest().filter(|_| endless) {
                let given = if self.given.0 == phase { self.given.1 } else { 0 };
                most = most.min(longest.saturating_sub(given + 1));
            }
            let wanted = |page: &Page| {
                // A copy that only the lock's grant takes away is in the way.
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
        // What goes ahead of a barrier is for the phase after it.
        let phase = phase + u64::from(carrier.is_ahead());
        if carrier == Carrier::Push && !rides.is_empty() {
            self.unheard += 1;
        }
        if self.given.0 != phase {
            self.given = (phase, 0);
        }
        self.given.1 += 1 + rides.len();
        if self.given.1 > MUCH && rides.len() > MEANWHILE && !known.takes_turn(self.node) {
            rides.truncate(MEANWHILE);
        }
        known.blind.0 += if is_blind { rides.len() as u64 } else { 0 };
        for ride in &rides {
            self.trials[Judged { by: ride.by, blind: is_blind }].sends(ride.page, phase);
            self.history.gets(ride.page, &mut known.changes);
        }
        rides
    }
}
