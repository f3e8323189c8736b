//! The paper's predictor (§2.1): context-based prediction of page numbers.
//!
//! It keeps the differences between successive page numbers. Whenever a fourth difference has
//! followed three others, a table learns so; where the last three stand in the table, what
//! followed them is the next difference. If they do not, nothing is predicted.
//!
//! Where the paper leaves a choice: a pattern that is followed by another difference than
//! before has the newer one from then on; and to predict several pages, each one predicted is
//! taken for the page that came last.

use std::collections::BTreeMap;

use crate::message::Page;

/// Differences that make a pattern.
const ORDER: usize = 3;
/// Patterns that the table holds; when it is full it begins anew.
const PATTERNS_MAX: usize = 4096;

/// What one node's page numbers were, in the order in which it needed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Differences {
    now: Context,
    table: BTreeMap<[i64; ORDER], i64>,
}

/// The last page, and the differences before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Context {
    last: Option<Page>,
    recent: [i64; ORDER],
    /// How many of these there are yet.
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
    /// The next page that was needed.
    pub fn learn(&mut self, page: Page) {
        if let (Some(pattern), Some(last)) = (self.now.pattern(), self.now.last) {
            if self.table.len() >= PATTERNS_MAX && !self.table.contains_key(&pattern) {
                self.table.clear();
            }
            self.table.insert(pattern, page.wrapping_sub(last) as i64);
        }
        self.now.go_to(page);
    }

    /// The pages that will be needed next, one after the other: as far as the table says.
    pub fn next_pages(&self) -> impl Iterator<Item = Page> {
        let mut context = self.now;
        std::iter::from_fn(move || {
            let difference = *self.table.get(&context.pattern()?)?;
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
    fn what_followed_a_pattern_follows_it_again() {
        let differences = of([0, 5, 9, 14, 18, 20, 25, 29, 34]);
        assert_eq!(differences.next_pages().next(), Some(38));
    }

    #[test]
    fn what_has_not_been_seen_is_not_predicted() {
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
