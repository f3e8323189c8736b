//! The division of a loop's iterations between tasks: evenly, or by the speed of each.

/// Below this relative spread of their times, tasks count as equally fast.
const SPREAD_MIN: f64 = 0.1;

/// The share of each task in all work. The shares sum to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares(Vec<f64>);

impl Shares {
    /// Returns equal shares.
    pub fn even(tasks: usize) -> Self {
        Self(vec![1.0 / tasks as f64; tasks])
    }

    /// Adapts the shares to the times that tasks took, so that all would take equally long.
    pub fn learn(&mut self, seconds: &[f64]) {
        let count = seconds.len() as f64;
        let mean = seconds.iter().sum::<f64>() / count;
        let spread = seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / count;
        if !seconds.iter().all(|&s| s > 0.0) || spread.sqrt() < SPREAD_MIN * mean {
            return;
        }
        let speeds: Vec<f64> = self.0.iter().zip(seconds).map(|(share, s)| share / s).collect();
        let sum: f64 = speeds.iter().sum();
        self.0 = speeds.into_iter().map(|speed| speed / sum).collect();
    }

    /// Returns the first and last of the iterations `begin` to `end`, inclusive, of a task. The
    /// first is greater than the last if the task has none.
    pub fn part(&self, task: usize, begin: i64, end: i64) -> (i64, i64) {
        let count = (end - begin + 1).max(0);
        let border = |tasks: usize| match tasks == self.0.len() {
            true => begin + count,
            false => begin + (self.0[..tasks].iter().sum::<f64>() * count as f64).round() as i64,
        };
        (border(task), border(task + 1) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(shares: &Shares, tasks: usize, begin: i64, end: i64) -> Vec<i64> {
        let mut next = begin;
        let parts = (0..tasks).map(|task| {
            let (first, last) = shares.part(task, begin, end);
            assert_eq!(first, next, "no gap, and nothing twice");
            next = last + 1;
            last + 1 - first
        });
        let parts = parts.collect();
        assert_eq!(next, (end + 1).max(begin));
        parts
    }

    #[test]
    fn each_iteration_runs_exactly_once() {
        assert_eq!(parts(&Shares::even(4), 4, 0, 99), [25, 25, 25, 25]);
        assert_eq!(parts(&Shares::even(3), 3, 5, 5).iter().sum::<i64>(), 1);
        assert_eq!(parts(&Shares::even(3), 3, 5, 4), [0, 0, 0]);
    }

    #[test]
    fn a_node_twice_as_fast_gets_twice_the_work() {
        let mut shares = Shares::even(2);
        shares.learn(&[1.0, 2.0]);
        assert_eq!(parts(&shares, 2, 1, 90), [60, 30]);
        // Then both take as long, and nothing changes.
        shares.learn(&[1.3, 1.31]);
        assert_eq!(parts(&shares, 2, 1, 90), [60, 30]);
        shares.learn(&[0.0, 1.0]);
        assert_eq!(parts(&shares, 2, 1, 90), [60, 30], "a clock that stands says nothing");
    }
}
