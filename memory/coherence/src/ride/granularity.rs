//! The paper's control of the granularity of communication (§2.2): the number of pages that are
//! piggybacked.
//!
//! If all pages were used right after their transfer, the number grows by one. Otherwise it shrinks
//! by one, down to zero. The paper does not say how it can grow from zero. Here a page is still
//! predicted at zero, and counts as used if it is requested next.

use super::choices::{Choices, Zero};
use crate::message::Page;

/// The granularity for one kind of carrier and one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Granularity {
    pages: usize,
    /// The pages of the last carrier, sent or only predicted, that were not used yet.
    trial: Option<Trial>,
    /// A prediction was judged, or the count started.
    started: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Trial {
    sent: bool,
    unused: Vec<Page>,
    /// Number of pages at the start.
    count: usize,
}

/// Upper limit of the granularity. It shrinks by one at a time.
const MOST: usize = 64;

impl Granularity {
    /// Returns the number of pages for the next carrier.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Starts a trial. `sent` is false if the pages were only predicted.
    pub fn begin(&mut self, sent: bool, pages: Vec<Page>) {
        let count = pages.len();
        self.trial = (count > 0).then_some(Trial { sent, unused: pages, count });
    }

    /// Records that a page that was sent was used.
    pub fn used(&mut self, page: Page) {
        self.meets(true, page);
    }

    /// Records that a page was requested.
    pub fn asked(&mut self, page: Page) {
        self.meets(false, page);
    }

    fn meets(&mut self, sent: bool, page: Page) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.sent == sent) {
            trial.unused.retain(|unused| *unused != page);
        }
    }

    /// Ends the trial when the next carrier is requested. Unused pages were not used right after
    /// their transfer.
    pub fn judge(&mut self, choices: Choices) {
        if !self.started {
            self.started = true;
            self.pages = usize::from(choices.zero == Zero::Stays);
        }
        let Some(Trial { unused, count, sent }) = self.trial.take() else { return };
        let used = unused.is_empty() || choices.any && unused.len() < count;
        let grows = match choices.zero {
            Zero::Predicted => used,
            Zero::Retried => used || !sent,
            Zero::Stays => used && sent,
        };
        self.pages = match grows {
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
            it.judge(Choices::default());
        }
        it.begin(true, vec![1, 2]);
        it.used(1);
        it.judge(Choices::default());
        assert_eq!(it.pages(), 4);
        it.begin(true, vec![1]);
        it.asked(1);
        it.judge(Choices::default());
        assert_eq!(it.pages(), 3, "what had to be asked for was of no use");
    }

    #[test]
    fn it_does_not_go_below_none_and_judges_once() {
        let mut it = Granularity::default();
        it.begin(false, vec![1]);
        it.asked(2);
        it.judge(Choices::default());
        it.judge(Choices::default());
        assert_eq!(it.pages(), 0);
        it.begin(false, vec![1]);
        it.asked(1);
        it.judge(Choices::default());
        it.judge(Choices::default());
        assert_eq!(it.pages(), 1);
    }

    /// Judges a trial of two pages, one of them used.
    fn after_half_used(choices: Choices) -> usize {
        let mut it = Granularity::default();
        it.judge(choices);
        it.begin(it.pages() > 0, vec![1, 2]);
        it.asked(1);
        it.used(1);
        it.judge(choices);
        it.pages()
    }

    #[test]
    fn the_choices_decide_how_it_grows() {
        let choices = Choices::default();
        assert_eq!(after_half_used(choices), 0);
        assert_eq!(after_half_used(Choices { any: true, ..choices }), 1);
        assert_eq!(after_half_used(Choices { zero: Zero::Retried, ..choices }), 1);
        let stays = Choices { zero: Zero::Stays, ..choices };
        assert_eq!(after_half_used(stays), 0, "it starts at one, and shrinks");
        assert_eq!(after_half_used(Choices { any: true, ..stays }), 2);
        let mut it = Granularity { started: true, ..Granularity::default() };
        it.begin(false, vec![1]);
        it.asked(1);
        it.judge(stays);
        assert_eq!(it.pages(), 0, "it never leaves zero");
    }
}
