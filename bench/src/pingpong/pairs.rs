//! From samples to comparisons: which samples count, how the two sides are paired, and
//! whether the ratio reaches its target.

use std::collections::BTreeMap;

use super::{Run, Sample, Workload};
use crate::mpi::{Mpi, Side};
use crate::spread::Spread;
use crate::{cores, sizes};

/// One-way times in µs of both sides, [plain, nagaya], in pairs: one a round.
pub type Pairs = [Vec<f64>; 2];

/// What the samples say about each MPI, workload and size.
pub type Measured = BTreeMap<(Mpi, Workload, usize), Pairs>;

/// Forms the pairs: for each round and side the median of its samples, of those only that
/// `counts` accepts. A round that lacks a side drops out.
fn pairs_of(runs: &[Run], counts: impl Fn(&Sample) -> bool) -> Measured {
    let mut by_round: BTreeMap<_, [Vec<f64>; 2]> = BTreeMap::new();
    for run in runs {
        for sample in run.samples.iter().filter(|sample| counts(sample)) {
            let key = (run.mpi, sample.workload, sample.bytes, run.round);
            by_round.entry(key).or_default()[run.side as usize].push(sample.us);
        }
    }
    let mut measured = Measured::new();
    for ((mpi, workload, bytes, _), sides) in by_round {
        if sides.iter().all(|samples| !samples.is_empty()) {
            let pairs = measured.entry((mpi, workload, bytes)).or_default();
            for side in Side::BOTH {
                pairs[side as usize].push(Spread::of(&sides[side as usize]).median);
            }
        }
    }
    measured
}

/// The middle one, never a mean of two: between two distances there is none.
fn usual_distance_ns(mut distances: Vec<f64>) -> Option<f64> {
    distances.sort_by(f64::total_cmp);
    distances.get(distances.len() / 2).copied()
}

/// The pairs at the distance at which the cores mostly were; where none is left at a size,
/// all of them. Says how many samples were left aside. (Our program looks at the distance
/// itself, for NetPIPE the harness does; the two ways need not agree on its length.)
pub fn pairs_at_one_distance(runs: &[Run]) -> Measured {
    let mut measured = pairs_of(runs, |_| true);
    println!();
    for (program, is_netpipe) in [("own ping-pong", false), ("NetPIPE", true)] {
        let of_program = |sample: &&Sample| (sample.workload == Workload::NetPipe) == is_netpipe;
        let samples = || runs.iter().flat_map(|run| &run.samples).filter(of_program);
        let distances = samples().flat_map(|sample| sample.distance_ns).collect();
        let Some(usual) = usual_distance_ns(distances) else { continue };
        let counts = |sample: &Sample| cores::is_one_distance(usual, sample.distance_ns);
        let all = samples().count();
        let aside = samples().filter(|sample| !counts(sample)).count();
        println!(
            "{program}: the cores mostly were {usual:.0} ns apart; {aside} of {all} samples at \
             another distance are left aside"
        );
        measured.extend(pairs_of(runs, |sample| of_program(&sample) && counts(sample)));
    }
    measured
}

/// Ratios that "never slower" takes for noise: always, and where the times overlap.
const EVEN: f64 = 0.99;
const EVEN_IF_OVERLAP: f64 = 0.95;

/// Whether the ratio reaches its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It does.
    Met,
    /// "Never slower" only: below 1, but not to be told from two runs of the same side. The
    /// ratio is above [`EVEN`]; or it is above [`EVEN_IF_OVERLAP`], and the fastest round of
    /// nagaya was no slower than the slowest plain one.
    Even,
    /// It does not.
    Missed,
}

impl Verdict {
    fn of(plain: Spread, nagaya: Spread, ratio: f64, target: f64) -> Self {
        let overlap = nagaya.min <= plain.max;
        if ratio >= target {
            Verdict::Met
        } else if target == 1.0 && (ratio >= EVEN || ratio >= EVEN_IF_OVERLAP && overlap) {
            Verdict::Even
        } else {
            Verdict::Missed
        }
    }

    /// As it stands in the table.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Even => "even",
            Verdict::Missed => "MISSED",
        }
    }
}

/// Both sides at one size.
pub struct Compared {
    /// The message's size.
    pub bytes: usize,
    /// One-way times in µs, over the rounds.
    pub plain: Spread,
    /// The same of the tasks.
    pub nagaya: Spread,
    /// plain / nagaya, pair by pair.
    pub ratio: Spread,
    /// Whether the ratio reaches its target.
    pub verdict: Verdict,
}

impl Compared {
    /// From the pairs at this size.
    pub fn new(bytes: usize, pairs: &Pairs) -> Self {
        let [plain, nagaya] = [Spread::of(&pairs[0]), Spread::of(&pairs[1])];
        let ratio = Spread::of_quotients(&pairs[0], &pairs[1]);
        let verdict = Verdict::of(plain, nagaya, ratio.median, sizes::target(bytes));
        Compared { bytes, plain, nagaya, ratio, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_run(side: Side, round: u32, times: &[(f64, f64)]) -> Run {
        let sample =
            |&(us, ns)| Sample { workload: Workload::Fresh, bytes: 8, us, distance_ns: [ns, ns] };
        Run { mpi: Mpi::Mpich, side, round, samples: times.iter().map(sample).collect() }
    }

    #[test]
    fn a_round_counts_by_its_median_and_only_with_both_sides() {
        let runs = [
            a_run(Side::Plain, 1, &[(3.0, 40.0), (1.0, 40.0), (2.0, 40.0)]),
            a_run(Side::Nagaya, 1, &[(1.0, 40.0)]),
            a_run(Side::Plain, 2, &[(5.0, 40.0)]),
        ];
        let measured = pairs_of(&runs, |_| true);
        assert_eq!(measured[&(Mpi::Mpich, Workload::Fresh, 8)], [vec![2.0], vec![1.0]]);
    }

    #[test]
    fn samples_at_another_distance_are_left_aside() {
        let runs = [
            a_run(Side::Plain, 1, &[(2.0, 40.0), (2.0, 42.0)]),
            a_run(Side::Nagaya, 1, &[(1.0, 41.0), (9.0, 200.0)]),
            a_run(Side::Plain, 2, &[(2.0, 45.0)]),
            a_run(Side::Nagaya, 2, &[(9.0, 200.0)]),
        ];
        let measured = pairs_at_one_distance(&runs);
        assert_eq!(measured[&(Mpi::Mpich, Workload::Fresh, 8)], [vec![2.0], vec![1.0]]);
    }

    #[test]
    fn even_is_only_for_never_slower() {
        let times = |min, max| Spread { median: (min + max) / 2.0, min, max };
        let (plain, slower) = (times(1.00, 1.02), times(1.03, 1.05));
        assert_eq!(Verdict::of(plain, plain, 1.9, 1.8), Verdict::Met);
        assert_eq!(Verdict::of(plain, plain, 1.7, 1.8), Verdict::Missed);
        assert_eq!(Verdict::of(plain, times(1.01, 1.05), 0.98, 1.0), Verdict::Even);
        assert_eq!(Verdict::of(plain, slower, 0.97, 1.0), Verdict::Missed);
        assert_eq!(Verdict::of(times(1.0, 2.0), times(1.5, 1.6), 0.66, 1.0), Verdict::Missed);
    }
}
