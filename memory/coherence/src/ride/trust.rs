//! Trust: how often who foresees pages is right. It is heard only if that is nearly always.
//!
//! History is judged twice: by what it says when a page is asked for, and by what it says at a
//! barrier, which is another thing.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use super::By;
use crate::message::Page;

/// What is remembered: older experience counts half.
const EXPERIENCE: u32 = 64;
/// So many must be right before any counts, with one node;
const ENOUGH: u32 = 2;
/// and before a node is judged as others were.
const MANY: u32 = 8;

/// How often a predictor was right, of how often it can be said.
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

    /// It does more harm than good.
    pub fn is_wrong(&self) -> bool {
        8 * self.wrong > self.right
    }

    /// Time has passed: who is not heard is tried again at last.
    pub fn forgive(&mut self) {
        self.wrong = self.wrong.saturating_sub(1);
    }

    /// Eleven of twelve.
    fn is_right(&self) -> bool {
        self.right >= ENOUGH && self.right >= 11 * self.wrong
    }
}

/// More than one message's.
const DEPTH_MAX: usize = 64;

/// Who is judged: a predictor, where it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The predictor.
    pub by: By,
    /// Where nothing says what a node needs now: at a barrier. What was often needed is needed
    /// then more seldom than after a page that it followed.
    pub blind: bool,
}

/// As many as there are: history is judged by itself where it is blind.
const JUDGED: usize = By::ALL.len() + 1;

impl Judged {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let seeing = By::ALL.into_iter().map(|by| Self { by, blind: false });
        seeing.chain([Self { by: By::History, blind: true }])
    }

    fn place(self) -> usize {
        if self.blind { By::ALL.len() } else { self.by as usize }
    }
}

/// Of all that are judged.
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

/// Of all predictors.
pub type Trusts = Of<Trust>;

/// A predictor was right or not, with one node and so with all.
pub fn judge(one: &mut Trusts, all: &mut Trusts, judged: Judged, right: bool) {
    one[judged].add(right);
    all[judged].add(right);
}

/// Those to be heard: whom experience with this node speaks for; where there is none yet, that
/// with all nodes. What is judged page by page is heard until experience speaks against it.
pub fn heard(one: &Trusts, all: &Trusts, judged: Judged) -> bool {
    let (one, all) = (one[judged], all[judged]);
    match (judged.by, one.knows()) {
        (By::History | By::Written, true) => !one.is_wrong(),
        (By::History | By::Written, false) => !all.is_wrong(),
        // To be right twice where others are wrong is luck.
        (_, true) => one.is_right() && (all.is_right() || one.right >= MANY),
        (_, false) => all.right >= MANY && all.is_right(),
    }
}

/// One predictor's pages for one node: the next that it will need, and those that were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trial {
    guess: Option<Page>,
    sent: BTreeMap<Page, u64>,
    /// All that was sent was needed, since so many were.
    depth: usize,
}

impl Trial {
    /// How many pages may be sent: twice as many as when all were needed, one at first.
    pub fn depth(&self) -> usize {
        self.depth.max(1)
    }

    /// The next page is foreseen.
    pub fn guess(&mut self, page: Option<Page>) {
        self.guess = page;
    }

    /// A phase begins: nobody foresees that. What was foreseen or sent before and not needed was
    /// wrong; how many.
    pub fn pass(&mut self, phase: u64) -> usize {
        let guesses = usize::from(self.guess.take().is_some());
        let sent = self.sent.len();
        self.sent.retain(|_, since| *since >= phase);
        if self.sent.len() < sent {
            self.depth = 1;
        }
        guesses + sent - self.sent.len()
    }

    /// These are sent.
    pub fn sends(&mut self, page: Page, phase: u64) {
        self.sent.insert(page, phase);
    }

    /// The node needs a page: whether that was foreseen, if it was said.
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

    /// What was sent was of no use.
    pub fn wastes(&mut self, page: Page) -> bool {
        self.depth = 1;
        self.sent.remove(&page).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_wrong_more_than_once_in_twelve_is_not_heard() {
        let (mut one, mut all) = (Trusts::default(), Trusts::default());
        let mut say = |by, right, times| {
            let by = Judged { by, blind: false };
            for _ in 0..times {
                judge(&mut one, &mut all, by, right);
            }
            (heard(&one, &all, by), heard(&Trusts::default(), &all, by))
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
