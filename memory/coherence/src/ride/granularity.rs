//! The paper's control of the granularity of communication (§2.2): how many pages go along.
//!
//! If what went along was used right after its transfer, one more goes along next time; if
//! not, one less, but never fewer than none. The paper does not say how a granularity of none
//! can grow: here a page is foreseen then as well, and counts as used if it is what is asked
//! for next.

use crate::message::Page;

/// Of one kind of carrier, to one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Granularity {
    pages: usize,
    /// What the last carrier took along, or would have: what of that was not used yet.
    trial: Option<Trial>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Trial {
    sent: bool,
    unused: Vec<Page>,
}

/// It does not grow beyond: it has to come down again.
const MOST: usize = 64;

impl Granularity {
    /// How many pages go along next.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// These go along (true), or are only foreseen.
    pub fn begin(&mut self, sent: bool, pages: Vec<Page>) {
        self.trial = (!pages.is_empty()).then_some(Trial { sent, unused: pages });
    }

    /// One that went along was used.
    pub fn used(&mut self, page: Page) {
        self.meets(true, page);
    }

    /// A page was asked for.
    pub fn asked(&mut self, page: Page) {
        self.meets(false, page);
    }

    fn meets(&mut self, sent: bool, page: Page) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.sent == sent) {
            trial.unused.retain(|unused| *unused != page);
        }
    }

    /// The next carrier is asked for: what went along with the last was used by now, or not
    /// right after its transfer.
    pub fn judge(&mut self) {
        let Some(Trial { unused, .. }) = self.trial.take() else { return };
        self.pages = match unused.is_empty() {
            true => (self.pages + 1).min(MOST),
            false => self.pages.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_by_one_when_all_was_used_and_else_shrinks_by_one() {
        let mut it = Granularity::default();
        for pages in 0..5 {
            assert_eq!(it.pages(), pages);
            it.begin(pages > 0, vec![7]);
            it.asked(if pages > 0 { 8 } else { 7 });
            it.used(7);
            it.judge();
        }
        it.begin(true, vec![1, 2]);
        it.used(1);
        it.judge();
        assert_eq!(it.pages(), 4);
        it.begin(true, vec![1]);
        it.asked(1);
        it.judge();
        assert_eq!(it.pages(), 3, "what had to be asked for was of no use");
    }

    #[test]
    fn it_does_not_go_below_none_and_judges_once() {
        let mut it = Granularity::default();
        it.begin(false, vec![1]);
        it.asked(2);
        it.judge();
        it.judge();
        assert_eq!(it.pages(), 0);
        it.begin(false, vec![1]);
        it.asked(1);
        it.judge();
        it.judge();
        assert_eq!(it.pages(), 1);
    }
}
