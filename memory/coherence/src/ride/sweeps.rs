//! Sweeps: a thread that uses memory for the first time, or writes pages that were only read
//! before, will use the neighbouring pages next. So each sweep prefetches twice as many pages as
//! before, up or down. The use of a prefetched page causes no event.
//!
//! A prefetched page takes memory, used or not. A sweep that goes on has used the pages that were
//! prefetched for it. All other prefetched pages, whose use is unknown, are limited to a share of
//! the used pages, for all sweeps together. So sparse use takes memory for the used pages only.
//! Pages that were reset (unmapped) do not count any more.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::message::Page;

/// Sweeps that are followed at a time: who sorts goes through as many parts.
const SWEEPS: usize = 1024;
/// Limit of the prefetched pages whose use is unknown: a number of pages, plus one for each `SHARE`
/// used pages.
const SLACK: Page = 64;
const SHARE: Page = 8;

/// Of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sweeps {
    /// By number: the one that went on last has the highest.
    sweeps: BTreeMap<u64, Sweep>,
    /// Which goes on with a page.
    next: BTreeMap<Page, u64>,
    last: u64,
    /// Counts of used and of prepared pages, where prepared pages take memory.
    counts: Option<Counts>,
}

/// Of pages that were first used here and have not been reset since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Counts {
    used: Page,
    /// Prepared, and not known to be used.
    open: Page,
}

/// The result of a first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The pages to prepare now, among them the one that is used.
    pub ready: Range<Page>,
    /// The pages that were prepared for the sweep before, which has used them.
    pub before: Range<Page>,
}

/// Neighbours that were used one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sweep {
    /// The pages that were prepared last.
    ready: Range<Page>,
    /// Whether it goes down, as soon as it has gone on.
    down: Option<bool>,
}

impl Sweep {
    /// The pages with which it goes on. Who goes to and fro between two pages sweeps nothing.
    fn next(&self) -> impl Iterator<Item = Page> {
        let up = (self.down != Some(true)).then_some(self.ready.end);
        let down = self.ready.start.checked_sub(1).filter(|_| self.down != Some(false));
        up.into_iter().chain(down)
    }
}

impl Sweeps {
    /// Of memory that is taken by being made ready.
    pub fn of_memory() -> Self {
        Self { counts: Some(Counts::default()), ..Self::default() }
    }

    /// A page is used for the first time. Returns the pages to prepare, this one among them: at
    /// most `most`, up to the first that `can` not. `is_prepared` says of a page whether it was
    /// prepared and is not known to be used.
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

    /// These pages are reset. Of those that were first used here, `used` are known to be used and
    /// `prepared` are not.
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

    /// One page, and so many that were made ready before it, are used; so many others may be made
    /// ready now.
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
            // Two sweeps that expect the same page are one.
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

    /// How often somebody is stopped who uses these pages one after the other, and how many are
    /// ready then.
    fn stops(sweeps: &mut Sweeps, pages: impl Iterator<Item = Page>) -> (usize, usize) {
        let (mut ready, mut prepared) = (BTreeSet::new(), BTreeSet::new());
        let stops = pages
            .filter(|&page| {
                !ready.contains(&page) && go_on(sweeps, page, &mut ready, &mut prepared)
            })
            .count();
        (stops, ready.len())
    }

    /// Uses a page; `prepared` are those that are not known to be used.
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
        // Each sixteenth; one by one in no order; parts of rows, of three and of forty pages.
        assert_eq!(much(&mut (0..16 * 4096).step_by(16), 4096), (4096, 4096));
        much(&mut (0..4096).map(|at| at * 1237 % 8192), 4096);
        much(&mut (0..4096).map(|at| at / 3 * 16 + at % 3), 4096);
        much(&mut (0..4096).map(|at| at / 40 * 64 + at % 40), 4096);
        // All of it, in order: as soon as it has used some, 64 at a time.
        let (stops, _) = much(&mut (0..16384), 16384);
        assert!(stops < 16384 / 64 + 40, "{stops}");
    }

    /// The prefetched pages are a share of the pages held now, not of all pages ever used.
    #[test]
    fn memory_that_was_reset_counts_no_more() {
        let mut sweeps = Sweeps::of_memory();
        for round in 0..20 {
            let first = round * 10_000;
            let (mut ready, mut prepared) = (BTreeSet::new(), BTreeSet::new());
            // Rows of three pages, whose last one may be prepared in vain.
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
