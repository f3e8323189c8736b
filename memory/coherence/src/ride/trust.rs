//! Trust: the accuracy of predictors. A predictor is used only while nearly all of its predictions
//! are right.
//!
//! History has two scores. One rates its predictions at page requests, the other those at barriers,
//! where less is known.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use super::By;
use crate::message::Page;

/// Number of predictions after which older ones count half.
const EXPERIENCE: u32 = 64;
/// Minimum number of predictions for one node before its own score counts.
const ENOUGH: u32 = 2;
/// Minimum number of right predictions, for all nodes, to use a predictor for a node without a
/// score. For one node, this number outweighs bad experience with other nodes.
const MANY: u32 = 8;

/// Counts of right and wrong predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trust {
    right: u32,
    wrong: u32,
}

impl Trust {
    fn add(&mut self, right: bool) {
        *(if right { &mut self.right } else { &mut self.wrong }) += 1;
        if self.right + self.wrong > EXPERIENCE {
            self.right /= 2;
            self.wrong /= 2;
        }
    }

    fn knows(&self) -> bool {
        self.right + self.wrong >= ENOUGH
    }

    /// Returns true if the predictor does more harm than good.
    pub fn is_wrong(&self) -> bool {
        8 * self.wrong > self.right
    }

    /// Forgets one wrong prediction, so that a rejected predictor is tried again eventually.
    pub fn forgive(&mut self) {
        self.wrong = self.wrong.saturating_sub(1);
    }

    /// Returns true if at least eleven of twelve predictions were right.
    fn is_right(&self) -> bool {
        self.right >= ENOUGH && self.right >= 11 * self.wrong
    }
}

/// Upper limit of the depth; more than one message holds.
const DEPTH_MAX: usize = 64;

/// A predictor in one of its uses, which has a score of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The predictor.
    pub by: By,
    /// True at a barrier, where no request shows what the node needs now. Pages that were often
    /// needed are needed less reliably there than after a page that they followed.
    pub blind: bool,
}

/// Number of scores. History has a second one for blind predictions.
const JUDGED: usize = By::ALL.len() + 1;

impl Judged {
    /// Returns all predictors and uses.
    pub fn all() -> impl Iterator<Item = Self> {
        let seeing = By::ALL.into_iter().map(|by| Self { by, blind: false });
        seeing.chain([Self { by: By::History, blind: true }])
    }

    fn place(self) -> usize {
        if self.blind { By::ALL.len() } else { self.by as usize }
    }
}

/// A value for each predictor and use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Of<T>([T; JUDGED]);

impl<T: Default> Default for Of<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

impl<T> Index<Judged> for Of<T> {
    type Output = T;
    fn index(&self, judged: Judged) -> &T {
        &self.0[judged.place()]
    }
}

impl<T> IndexMut<Judged> for Of<T> {
    fn index_mut(&mut self, judged: Judged) -> &mut T {
        &mut self.0[judged.place()]
    }
}

/// The scores of all predictors.
pub type Trusts = Of<Trust>;

/// Records whether a predictor was right, in the score for one node and in the score for all nodes.
pub fn judge(one: &mut Trusts, all: &mut Trusts, judged: Judged, right: bool) {
    one[judged].add(right);
    all[judged].add(right);
}

/// Returns true if a predictor may be used for a node. The node's own score decides; without
/// experience, the score for all nodes. Predictors that are rated page by page are used until their
/// score turns bad.
pub fn is_trusted(one: &Trusts, all: &Trusts, judged: Judged) -> bool {
    let (one, all) = (one[judged], all[judged]);
    match (judged.by, one.knows()) {
        (By::History | By::Written, true) => !one.is_wrong(),
        (By::History | By::Written, false) => !all.is_wrong(),
        // Two right predictions are luck if the predictor is wrong for other nodes.
        (_, true) => one.is_right() && (all.is_right() || one.right >= MANY),
        (_, false) => all.right >= MANY && all.is_right(),
    }
}

/// The test of one predictor for one node: the next page that it predicts, and the pages that were
/// sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trial {
    guess: Option<Page>,
    sent: BTreeMap<Page, u64>,
    /// Number of pages to send: doubled whenever all of the pages sent were needed.
    depth: usize,
}

impl Trial {
    /// Returns the number of pages that may be sent: at first one, then twice as many each time all
    /// were needed.
    pub fn depth(&self) -> usize {
        self.depth.max(1)
    }

    /// Sets the prediction of the next page.
    pub fn guess(&mut self, page: Option<Page>) {
        self.guess = page;
    }

    /// Ends a phase. The first page of a new phase is not predicted. Returns the number of wrong
    /// predictions: the pending one, and pages that were sent in earlier phases and not needed.
    pub fn pass(&mut self, phase: u64) -> usize {
        let guesses = usize::from(self.guess.take().is_some());
        let sent = self.sent.len();
        self.sent.retain(|_, since| *since >= phase);
        if self.sent.len() < sent {
            self.depth = 1;
        }
        guesses + sent - self.sent.len()
    }

    /// Records that a page was sent.
    pub fn sends(&mut self, page: Page, phase: u64) {
        self.sent.insert(page, phase);
    }

    /// Records that the node needs a page. Returns whether that was predicted, if there was a
    /// prediction.
    pub fn needs(&mut self, page: Page) -> Option<bool> {
        let guess = self.guess.take();
        if self.sent.remove(&page).is_some() {
            if self.sent.is_empty() {
                self.depth = (2 * self.depth()).min(DEPTH_MAX);
            }
            return Some(true);
        }
        Some(guess? == page)
    }

    /// Records that a page was sent in vain. Returns true if this predictor had sent it.
    pub fn wastes(&mut self, page: Page) -> bool {
        self.depth = 1;
        self.sent.remove(&page).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_wrong_more_than_once_in_twelve_are_ignored() {
        let (mut one, mut all) = (Trusts::default(), Trusts::default());
        let mut say = |by, right, times| {
            let by = Judged { by, blind: false };
            for _ in 0..times {
                judge(&mut one, &mut all, by, right);
            }
            (is_trusted(&one, &all, by), is_trusted(&Trusts::default(), &all, by))
        };
        assert_eq!(say(By::Next, true, 1), (false, false), "once is not often");
        assert_eq!(say(By::Next, true, 21), (true, true), "others speak for it");
        assert_eq!(say(By::Stride, true, 22), (true, true));
        assert_eq!(say(By::Next, false, 2), (true, true));
        assert_eq!(say(By::Next, false, 1), (false, false));
        assert_eq!(say(By::Stride, true, 1), (true, true));
    }

    #[test]
    fn more_is_sent_as_long_as_all_is_needed() {
        let mut trial = Trial::default();
        assert_eq!(trial.depth(), 1);
        trial.sends(7, 1);
        assert_eq!(trial.needs(7), Some(true));
        assert_eq!(trial.depth(), 2);
        trial.guess(Some(9));
        assert_eq!(trial.needs(8), Some(false));
        assert_eq!(trial.needs(9), None, "it said nothing");
        trial.sends(10, 1);
        trial.sends(11, 2);
        assert_eq!((trial.pass(2), trial.depth()), (1, 1));
        assert!(trial.wastes(11) && !trial.wastes(10));
    }
}
