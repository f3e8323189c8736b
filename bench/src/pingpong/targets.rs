//! The targets of the space, and their verdicts.

use super::rounds::Times;
use super::sample::Workload;
use crate::mode::Mode;
use crate::spread::Spread;
use crate::table::Table;

/// A kind of target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Aim {
    /// A minimum speed-up over CMA.
    Faster,
    /// A maximum slow-down against CMA, for sizes without gain.
    NotSlower,
    /// A maximum multiple of the machine's limit.
    NearLimit,
    /// A maximum slow-down of Nagaya's provider against the MPI's own shared memory.
    Provider,
}

/// Sizes with a large gain, near the limit.
const LARGE_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=1 << 20;
const FASTER_UNCHANGED: f64 = 2.0;
const FASTER_FRESH: f64 = 1.5;
const SLOWER_MAX: f64 = 1.03;
const OVER_LIMIT_MAX: f64 = 1.3;
const PROVIDER_OVER_OWN_MAX: f64 = 1.0;
/// Bytes of the ping-pong that has a target over the provider.
const PROVIDER_SMALL_BYTES: usize = 8;

/// If the times overlap, a slow-down up to this factor counts as noise.
const SLOWER_MAX_IF_OVERLAP: f64 = 1.05;

/// The verdict on a target at one size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The target is met.
    Met,
    /// Slower than the target allows, but by at most 5 %, and the fastest round was no slower than
    /// the slowest one of CMA. Two runs of the same mode may differ as much.
    Even,
    /// The target is missed.
    Missed,
}

impl Verdict {
    /// Returns its text in the table.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Even => "even",
            Verdict::Missed => "MISSED",
        }
    }
}

/// A target at one size, with the measured ratio.
pub struct Aimed {
    /// The kind of target.
    pub aim: Aim,
    /// The message's size.
    pub bytes: usize,
    /// The bound of the ratio.
    pub target: f64,
    /// CMA / space for a speed-up, else space / CMA or space / limit.
    pub ratio: Spread,
    /// The verdict.
    pub verdict: Verdict,
}

/// Returns the minimum speed-up over CMA at this size; `None` if the space only must not be slower.
pub fn times_faster(workload: Workload, bytes: usize) -> Option<f64> {
    let target = match workload {
        Workload::Fresh => FASTER_FRESH,
        Workload::Stream => return None,
        Workload::Unchanged | Workload::NetPipe => FASTER_UNCHANGED,
    };
    LARGE_BYTES.contains(&bytes).then_some(target)
}

/// Returns all targets at this size for which there are times.
pub fn aimed(workload: Workload, bytes: usize, times: &Times) -> Vec<Aimed> {
    let mut all = Vec::new();
    if let (Some(cma), Some(space)) = (times.of(Mode::Cma), times.of(Mode::Space)) {
        all.extend(match times_faster(workload, bytes) {
            Some(target) => times.quotient(Mode::Cma, Mode::Space).map(|ratio| {
                let verdict = if ratio.median >= target { Verdict::Met } else { Verdict::Missed };
                Aimed { aim: Aim::Faster, bytes, target, ratio, verdict }
            }),
            None => times.quotient(Mode::Space, Mode::Cma).map(|ratio| {
                let overlap = space.min <= cma.max;
                let verdict = not_slower(ratio.median, SLOWER_MAX, overlap);
                Aimed { aim: Aim::NotSlower, bytes, target: SLOWER_MAX, ratio, verdict }
            }),
        });
    }
    if (workload == Workload::Stream || bytes == PROVIDER_SMALL_BYTES)
        && let (Some(own), Some(provider)) = (times.of(Mode::Cma), times.of(Mode::Provider))
    {
        all.extend(times.quotient(Mode::Provider, Mode::Cma).map(|ratio| {
            let overlap = provider.min <= own.max;
            let verdict = not_slower(ratio.median, PROVIDER_OVER_OWN_MAX, overlap);
            Aimed { aim: Aim::Provider, bytes, target: PROVIDER_OVER_OWN_MAX, ratio, verdict }
        }));
    }
    if LARGE_BYTES.contains(&bytes) {
        all.extend(times.quotient(Mode::Space, Mode::Limit).map(|ratio| {
            let met = ratio.median <= OVER_LIMIT_MAX;
            let verdict = if met { Verdict::Met } else { Verdict::Missed };
            Aimed { aim: Aim::NearLimit, bytes, target: OVER_LIMIT_MAX, ratio, verdict }
        }));
    }
    all
}

fn not_slower(ratio: f64, max: f64, overlap: bool) -> Verdict {
    if ratio <= max {
        Verdict::Met
    } else if ratio <= SLOWER_MAX_IF_OVERLAP && overlap {
        Verdict::Even
    } else {
        Verdict::Missed
    }
}

impl Aim {
    /// Returns its text in the table of targets.
    fn words(self, target: f64) -> String {
        match self {
            Aim::Faster => format!("16 KB to 1 MB: at least {target}× CMA's speed"),
            Aim::NotSlower => format!("other sizes: at most {target}× CMA's time"),
            Aim::NearLimit => format!("16 KB to 1 MB: at most {target}× the limit's time"),
            Aim::Provider => format!("8 B, and streams: by libfabric at most {target}× CMA's time"),
        }
    }

    /// Returns true if `ratio` is further from the target than `other`.
    fn is_worse(self, ratio: f64, other: f64) -> bool {
        if self == Aim::Faster { ratio < other } else { ratio > other }
    }

    /// Returns its name in files.
    pub fn key(self) -> &'static str {
        match self {
            Aim::Faster => "faster_than_cma",
            Aim::NotSlower => "not_slower_than_cma",
            Aim::NearLimit => "near_limit",
            Aim::Provider => "provider_not_slower",
        }
    }
}

/// Adds a line for each kind of target of one MPI and workload: the number of sizes that meet it,
/// and the worst size.
pub fn add_lines(table: &mut Table, what: &str, all: &[Aimed], shown: impl Fn(usize) -> String) {
    for aim in [Aim::Faster, Aim::NotSlower, Aim::NearLimit, Aim::Provider] {
        let mut of_aim = all.iter().filter(|aimed| aimed.aim == aim);
        let Some(first) = of_aim.clone().next() else { continue };
        let worst = of_aim.clone().fold(first, |worst, aimed| {
            let worse = aim.is_worse(aimed.ratio.median, worst.ratio.median);
            if worse { aimed } else { worst }
        });
        let sizes = of_aim.clone().count();
        let met = of_aim.clone().filter(|aimed| aimed.verdict == Verdict::Met).count();
        let even = of_aim.clone().filter(|aimed| aimed.verdict == Verdict::Even).count();
        let verdict = of_aim.by_ref().map(|aimed| aimed.verdict).max().unwrap_or(Verdict::Met);
        let even = if even > 0 { format!(" (+{even} even)") } else { String::new() };
        table.row([
            what.to_string(),
            aim.words(first.target),
            format!("{met} of {sizes}{even}"),
            format!("{:.2} at {}", worst.ratio.median, shown(worst.bytes)),
            format!("({:.2}..{:.2})", worst.ratio.min, worst.ratio.max),
            verdict.name().to_string(),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_asked_from_16_kb_to_1_mb_and_less_of_fresh_buffers() {
        let sizes = [8192, 16 << 10, 1 << 20, 2 << 20];
        let of = |workload| sizes.map(|bytes| times_faster(workload, bytes));
        assert_eq!(of(Workload::Unchanged), [None, Some(2.0), Some(2.0), None]);
        assert_eq!(of(Workload::Fresh), [None, Some(1.5), Some(1.5), None]);
        assert_eq!(of(Workload::Stream), [None; 4]);
    }

    #[test]
    fn even_is_only_where_times_overlap() {
        assert_eq!(not_slower(1.03, 1.03, false), Verdict::Met);
        assert_eq!(not_slower(1.04, 1.03, false), Verdict::Missed);
        assert_eq!(not_slower(1.04, 1.03, true), Verdict::Even);
        assert_eq!(not_slower(1.06, 1.03, true), Verdict::Missed);
    }
}
