//! Selects samples, and compares the modes of a round.

use std::collections::BTreeMap;

use super::sample::{Run, Sample, Workload};
use crate::cores;
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::spread::Spread;

/// One-way times in µs, by mode and round.
#[derive(Default, Debug, PartialEq)]
pub struct Times(BTreeMap<Mode, BTreeMap<u32, f64>>);

impl Times {
    /// Returns median and extremes over the rounds.
    pub fn of(&self, mode: Mode) -> Option<Spread> {
        let times: Vec<f64> = self.0.get(&mode)?.values().copied().collect();
        (!times.is_empty()).then(|| Spread::of(&times))
    }

    /// Returns the ratios of all rounds that have both modes.
    pub fn quotient(&self, above: Mode, below: Mode) -> Option<Spread> {
        let (above, below) = (self.0.get(&above)?, self.0.get(&below)?);
        let pairs = above.iter().filter_map(|(round, a)| Some((*a, *below.get(round)?)));
        let (above, below): (Vec<f64>, Vec<f64>) = pairs.unzip();
        (!above.is_empty()).then(|| Spread::of_quotients(&above, &below))
    }

    /// Returns true if some round has all modes: otherwise there are no ratios.
    fn has_whole_round(&self) -> bool {
        let mut all = self.0.values();
        let Some(first) = all.next() else { return false };
        first.keys().any(|round| all.clone().all(|times| times.contains_key(round)))
    }

    fn add(&mut self, mode: Mode, round: u32, us: f64) {
        self.0.entry(mode).or_default().insert(round, us);
    }
}

/// The times of each MPI, workload and size.
pub type Measured = BTreeMap<(Mpi, Workload, usize), Times>;

/// Returns the median of the samples that `counts` accepts, for each round and mode.
fn times_of(runs: &[Run], counts: impl Fn(&Sample) -> bool) -> Measured {
    let mut by_round: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for run in runs {
        for sample in run.samples.iter().filter(|sample| counts(sample)) {
            let key = (run.mpi, sample.workload, sample.bytes, run.mode, run.round);
            by_round.entry(key).or_default().push(sample.us);
        }
    }
    let mut measured = Measured::new();
    for ((mpi, workload, bytes, mode, round), samples) in by_round {
        let times = measured.entry((mpi, workload, bytes)).or_default();
        times.add(mode, round, Spread::of(&samples).median);
    }
    measured
}

/// Returns the middle distance. The mean of two distances would be no distance.
fn usual_distance_ns(mut distances: Vec<f64>) -> Option<f64> {
    distances.sort_by(f64::total_cmp);
    distances.get(distances.len() / 2).copied()
}

/// Returns the times at the usual distance of the cores, and this distance in nanoseconds. If none
/// is left of a mode at a size, or of no round all modes, all samples count. Prints the number of
/// discarded samples. The own programs measure the distance themselves, and the harness does for
/// NetPIPE, so the two may differ.
pub fn times_at_one_distance(runs: &[Run]) -> (Measured, Option<f64>) {
    let mut measured = times_of(runs, |_| true);
    let mut usual_of_ours = None;
    println!();
    for (program, is_netpipe) in [("own ping-pong", false), ("NetPIPE", true)] {
        let of_program = |sample: &&Sample| (sample.workload == Workload::NetPipe) == is_netpipe;
        let samples = || runs.iter().flat_map(|run| &run.samples).filter(of_program);
        let distances = samples().flat_map(|sample| sample.distance_ns).collect();
        let Some(usual) = usual_distance_ns(distances) else { continue };
        if !is_netpipe {
            usual_of_ours = Some(usual);
        }
        let counts = |sample: &Sample| cores::is_one_distance(usual, sample.distance_ns);
        let all = samples().count();
        let aside = samples().filter(|sample| !counts(sample)).count();
        println!(
            "{program}: the cores were usually {usual:.0} ns apart; {aside} of {all} samples at \
             another distance are discarded"
        );
        for (key, counted) in times_of(runs, |sample| of_program(&sample) && counts(sample)) {
            // The modes of a round are compared at one distance only.
            let all = measured.entry(key).or_default();
            let complete = all.0.keys().all(|mode| counted.0.contains_key(mode));
            if complete && counted.has_whole_round() {
                *all = counted;
            }
        }
    }
    (measured, usual_of_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (Mpi, Workload, usize) = (Mpi::Mpich4, Workload::Fresh, 8);

    fn a_run(mode: Mode, round: u32, times: &[(f64, f64)]) -> Run {
        let sample =
            |&(us, ns)| Sample { workload: Workload::Fresh, bytes: 8, us, distance_ns: [ns, ns] };
        Run { mpi: Mpi::Mpich4, mode, round, samples: times.iter().map(sample).collect() }
    }

    #[test]
    fn a_round_counts_by_its_median_and_quotients_only_with_both_modes() {
        let runs = [
            a_run(Mode::Cma, 1, &[(3.0, 40.0), (1.0, 40.0), (2.0, 40.0)]),
            a_run(Mode::Space, 1, &[(1.0, 40.0)]),
            a_run(Mode::Cma, 2, &[(6.0, 40.0)]),
        ];
        let measured = times_of(&runs, |_| true);
        let times = &measured[&KEY];
        assert_eq!(times.of(Mode::Cma).unwrap(), Spread { median: 4.0, min: 2.0, max: 6.0 });
        assert_eq!(times.quotient(Mode::Cma, Mode::Space).unwrap(), Spread::of(&[2.0]));
        assert!(times.quotient(Mode::Space, Mode::Limit).is_none());
    }

    #[test]
    fn samples_at_another_distance_are_left_aside() {
        let runs = [
            a_run(Mode::Cma, 1, &[(2.0, 40.0), (2.0, 42.0)]),
            a_run(Mode::Space, 1, &[(1.0, 41.0), (9.0, 200.0)]),
            a_run(Mode::Cma, 2, &[(2.0, 45.0)]),
            a_run(Mode::Space, 2, &[(9.0, 200.0)]),
        ];
        let (measured, usual) = times_at_one_distance(&runs);
        assert_eq!(measured[&KEY].of(Mode::Space).unwrap(), Spread::of(&[1.0]));
        assert_eq!(measured[&KEY].quotient(Mode::Cma, Mode::Space).unwrap(), Spread::of(&[2.0]));
        assert_eq!(usual, Some(45.0));
    }

    #[test]
    fn all_samples_count_if_no_round_is_left_whole() {
        let runs = [
            a_run(Mode::Cma, 1, &[(2.0, 40.0), (2.0, 40.0)]),
            a_run(Mode::Space, 1, &[(1.0, 200.0)]),
            a_run(Mode::Cma, 2, &[(3.0, 200.0)]),
            a_run(Mode::Space, 2, &[(1.0, 40.0)]),
        ];
        let (measured, usual) = times_at_one_distance(&runs);
        assert_eq!(usual, Some(40.0));
        let ratio = measured[&KEY].quotient(Mode::Cma, Mode::Space);
        assert_eq!(ratio, Some(Spread::of(&[2.0, 3.0])));
    }
}
