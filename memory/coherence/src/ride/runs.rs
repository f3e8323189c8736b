//! Runs: who goes through memory page by page, up or down, wants the next ones, too; so many of
//! them as it has just gone through without a break.
//!
//! A node goes through several parts of its memory at a time (what it reads, what it writes, what
//! each of its threads does): several runs are followed, and the one that was left longest ago is
//! forgotten. How long those were says how many pages come along where a new run may begin: with
//! runs of sixteen pages all come with the first, and where pages are used one by one none does.

use std::collections::VecDeque;

use crate::message::Page;

/// Runs that are followed at a time.
const RUNS: usize = 8;
/// Pages that come along, at most; and where a run may begin.
const MOST: usize = 63;
const FIRST_MOST: usize = 16;

/// Of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Runs {
    /// The last one first.
    runs: VecDeque<Run>,
    /// How long they usually are.
    usual: usize,
}

/// Pages one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    /// The page that was asked for last, and so many behind it that may have come along.
    asked: Page,
    along: usize,
    /// It goes down.
    down: bool,
    /// Of those, so many may have been used or not.
    open: usize,
    /// So many were used.
    used: usize,
    /// It has gone on, so far, after it was asked for.
    goes_on: bool,
}

impl Run {
    /// How far behind the page that was asked for last another is, as the run goes.
    fn ahead(&self, page: Page, down: bool) -> Option<Page> {
        if down { self.asked.checked_sub(page) } else { page.checked_sub(self.asked) }
    }

    /// The page may come next; whether the run goes down then.
    fn expects(&self, page: Page) -> Option<bool> {
        let is_next = |down: &bool| {
            // One that has not gone on may turn round.
            let along = if *down == self.down { self.along } else { 0 };
            (*down == self.down || !self.goes_on)
                && self.ahead(page, *down).is_some_and(|it| (1..=1 + along as Page).contains(&it))
        };
        [false, true].into_iter().find(is_next)
    }

    fn has(&self, page: Page) -> bool {
        self.ahead(page, self.down).is_some_and(|ahead| ahead <= self.along as Page)
    }
}

impl Runs {
    /// The node asks for a page.
    pub fn asks(&mut self, page: Page) {
        let expected = |(at, run): (usize, &Run)| Some((at, run.expects(page)?));
        let run = match self.runs.iter().enumerate().find_map(expected) {
            Some((at, down)) => {
                let used = self.runs.remove(at).expect("it is there").used + 1;
                Run { asked: page, along: 0, down, open: 0, used, goes_on: true }
            }
            None => {
                if self.runs.len() == RUNS {
                    let over = self.runs.pop_back().expect("there are some");
                    self.learn(&over);
                }
                Run { asked: page, along: 0, down: false, open: 0, used: 1, goes_on: false }
            }
        };
        self.runs.push_front(run);
    }

    /// It has used a page that came along.
    pub fn uses(&mut self, page: Page) {
        if let Some(run) = self.runs.iter_mut().find(|run| run.has(page)) {
            run.used += 1;
            run.open = run.open.saturating_sub(1);
        }
    }

    /// A run is over. A few single pages among longer runs, such as those of locks, do not change
    /// much.
    fn learn(&mut self, run: &Run) {
        let usual = self.usual.max(1);
        // Where it has gone on, its end is somewhere among what came along last; else what came
        // along with its first page was of no use.
        let most = run.used + if run.goes_on { run.open } else { 0 };
        self.usual = if run.used > usual {
            run.used.max(usual + usual / 2).min(FIRST_MOST)
        } else {
            usual - usual.saturating_sub(most).div_ceil(4)
        };
    }

    /// The pages that come along with the one that it has just asked for.
    pub fn foresees(&mut self) -> impl Iterator<Item = Page> + use<> {
        let usual = self.usual.max(1);
        let (asked, along, down) = match self.runs.front_mut() {
            Some(run) => {
                run.along = if run.goes_on { run.used.max(usual - 1).min(MOST) } else { usual - 1 };
                run.open = run.along;
                (run.asked, run.along, run.down)
            }
            None => (0, 0, false),
        };
        let most = if down { asked } else { Page::MAX - asked };
        let behind = move |ahead| if down { asked - ahead } else { asked + ahead };
        (1..=most.min(along as Page)).map(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through these pages; how many had to be asked for.
    fn goes(runs: &mut Runs, pages: impl Iterator<Item = Page>) -> usize {
        let (mut asked, mut there) = (0, Vec::new());
        let mut came: Vec<Page> = Vec::new();
        for page in pages {
            if there.contains(&page) {
                // The last one that came tells of all.
                if came.last() == Some(&page) {
                    came.drain(..).for_each(|page| runs.uses(page));
                }
                continue;
            }
            runs.asks(page);
            asked += 1;
            came = runs.foresees().collect();
            there = came.clone();
        }
        asked
    }

    #[test]
    fn a_long_run_is_fetched_in_ever_larger_parts() {
        let mut runs = Runs::default();
        assert_eq!(goes(&mut runs, 0..15), 4, "1, 2, 4 and 8 at a time");
        assert_eq!(goes(&mut runs, 15..15 + 320), 7, "12, 25, 51, and 63 more at most");
    }

    #[test]
    fn a_run_may_go_down() {
        let mut runs = Runs::default();
        assert_eq!(goes(&mut runs, (1000..1015).rev()), 4);
        assert_eq!(goes(&mut runs, (0..1000).rev()), 18);
        runs.asks(500);
        assert_eq!(runs.foresees().next(), None, "it does not turn back");
    }

    #[test]
    fn where_runs_are_of_a_kind_all_comes_with_the_first_page() {
        let mut runs = Runs::default();
        let asked: Vec<usize> =
            (0..20).map(|run| goes(&mut runs, 1000 * run..1000 * run + 16)).collect();
        assert_eq!(asked[0], 4, "1, 2, 5 and the rest");
        assert_eq!(asked[19], 1, "{asked:?}");
        // A lock now and then.
        for run in 20..30 {
            assert_eq!(goes(&mut runs, 1000 * run..1000 * run + 1), 1);
            (0..4).for_each(|part| {
                let begin = 1000 * run + 100 * part;
                goes(&mut runs, begin + 50..begin + 66);
            });
        }
        assert!(goes(&mut runs, 30_000..30_016) <= 2);
        let asked: Vec<usize> =
            (40..80).map(|run| goes(&mut runs, 1000 * run..1000 * run + 1)).collect();
        assert!(asked.iter().all(|&asked| asked == 1));
        runs.asks(77_777);
        assert_eq!(runs.foresees().count(), 0, "single pages come alone");
    }

    #[test]
    fn several_runs_are_followed_at_a_time() {
        let mut runs = Runs::default();
        for page in 0..3 {
            for part in 0..RUNS as Page {
                runs.asks(1000 * part + page);
                let along = runs.foresees().count();
                assert_eq!(along > 0, page > 0, "page {page} of part {part}");
            }
        }
    }
}
