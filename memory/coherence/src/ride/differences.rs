//! The paper's predictor (§2.1): context-based prediction of page numbers.
//!
//! It keeps the differences between successive page numbers. A table maps each sequence of three
//! differences to the difference that followed it. If the last three differences are in the table,
//! the entry is the predicted difference. Otherwise nothing is predicted.
//!
//! The paper leaves two choices open. Here a newer successor of a sequence replaces the older one.
//! To predict several pages, each predicted page is treated as the last page.

use std::collections::BTreeMap;

use crate::message::Page;

/// Number of differences in a pattern.
const ORDER: usize = 3;
/// Maximum number of patterns. A full table is cleared.
const PATTERNS_MAX: usize = 4096;

/// The page numbers that one node needed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Differences {
    now: Context,
    table: Patterns,
}

/// A table of patterns. Nodes may share one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Patterns(BTreeMap<[i64; ORDER], i64>);

impl Patterns {
    fn insert(&mut self, pattern: [i64; ORDER], next: i64) {
        if self.0.len() >= PATTERNS_MAX && !self.0.contains_key(&pattern) {
            self.0.clear();
        }
        self.0.insert(pattern, next);
    }
}

/// The last page, and the differences before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Context {
    last: Option<Page>,
    recent: [i64; ORDER],
    /// Number of valid differences.
    known: usize,
}

impl Context {
    fn go_to(&mut self, page: Page) {
        if let Some(last) = self.last {
            self.recent.rotate_left(1);
            self.recent[ORDER - 1] = page.wrapping_sub(last) as i64;
            self.known = (self.known + 1).min(ORDER);
        }
        self.last = Some(page);
    }

    fn pattern(&self) -> Option<[i64; ORDER]> {
        (self.known == ORDER).then_some(self.recent)
    }
}

impl Differences {
    /// Learns the next page that was needed.
    pub fn learn(&mut self, page: Page) {
        if let (Some(pattern), Some(last)) = (self.now.pattern(), self.now.last) {
            self.table.insert(pattern, page.wrapping_sub(last) as i64);
        }
        self.now.go_to(page);
    }

    /// Exchanges the table of patterns, so that one table can serve several nodes in turn.
    pub fn exchange(&mut self, table: &mut Patterns) {
        std::mem::swap(&mut self.table, table);
    }

    /// Predicts the next pages in order, as far as the table has successors.
    pub fn next_pages(&self) -> impl Iterator<Item = Page> {
        let mut context = self.now;
        std::iter::from_fn(move || {
            let difference = *self.table.0.get(&context.pattern()?)?;
            let page = context.last?.checked_add_signed(difference)?;
            context.go_to(page);
            Some(page)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pages: impl IntoIterator<Item = Page>) -> Differences {
        let mut differences = Differences::default();
        pages.into_iter().for_each(|page| differences.learn(page));
        differences
    }

    /// The paper's figure 1: 5, 4, 5 was followed by 4.
    #[test]
    fn a_pattern_is_predicted_again() {
        let differences = of([0, 5, 9, 14, 18, 20, 25, 29, 34]);
        assert_eq!(differences.next_pages().next(), Some(38));
    }

    #[test]
    fn an_unseen_pattern_is_not_predicted() {
        assert_eq!(of([]).next_pages().next(), None);
        assert_eq!(of([1, 2, 3, 4]).next_pages().next(), None, "nothing has followed three yet");
        assert_eq!(of([1, 2, 3, 4, 5, 7]).next_pages().next(), None, "1 1 2 is new");
        assert_eq!(of([9, 6, 3, 0]).next_pages().next(), None);
    }

    #[test]
    fn a_stride_goes_on_and_a_loop_comes_round() {
        let pages: Vec<_> = of([10, 14, 18, 22, 26]).next_pages().take(3).collect();
        assert_eq!(pages, [30, 34, 38]);
        let rounds = [1, 2, 5, 3].into_iter().cycle().take(9);
        let pages: Vec<_> = of(rounds).next_pages().take(4).collect();
        assert_eq!(pages, [2, 5, 3, 1]);
    }

    #[test]
    fn the_newer_of_two_experiences_counts() {
        let differences = of([0, 1, 2, 3, 4, 10, 11, 12, 13, 23, 24, 25, 26]);
        assert_eq!(differences.next_pages().next(), Some(36));
    }

    #[test]
    fn no_page_lies_before_the_first() {
        assert_eq!(of([9, 7, 5, 3, 1]).next_pages().count(), 0);
    }
}
