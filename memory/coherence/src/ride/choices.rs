//! Open questions of the paper's predictor and of its control of the page count, with their
//! possible answers.
//!
//! The default is the method of the policies `ainori1` to `ainori3`. `nagaya-bench ainori --fit`
//! compares all combinations with the paper's numbers.

/// A combination of choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Choices {
    /// All requesters of a home share one table of patterns. Each keeps its own last differences.
    pub shared: bool,
    /// The pages between which differences are taken.
    pub sequence: Sequence,
    /// How the page count leaves zero.
    pub zero: Zero,
    /// A barrier ends the trial of a page grant: pages used after it were not used right away.
    pub barrier_ends: bool,
    /// One used page is enough for the page count to grow. Otherwise all must be used.
    pub any: bool,
}

/// The pages between which differences are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// Requested pages, and carried pages when they were used.
    #[default]
    Needed,
    /// Requested pages only.
    Requested,
    /// Requested pages, and carried pages when they are sent.
    Transferred,
}

/// How the page count leaves zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Zero {
    /// By a prediction that came true without a page being sent.
    #[default]
    Predicted,
    /// By any prediction: the next one is sent.
    Retried,
    /// Never. The count starts at one.
    Stays,
}

impl Choices {
    /// Returns all combinations.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..72).map(|at| Self {
            shared: at % 2 == 1,
            any: at / 2 % 2 == 1,
            barrier_ends: at / 4 % 2 == 1,
            sequence: [Sequence::Needed, Sequence::Requested, Sequence::Transferred][at / 8 % 3],
            zero: [Zero::Predicted, Zero::Retried, Zero::Stays][at / 24],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_occurs_once_and_the_first_is_the_default() {
        let all: std::collections::HashSet<Choices> = Choices::all().collect();
        assert_eq!(all.len(), 2 * 2 * 2 * 3 * 3);
        assert_eq!(Choices::all().next(), Some(Choices::default()));
    }
}
