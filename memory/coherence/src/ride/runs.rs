//! Sequential access: a node that reads memory page by page, up or down, will need the following
//! pages. Their predicted number is the number that it has just used without a gap.
//!
//! A node may access several parts of its memory alternately, such as input, output, and the data
//! of each thread. So several runs are tracked, and the least recently used one is replaced. The
//! length of finished runs determines the prefetch at the start of a new run. If runs have sixteen
//! pages, all of them come with the first. If pages are used singly, no page is prefetched.

use std::collections::VecDeque;

use crate::message::Page;

/// Maximum number of runs that are tracked.
const RUNS: usize = 8;
/// Maximum number of pages that are prefetched, within a run and at the start of one.
const MOST: usize = 63;
const FIRST_MOST: usize = 16;

/// The runs of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Runs {
    /// The runs, most recently used first.
    runs: VecDeque<Run>,
    /// The usual length of a run.
    usual: usize,
}

/// A run of consecutive pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    /// The last requested page, and the number of pages after it that may have been prefetched.
    asked: Page,
    along: usize,
    /// True if the run goes down.
    down: bool,
    /// Number of prefetched pages that may not have been used.
    open: usize,
    /// Number of used pages.
    used: usize,
    /// True if a page after the first one was requested.
    goes_on: bool,
}

impl Run {
    /// Returns the distance of `page` from the last requested page, in the direction of the run.
    fn ahead(&self, page: Page, down: bool) -> Option<Page> {
        if down { self.asked.checked_sub(page) } else { page.checked_sub(self.asked) }
    }

    /// Returns the direction of the run (true for down) if the page continues it.
    fn expects(&self, page: Page) -> Option<bool> {
        let is_next = |down: &bool| {
            // A run with only one request may change direction.
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
    /// Learns that the node requested a page.
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

    /// Learns that the node used a prefetched page.
    pub fn uses(&mut self, page: Page) {
        if let Some(run) = self.runs.iter_mut().find(|run| run.has(page)) {
            run.used += 1;
            run.open = run.open.saturating_sub(1);
        }
    }

    /// Learns the length of a finished run. A few single pages among longer runs, such as pages of
    /// locks, have little effect.
    fn learn(&mut self, run: &Run) {
        let usual = self.usual.max(1);
        // If the run continued, its end is within the last prefetch. Otherwise the prefetch with
        // its first page was useless.
        let most = run.used + if run.goes_on { run.open } else { 0 };
        self.usual = if run.used > usual {
            run.used.max(usual + usual / 2).min(FIRST_MOST)
        } else {
            usual - usual.saturating_sub(most).div_ceil(4)
        };
    }

    /// Predicts the pages after the one that was just requested.
    pub fn predicted(&mut self) -> impl Iterator<Item = Page> + use<> {
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

    /// Accesses these pages. Returns the number of requests.
    fn goes(runs: &mut Runs, pages: impl Iterator<Item = Page>) -> usize {
        let (mut asked, mut there) = (0, Vec::new());
        let mut came: Vec<Page> = Vec::new();
        for page in pages {
            if there.contains(&page) {
                // The use of the last prefetched page shows the use of all of them.
                if came.last() == Some(&page) {
                    came.drain(..).for_each(|page| runs.uses(page));
                }
                continue;
            }
            runs.asks(page);
            asked += 1;
            came = runs.predicted().collect();
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
        assert_eq!(runs.predicted().next(), None, "it does not turn back");
    }

    #[test]
    fn a_whole_uniform_run_comes_with_its_first_page() {
        let mut runs = Runs::default();
        let asked: Vec<usize> =
            (0..20).map(|run| goes(&mut runs, 1000 * run..1000 * run + 16)).collect();
        assert_eq!(asked[0], 4, "1, 2, 5 and the rest");
        assert_eq!(asked[19], 1, "{asked:?}");
        // Access the page of a lock now and then.
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
        assert_eq!(runs.predicted().count(), 0, "single pages come alone");
    }

    #[test]
    fn several_runs_are_followed_at_a_time() {
        let mut runs = Runs::default();
        for page in 0..3 {
            for part in 0..RUNS as Page {
                runs.asks(1000 * part + page);
                let along = runs.predicted().count();
                assert_eq!(along > 0, page > 0, "page {page} of part {part}");
            }
        }
    }
}
