//! Patches: who uses memory for the first time here and there, as who sorts does, uses what is
//! between soon; so four times as much around is made ready each time. What is made ready says
//! nothing when it is used.

use std::collections::VecDeque;
use std::ops::Range;

use crate::message::Page;

/// Pages of one, at most: a power of 4.
const PAGES: Page = 64;
/// Patches that are remembered.
const PATCHES: usize = 64;

/// Of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Patches {
    /// Which, by [`PAGES`], and how many pages are made ready next there; the last one first.
    last: VecDeque<(Page, Page)>,
}

impl Patches {
    /// A page is used for the first time: so much around it is to be made ready.
    pub fn first_use(&mut self, page: Page) -> Range<Page> {
        let patch = page / PAGES;
        let known = self.last.iter().position(|(other, _)| *other == patch);
        let ready = known.and_then(|at| self.last.remove(at)).map_or(1, |(_, ready)| ready);
        self.last.truncate(PATCHES - 1);
        self.last.push_front((patch, (4 * ready).min(PAGES)));
        let first = page - page % ready;
        first..first + ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_times_as_much_is_made_ready_each_time() {
        let mut patches = Patches::default();
        assert_eq!(patches.first_use(70), 70..71);
        assert_eq!(patches.first_use(71), 68..72);
        assert_eq!(patches.first_use(100), 96..112);
        assert_eq!(patches.first_use(127), 64..128);
        assert_eq!(patches.first_use(64), 64..128);
        assert_eq!(patches.first_use(128), 128..129);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut patches = Patches::default();
        for patch in 0..1000 {
            assert_eq!(patches.first_use(patch * PAGES).end, patch * PAGES + 1);
        }
        assert_eq!(patches.last.len(), PATCHES);
        assert_eq!(patches.first_use(0), 0..1);
        assert_eq!(patches.first_use(999 * PAGES + 5), 999 * PAGES + 4..999 * PAGES + 8);
    }

    #[test]
    fn memory_that_is_used_here_and_there_takes_few_faults() {
        let mut patches = Patches::default();
        let mut is_ready = vec![false; 1024];
        let mut faults = 0;
        for step in 0..1024 {
            let page = step * 397 % 1024;
            if !is_ready[page] {
                faults += 1;
                let ready = patches.first_use(page as Page);
                is_ready[ready.start as usize..ready.end as usize].fill(true);
            }
        }
        assert!(faults <= 4 * 1024 / 64, "{faults}");
    }
}
