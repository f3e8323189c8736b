//! Single operations between two nodes, each beside its lower bound: UCX's round trip of the same
//! bytes and a bare fault.

pub mod peers;

use std::path::Path;

use crate::failure::Failure;
use crate::results::{Measure, Results};
use crate::table::{Table, three_digits, write_lines};
use crate::target::{Bound, Target};

/// Bytes of a message without a page.
const SHORT_BYTES: usize = 64;

/// The system that performs an operation, or its lower bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Series {
    /// Nagaya.
    Nagaya,
    /// The lower bound, by threads that sleep while they wait.
    Sleeping,
    /// The lower bound, by threads that spin.
    Spinning,
}

impl Series {
    /// The lower bounds.
    pub const PEERS: [Series; 2] = [Series::Sleeping, Series::Spinning];

    /// Returns its name in files.
    pub fn key(self) -> &'static str {
        match self {
            Series::Nagaya => "nagaya",
            Series::Sleeping => "sleeping",
            Series::Spinning => "spinning",
        }
    }
}

/// An operation between two nodes, and the parts of its lower bound: a round trip and a fault.
pub struct Step {
    /// Its name in the measuring program.
    pub name: &'static str,
    /// The reply of the round trip.
    pub round_trip: Option<Reply>,
    /// The fault.
    pub fault: Option<FaultKind>,
    /// The target: at most this multiple of the lower bound.
    pub bound: Option<f64>,
}

/// The reply of a round trip.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// A message without a page.
    Short,
    /// A page.
    Page,
}

/// The kind of a page fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultKind {
    /// The page is not present.
    Read,
    /// The page is write-protected.
    Write,
}

/// Times of operations: medians and 99th percentiles.
pub struct Steps {
    /// The medians of each round.
    pub medians: Results<Series>,
    tails: Results<Series>,
}

/// Median and 99th percentile of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The median.
    pub median_us: f64,
    /// The 99th percentile.
    pub tail_us: f64,
}

impl Steps {
    /// Returns empty results.
    pub fn new() -> Self {
        Steps { medians: Results::new(), tails: Results::new() }
    }

    /// Adds the times of one round.
    pub fn add(&mut self, what: &'static str, nodes: usize, series: Series, round: u32, of: Times) {
        let measure = measure(what, nodes);
        self.medians.add(measure, series, round, of.median_us);
        self.tails.add(measure, series, round, of.tail_us);
    }

    /// Prints a table with a row for each of these operations.
    pub fn print(&self, measures: &[Measure], title: &str) {
        let mut table = Table::new([
            "",
            "nodes",
            "µs",
            "(min..max)",
            "99 %",
            "sleeping",
            "99 %",
            "ratio",
            "spinning",
            "99 %",
            "ratio",
            "",
        ]);
        for &of in measures {
            let Some(time) = self.medians.of(of, Series::Nagaya) else { continue };
            let tail = |series| self.tails.of(of, series).map(|of| three_digits(of.median));
            let mut row = vec![
                of.what.to_string(),
                of.tasks.to_string(),
                three_digits(time.median),
                format!("({}..{})", three_digits(time.min), three_digits(time.max)),
                tail(Series::Nagaya).unwrap_or_default(),
            ];
            for series in Series::PEERS {
                let least = self.medians.of(of, series).map(|of| three_digits(of.median));
                let ratio = self.medians.quotient((of, Series::Nagaya), (of, series));
                row.push(least.unwrap_or_default());
                row.push(tail(series).unwrap_or_default());
                row.push(ratio.map(|of| format!("{:.2}", of.median)).unwrap_or_default());
            }
            row.push(String::new());
            table.row(row);
        }
        table.print(title);
    }

    /// Returns the targets of these operations between two nodes.
    pub fn targets(&self, steps: &[Step]) -> Vec<Target> {
        let mut targets = Vec::new();
        for step in steps {
            let Some(most) = step.bound else { continue };
            for series in Series::PEERS {
                let of = measure(step.name, 2);
                targets.push(Target {
                    what: format!("{}: Nagaya / {}", step.name, series.key()),
                    bound: Bound::AtMost(most),
                    ratio: self.medians.quotient((of, Series::Nagaya), (of, series)),
                });
            }
        }
        targets
    }

    /// Writes all times as a CSV file.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let mut lines = vec!["step,nodes,way,us,us_min,us_max,us_99".to_string()];
        lines.extend(self.medians.all().map(|(of, series, time)| {
            let tail = self.tails.of(of, series).map(|of| format!("{:.3}", of.median));
            format!(
                "{},{},{},{:.3},{:.3},{:.3},{}",
                of.what,
                of.tasks,
                series.key(),
                time.median,
                time.min,
                time.max,
                tail.unwrap_or_default()
            )
        }));
        write_lines(file, &lines)
    }
}

/// Returns the measure of an operation between `nodes` nodes.
pub fn measure(what: &'static str, nodes: usize) -> Measure {
    Measure { what, tasks: nodes, bytes: 0 }
}

/// Parses the line that begins with these words. Its last three numbers are median, 99th percentile
/// and maximum in nanoseconds.
pub fn times_of(output: &str, begins: &[&str]) -> Option<Times> {
    let lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.into_iter().find(|words| words.starts_with(begins))?;
    let numbers: Vec<f64> =
        line[begins.len()..].iter().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [.., median, tail, _] = numbers[..] else { return None };
    Some(Times { median_us: median / 1000.0, tail_us: tail / 1000.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steps_times_are_found() {
        let output = "lock 2 100 19000 31000 40000\nread sleeping 100 8000 9000 9999\n";
        let lock = times_of(output, &["lock"]);
        assert_eq!(lock, Some(Times { median_us: 19.0, tail_us: 31.0 }));
        let read = times_of(output, &["read", "sleeping"]);
        assert_eq!(read, Some(Times { median_us: 8.0, tail_us: 9.0 }));
        assert_eq!(times_of(output, &["barrier"]), None);
    }
}
