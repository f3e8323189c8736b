//! Sequences: the pages that a node needs in one phase, between two barriers, one after the
//! other; and two predictors that look at nothing else.
//!
//! **Stride**: the difference of the last two goes on. **Shape**: the phase goes on as the one
//! before it did, from another page; a program that goes through a matrix begins each phase
//! elsewhere, and takes the same steps. As many programs touch one page and then many in turns
//! (a pivot, then its row), there are two shapes: what follows a phase of one page, and what
//! follows others.

use crate::message::Page;

/// Pages of a phase that are remembered.
const STEPS_MAX: usize = 256;

/// The pages that a node needed in this phase, and how the phases before went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence {
    phase: u64,
    pages: Vec<Page>,
    /// Steps from the first page, of the last phase that followed one of several pages, and of
    /// the last that followed one of a single page.
    shapes: [Vec<i64>; 2],
    /// Which of these the phase now follows.
    follows: usize,
}

impl Sequence {
    /// The phase in which a page is asked for. What is said of rides before belongs to the one
    /// before it.
    pub fn begins(&mut self, phase: u64) -> bool {
        if phase == self.phase {
            return false;
        }
        self.phase = phase;
        if let Some(&first) = self.pages.first() {
            let steps = self.pages.iter().map(|page| page.wrapping_sub(first) as i64);
            self.shapes[self.follows] = steps.collect();
            self.follows = usize::from(self.pages.len() == 1);
            self.pages.clear();
        }
        true
    }

    /// How many pages the longest of the phases took that are remembered, if any are.
    pub fn longest(&self) -> Option<usize> {
        self.shapes.iter().map(Vec::len).max().filter(|&longest| longest > 0)
    }

    /// The next page that was needed.
    pub fn learn(&mut self, page: Page) {
        if self.pages.len() < STEPS_MAX {
            self.pages.push(page);
        } else {
            // The last two say how it goes on.
            self.pages.rotate_left(1);
            self.pages[STEPS_MAX - 1] = page;
        }
    }

    /// The page after the last, and those after that.
    pub fn next_pages(&self) -> impl Iterator<Item = Page> {
        let last = self.pages.last().copied();
        (1..).map_while(move |step| last?.checked_add(step))
    }

    /// The last difference goes on.
    pub fn stride(&self) -> impl Iterator<Item = Page> {
        let step = match self.pages[..] {
            [.., before, last] if before != last => Some((last, last.wrapping_sub(before) as i64)),
            _ => None,
        };
        let mut at = step.map(|(last, _)| last);
        std::iter::from_fn(move || {
            at = at?.checked_add_signed(step?.1);
            at
        })
    }

    /// The phase goes on as one before.
    pub fn shape(&self) -> impl Iterator<Item = Page> {
        let shape = &self.shapes[self.follows];
        let at = self.pages.len();
        let first = self.pages.first().copied();
        let step = move |page: Page| Some(page.wrapping_sub(first?) as i64);
        let fits = at > 0 && at <= shape.len() && {
            let mut both = self.pages.iter().zip(shape);
            both.all(|(&page, &wanted)| step(page) == Some(wanted))
        };
        let rest = if fits { &shape[at..] } else { &[] };
        rest.iter().filter_map(move |&step| first?.checked_add_signed(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(sequence: &mut Sequence, number: u64, pages: &[Page]) {
        assert!(sequence.begins(number));
        pages.iter().for_each(|&page| sequence.learn(page));
    }

    #[test]
    fn a_stride_goes_on_in_both_directions() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.stride().next(), None);
        phase(&mut sequence, 1, &[5, 9]);
        assert_eq!(sequence.stride().take(3).collect::<Vec<_>>(), [13, 17, 21]);
        phase(&mut sequence, 2, &[9, 5]);
        assert_eq!(sequence.stride().collect::<Vec<_>>(), [1], "no page lies before the first");
    }

    #[test]
    fn a_phase_goes_on_as_the_one_before() {
        let mut sequence = Sequence::default();
        phase(&mut sequence, 1, &[10, 14, 15, 22]);
        phase(&mut sequence, 5, &[100]);
        assert_eq!(sequence.shape().collect::<Vec<_>>(), [104, 105, 112]);
        sequence.learn(104);
        assert_eq!(sequence.shape().collect::<Vec<_>>(), [105, 112]);
        sequence.learn(107);
        assert_eq!(sequence.shape().next(), None, "it goes another way");
    }

    #[test]
    fn one_page_and_then_many_take_turns() {
        let mut sequence = Sequence::default();
        for round in 0..2 {
            phase(&mut sequence, 2 * round + 1, &[50]);
            phase(&mut sequence, 2 * round + 2, &[60, 62, 64]);
        }
        phase(&mut sequence, 5, &[70]);
        assert_eq!(sequence.shape().next(), None);
        phase(&mut sequence, 6, &[80]);
        assert_eq!(sequence.shape().collect::<Vec<_>>(), [82, 84]);
    }
}
