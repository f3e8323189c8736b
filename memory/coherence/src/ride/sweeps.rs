//! Sweeps: who uses memory for the first time uses what is beside it next; so twice as much is
//! made ready each time, up or down. What is made ready says nothing when it is used.

use std::collections::VecDeque;
use std::ops::Range;

use crate::message::Page;

/// Sweeps that are followed at a time.
const SWEEPS: usize = 8;
/// Pages at a time, at most.
const MOST: Page = 64;

/// Of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sweeps {
    /// What was made ready last, of each; the last one first.
    last: VecDeque<Range<Page>>,
}

impl Sweeps {
    /// A page is used for the first time: it and what is beside it are to be made ready.
    pub fn first_use(&mut self, page: Page) -> Range<Page> {
        let meets = |last: &Range<Page>| last.end == page || last.start == page + 1;
        let ready = match self.last.iter().position(meets).and_then(|at| self.last.remove(at)) {
            None => page..page + 1,
            Some(last) => {
                let pages = (2 * (last.end - last.start)).min(MOST);
                match last.end == page {
                    true => page..page + pages,
                    false => (page + 1).saturating_sub(pages)..page + 1,
                }
            }
        };
        self.last.truncate(SWEEPS - 1);
        self.last.push_front(ready.clone());
        ready
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
                    ready.extend(sweeps.first_use(page));
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
    fn several_are_followed_at_a_time() {
        let mut sweeps = Sweeps::default();
        let pages = (0..32).flat_map(|page| (0..8).map(move |part| 1000 * part + page));
        assert_eq!(stops(&mut sweeps, pages), 6 * 8);
    }
}
