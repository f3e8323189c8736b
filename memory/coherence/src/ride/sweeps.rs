//! Sweeps: sequential first use of memory. A thread that uses memory for the first time, or first
//! writes pages that were only read, will do so with neighbouring pages too. So each step of a
//! sweep, up or down, prepares twice as many pages as the step before. The use of a prepared page
//! causes no event.
//!
//! A prepared page takes memory, used or not. A sweep that continues has used the pages that were
//! prepared for it. The use of all other prepared pages is unknown. Their number is limited to a
//! share of the used pages, for all sweeps together. So sparse use takes memory for the used pages
//! only. Pages that were reset (unmapped) no longer count.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::message::Page;

/// Maximum number of sweeps that are tracked. A sorting program sweeps over as many parts.
const SWEEPS: usize = 1024;
/// Limit of prepared pages whose use is unknown: `SLACK`, plus one for each `SHARE` used pages.
const SLACK: Page = 64;
const SHARE: Page = 8;

/// The sweeps of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sweeps {
    /// The sweeps by number. The most recently continued sweep has the highest number.
    sweeps: BTreeMap<u64, Sweep>,
    /// The sweep that continues with a page.
    next: BTreeMap<Page, u64>,
    last: u64,
    /// Counts of used and prepared pages, if prepared pages take memory.
    counts: Option<Counts>,
}

/// Counts of pages that this node was the first to use, without pages that were reset since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Counts {
    used: Page,
    /// Prepared pages whose use is unknown.
    open: Page,
}

/// The result of a first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The pages to prepare now. They include the used page.
    pub ready: Range<Page>,
    /// The pages that the previous step of the sweep prepared. The sweep has used them.
    pub before: Range<Page>,
}

/// Neighbouring pages that were used one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sweep {
    /// The pages that were prepared last.
    ready: Range<Page>,
    /// True if the sweep goes down. `None` until it has continued once.
    down: Option<bool>,
}

impl Sweep {
    /// Returns the pages that would continue the sweep. Once it has a direction, alternation
    /// between two pages does not continue it.
    fn next(&self) -> impl Iterator<Item = Page> {
        let up = (self.down != Some(true)).then_some(self.ready.end);
        let down = self.ready.start.checked_sub(1).filter(|_| self.down != Some(false));
        up.into_iter().chain(down)
    }
}

impl Sweeps {
    /// Creates sweeps over memory whose prepared pages take memory.
    pub fn of_memory() -> Self {
        Self { counts: Some(Counts::default()), ..Self::default() }
    }

    /// Records the first use of a page. Returns the pages to prepare: at most `most`, up to the
    /// first page for which `can` returns false. `is_prepared` returns true if a page was prepared
    /// and its use is unknown.
    pub fn first_use(
        &mut self,
        page: Page,
        most: Page,
        can: impl Fn(Page) -> bool,
        is_prepared: impl Fn(Page) -> bool,
    ) -> Prepare {
        let before = self.next.get(&page).copied().and_then(|number| self.remove(number));
        let (pages, down) = match &before {
            None => (1, None),
            Some(Sweep { ready, .. }) => {
                (2 * (ready.end - ready.start), Some(page + 1 == ready.start))
            }
        };
        let before = before.map_or(page..page, |before| before.ready);
        let used = before.clone().filter(|&page| is_prepared(page)).count() as Page;
        let pages = pages.min(most).min(1 + self.room(used));
        let wanted = match down {
            Some(true) => (page + 1).saturating_sub(pages)..page + 1,
            _ => page..page + pages,
        };
        let mut ready = page..page + 1;
        while ready.start > wanted.start && can(ready.start - 1) {
            ready.start -= 1;
        }
        while ready.end < wanted.end && can(ready.end) {
            ready.end += 1;
        }
        if let Some(counts) = &mut self.counts {
            counts.open += ready.end - ready.start - 1;
        }
        self.follow(Sweep { ready: wanted, down });
        Prepare { ready, before }
    }

    /// Records a reset of pages. Among those that this node was the first to use, `used` are known
    /// to be used and `prepared` are not.
    pub fn reset(&mut self, pages: Range<Page>, used: Page, prepared: Page) {
        let met: Vec<u64> =
            self.next.range(pages.start..=pages.end).map(|(_, &number)| number).collect();
        for number in met {
            self.remove(number);
        }
        if let Some(counts) = &mut self.counts {
            counts.used = counts.used.saturating_sub(used);
            counts.open = counts.open.saturating_sub(prepared);
        }
    }

    /// Counts one page as used, and `ready` pages that were prepared before it. Returns the number
    /// of other pages that may be prepared now.
    fn room(&mut self, ready: Page) -> Page {
        let Some(counts) = &mut self.counts else { return Page::MAX - 1 };
        counts.used += 1 + ready;
        counts.open = counts.open.saturating_sub(ready);
        (SLACK + counts.used / SHARE).saturating_sub(counts.open)
    }

    fn follow(&mut self, sweep: Sweep) {
        self.last += 1;
        for page in sweep.next() {
            let other = self.next.insert(page, self.last);
            // Merge two sweeps that expect the same page.
            other.and_then(|other| self.remove(other));
        }
        self.sweeps.insert(self.last, sweep);
        if self.sweeps.len() > SWEEPS
            && let Some((&oldest, _)) = self.sweeps.first_key_value()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Sweep> {
        let sweep = self.sweeps.remove(&number)?;
        for page in sweep.next() {
            if self.next.get(&page) == Some(&number) {
                self.next.remove(&page);
            }
        }
        Some(sweep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Uses these pages one after the other. Returns the number of faults and the number of
    /// prepared pages.
    fn stops(sweeps: &mut Sweeps, pages: impl Iterator<Item = Page>) -> (usize, usize) {
        let (mut ready, mut prepared) = (BTreeSet::new(), BTreeSet::new());
        let stops = pages
            .filter(|&page| {
                !ready.contains(&page) && go_on(sweeps, page, &mut ready, &mut prepared)
            })
            .count();
        (stops, ready.len())
    }

    /// Uses a page. `prepared` are the pages whose use is unknown.
    fn go_on(
        sweeps: &mut Sweeps,
        page: Page,
        ready: &mut BTreeSet<Page>,
        prepared: &mut BTreeSet<Page>,
    ) -> bool {
        let now = sweeps.first_use(page, 64, |_| true, |page| prepared.contains(&page));
        prepared.retain(|page| !now.before.contains(page));
        prepared.extend(now.ready.clone().filter(|&other| other != page));
        ready.extend(now.ready);
        true
    }

    fn first_use(sweeps: &mut Sweeps, page: Page, can: impl Fn(Page) -> bool) -> Range<Page> {
        sweeps.first_use(page, 64, can, |_| false).ready
    }

    #[test]
    fn twice_as_much_is_ready_each_time() {
        let mut sweeps = Sweeps::default();
        assert_eq!(stops(&mut sweeps, 100..163).0, 6, "1, 2, 4, 8, 16 and 32");
        assert_eq!(stops(&mut sweeps, 163..163 + 640).0, 10, "and 64 at most");
        assert_eq!(stops(&mut sweeps, (4000..4063).rev()).0, 6);
        assert_eq!(stops(&mut sweeps, (0..100).rev()).0, 7, "there is nothing below the first");
        let apart = stops(&mut sweeps, (5000..9000).step_by(2));
        assert_eq!(apart, (2000, 2000), "pages that are used apart are mapped alone");
    }

    #[test]
    fn to_and_fro_is_no_sweep() {
        let mut sweeps = Sweeps::default();
        for _ in 0..10 {
            assert_eq!(first_use(&mut sweeps, 7, |_| true), 7..8);
            assert_eq!(first_use(&mut sweeps, 8, |_| true), 8..10);
        }
    }

    #[test]
    fn many_are_followed_at_a_time() {
        let mut sweeps = Sweeps::default();
        let pages = (0..32).flat_map(|page| (0..800).map(move |part| 1000 * part + page));
        assert_eq!(stops(&mut sweeps, pages).0, 6 * 800);
        assert!(sweeps.sweeps.len() <= SWEEPS && sweeps.next.len() <= 2 * SWEEPS);
    }

    #[test]
    fn nothing_is_ready_behind_what_cannot_be() {
        let mut sweeps = Sweeps::default();
        for page in 0..7 {
            sweeps.first_use(page, 1, |_| true, |_| false);
        }
        assert_eq!(first_use(&mut sweeps, 7, |page| page < 8), 7..8);
        assert_eq!(first_use(&mut sweeps, 9, |page| page < 11), 9..11, "it goes on behind that");
    }

    #[test]
    fn memory_is_taken_as_it_is_used() {
        let much = |pages: &mut dyn Iterator<Item = Page>, used: usize| {
            let (stops, ready) = stops(&mut Sweeps::of_memory(), pages);
            assert!(ready <= used + used / 6 + SLACK as usize, "{ready} of {used}");
            (stops, ready)
        };
        // Each sixteenth page; single pages in random order; parts of rows, of three and of forty
        // pages.
        assert_eq!(much(&mut (0..16 * 4096).step_by(16), 4096), (4096, 4096));
        much(&mut (0..4096).map(|at| at * 1237 % 8192), 4096);
        much(&mut (0..4096).map(|at| at / 3 * 16 + at % 3), 4096);
        much(&mut (0..4096).map(|at| at / 40 * 64 + at % 40), 4096);
        // All pages in order: after some use, 64 at a time.
        let (stops, _) = much(&mut (0..16384), 16384);
        assert!(stops < 16384 / 64 + 40, "{stops}");
    }

    /// The limit is a share of the pages held now, not of all pages ever used.
    #[test]
    fn memory_that_was_reset_counts_no_more() {
        let mut sweeps = Sweeps::of_memory();
        for round in 0..20 {
            let first = round * 10_000;
            let (mut ready, mut prepared) = (BTreeSet::new(), BTreeSet::new());
            // Rows of three pages, the last of which may be prepared in vain.
            for page in (0..4096).map(|at| first + at / 3 * 16 + at % 3) {
                if !ready.contains(&page) {
                    go_on(&mut sweeps, page, &mut ready, &mut prepared);
                }
            }
            assert!(ready.len() <= 4096 + 4096 / 6 + 64, "{} in round {round}", ready.len());
            let open = prepared.len() as Page;
            sweeps.reset(first..first + 100_000, ready.len() as Page - open, open);
            assert_eq!(sweeps, Sweeps { last: sweeps.last, ..Sweeps::of_memory() });
        }
    }
}
