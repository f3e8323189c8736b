//! Times of several operations by several transports or systems, over several rounds.

use std::collections::BTreeMap;

use crate::spread::Spread;

/// A measured operation: its name, the number of tasks, the number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Measure {
    /// Name of the operation in files.
    pub what: &'static str,
    /// Number of tasks.
    pub tasks: usize,
    /// Bytes of a message; 0 if there is none.
    pub bytes: usize,
}

/// The time of each round in µs, by operation and by transport or system.
pub struct Results<Way> {
    times: BTreeMap<(Measure, Way), BTreeMap<u32, f64>>,
}

impl<Way: Copy + Ord> Results<Way> {
    /// Returns empty results.
    pub fn new() -> Self {
        Results { times: BTreeMap::new() }
    }

    /// Adds the time of one round.
    pub fn add(&mut self, measure: Measure, way: Way, round: u32, us: f64) {
        self.times.entry((measure, way)).or_default().insert(round, us);
    }

    /// Returns true if there are no results.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns all results, ordered by operation.
    pub fn all(&self) -> impl Iterator<Item = (Measure, Way, Spread)> {
        let spread =
            |rounds: &BTreeMap<u32, f64>| Spread::of(&rounds.values().copied().collect::<Vec<_>>());
        self.times.iter().map(move |((measure, way), rounds)| (*measure, *way, spread(rounds)))
    }

    /// Returns median and extremes over all rounds.
    pub fn of(&self, measure: Measure, way: Way) -> Option<Spread> {
        let rounds = self.times.get(&(measure, way))?;
        Some(Spread::of(&rounds.values().copied().collect::<Vec<_>>()))
    }

    /// Returns the ratio of two times in each round; `None` if no round has both.
    pub fn quotient(&self, above: (Measure, Way), below: (Measure, Way)) -> Option<Spread> {
        let (above, below) = (self.times.get(&above)?, self.times.get(&below)?);
        let both = above.iter().filter_map(|(round, us)| Some((*us, *below.get(round)?)));
        let (above, below): (Vec<f64>, Vec<f64>) = both.unzip();
        (!above.is_empty()).then(|| Spread::of_quotients(&above, &below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_of_rounds_that_have_both() {
        let measure = Measure { what: "barrier", tasks: 2, bytes: 0 };
        let mut results = Results::new();
        for (round, us) in [(1, 10.0), (2, 30.0), (3, 20.0)] {
            results.add(measure, "slow", round, us);
        }
        results.add(measure, "fast", 2, 3.0);
        let quotient = results.quotient((measure, "slow"), (measure, "fast")).unwrap();
        assert_eq!((quotient.min, quotient.max), (10.0, 10.0));
        assert_eq!(results.of(measure, "slow").unwrap().median, 20.0);
        assert!(results.quotient((measure, "slow"), (measure, "other")).is_none());
    }
}
