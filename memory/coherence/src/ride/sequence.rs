//! Sequences: the pages that a node needs in one phase, between two barriers, in order. Two
//! predictors use nothing else.
//!
//! **Stride**: the last difference repeats. **Shape**: the phase continues like the one before, but
//! starts at another page. A program that traverses a matrix starts each phase elsewhere and takes
//! the same steps.
//!
//! Many programs access one page and then many pages in alternate phases, such as a pivot and then
//! its row. So there are two shapes, one after a phase with one page, the other after all other
//! phases.

use crate::message::Page;

/// Maximum number of pages of a phase that are stored.
const STEPS_MAX: usize = 256;

/// The pages that a node needed in this phase, and the shapes of earlier phases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence {
    phase: u64,
    pages: Vec<Page>,
    /// The steps from the first page of a phase: the last one after a phase with several pages, and
    /// the last one after a phase with one page.
    shapes: [Vec<i64>; 2],
    /// The shape that the current phase follows.
    follows: usize,
}

impl Sequence {
    /// Starts a new phase if a page is requested in one. Fates that are reported earlier belong to
    /// the old phase. Returns true if the phase is new.
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

    /// Returns the number of pages of the longest stored phase, if there is one.
    pub fn longest(&self) -> Option<usize> {
        self.shapes.iter().map(Vec::len).max().filter(|&longest| longest > 0)
    }

    /// Learns the next page that was needed.
    pub fn learn(&mut self, page: Page) {
        if self.pages.len() < STEPS_MAX {
            self.pages.push(page);
        } else {
            // The last two pages determine the stride.
            self.pages.rotate_left(1);
            self.pages[STEPS_MAX - 1] = page;
        }
    }

    /// Predicts the pages after the last one.
    pub fn next_pages(&self) -> impl Iterator<Item = Page> {
        let last = self.pages.last().copied();
        (1..).map_while(move |step| last?.checked_add(step))
    }

    /// Predicts the last difference again and again.
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

    /// Predicts the rest of the phase from the shape that it follows.
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
