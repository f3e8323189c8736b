//! Median and extremes of several samples.

/// Median, minimum and maximum of samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The median: the middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Computes them from one sample or more.
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "nothing was measured");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Spread { median, min: sorted[0], max: sorted[sorted.len() - 1] }
    }

    /// Computes them from the ratios of pairs of samples.
    pub fn of_quotients(above: &[f64], below: &[f64]) -> Self {
        Self::of(&Self::quotients(above, below))
    }

    /// Returns the ratios of pairs of samples.
    pub fn quotients(above: &[f64], below: &[f64]) -> Vec<f64> {
        assert_eq!(above.len(), below.len(), "measured in pairs");
        above.iter().zip(below).map(|(a, b)| a / b).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn quotients_are_formed_pair_by_pair() {
        let spread = Spread::of_quotients(&[2.0, 9.0, 4.0], &[1.0, 3.0, 4.0]);
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
    }
}
