//! Sweeps: who uses memory for the first time, or writes what was only read before, does so with
//! what is beside it next; so twice as much is made ready each time, up or down. What is made ready
//! says nothing when it is used.

use std::collections::VecDeque;
use std::ops::Range;

use crate::message::Page;

/// Sweeps that are followed at a time.
const SWEEPS: usize = 8;

/// Of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sweeps {
    /// The last one first.
    sweeps: VecDeque<Sweep>,
}

/// Neighbours that were used one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sweep {
    /// What was made ready last.
    ready: Range<Page>,
    /// Whether it goes down, as soon as it has gone on.
    down: Option<bool>,
}

impl Sweep {
    /// Whether it goes down, if it goes on with that page. Who goes to and fro between two pages
    /// sweeps nothing.
    fn goes_on(&self, page: Page) -> Option<bool> {
        let down = match page {
            _ if page == self.ready.end => false,
            _ if page + 1 == self.ready.start => true,
            _ => return None,
        };
        self.down.is_none_or(|before| before == down).then_some(down)
    }
}

impl Sweeps {
    /// A page is used for the first time: it and what is beside it are to be made ready, at most
    /// so many pages.
    pub fn first_use(&mut self, page: Page, most: Page) -> Range<Page> {
        let goes_on = |(at, sweep): (usize, &Sweep)| Some((at, sweep.goes_on(page)?));
        let next = match self.sweeps.iter().enumerate().find_map(goes_on) {
            None => Sweep { ready: page..page + 1, down: None },
            Some((at, down)) => {
                let last = self.sweeps.remove(at).expect("it is there").ready;
                let pages = (2 * (last.end - last.start)).min(most);
                let ready = match down {
                    false => page..page + pages,
                    true => (page + 1).saturating_sub(pages)..page + 1,
                };
                Sweep { ready, down: Some(down) }
            }
        };
        self.sweeps.retain(|sweep| sweep.ready != next.ready);
        self.sweeps.truncate(SWEEPS - 1);
        self.sweeps.push_front(next.clone());
        next.ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often somebody is stopped who uses these pages one after the other.
    fn stops(sweeps: &mut Sweeps, pages: impl Iterator<Item = Page>) -> usize {
        let mut ready = std::collections::BTreeSet::new();
        pages
            .filter(|&page| {
                !ready.contains(&page) && {
                    ready.extend(sweeps.first_use(page, 64));
                    true
                }
            })
            .count()
    }

    #[test]
    fn twice_as_much_is_ready_each_time() {
        let mut sweeps = Sweeps::default();
        assert_eq!(stops(&mut sweeps, 100..163), 6, "1, 2, 4, 8, 16 and 32");
        assert_eq!(stops(&mut sweeps, 163..163 + 640), 10, "and 64 at most");
        assert_eq!(stops(&mut sweeps, (4000..4063).rev()), 6);
        assert_eq!(stops(&mut sweeps, (0..100).rev()), 7, "there is nothing below the first");
        assert_eq!(
            stops(&mut sweeps, (5000..9000).step_by(2)),
            2000,
            "what is used apart is alone"
        );
    }

    #[test]
    fn to_and_fro_is_no_sweep() {
        let mut sweeps = Sweeps::default();
        for _ in 0..10 {
            assert_eq!(sweeps.first_use(7, 64), 7..8);
            assert_eq!(sweeps.first_use(8, 64), 8..10);
        }
    }

    #[test]
    fn several_are_followed_at_a_time() {
        let mut sweeps = Sweeps::default();
        let pages = (0..32).flat_map(|page| (0..8).map(move |part| 1000 * part + page));
        assert_eq!(stops(&mut sweeps, pages), 6 * 8);
    }
}
