//! Several measurements of one thing: their median, and how far they lie apart.

/// Median, smallest and largest of some measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of one measurement or more.
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

    /// The quotients of measurements that were taken in pairs, one pair after the other.
    pub fn of_quotients(above: &[f64], below: &[f64]) -> Self {
        Self::of(&Self::quotients(above, below))
    }

    /// The quotients themselves.
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
