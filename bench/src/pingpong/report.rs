//! The results of a ping-pong run: tables on the terminal, CSV files, and figures.

use std::path::Path;

use super::figures::{self, Series};
use super::options::Options;
use super::rounds::{Measured, Times, times_at_one_distance};
use super::sample::{Run, Sample, Workload};
use super::targets::{self, Aimed, Verdict};
use crate::failure::Failure;
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::sizes;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};

/// Returns the bandwidth in 10⁶ bytes per second.
fn mb_per_s(bytes: usize, us: f64) -> f64 {
    bytes as f64 / us
}

/// Prints the tables; writes `pingpong.csv`, `pingpong-targets.csv`, `pingpong-samples.csv`,
/// `pingpong.svg`, and for each MPI `latency-MPI.svg` and `bandwidth-MPI.svg`.
pub fn write(runs: &[Run], options: &Options, out: &Path) -> Result<(), Failure> {
    let (measured, distance_ns) = times_at_one_distance(runs);
    let mut workloads = options.workload.clone();
    workloads.sort();
    workloads.dedup();
    let mut table = Table::new(["", "target", "met at", "worst", "(min..max)", ""]);
    let mut verdicts = Vec::new();
    let mut lines = vec![HEADINGS.to_string()];
    let mut target_lines = vec![TARGET_HEADINGS.to_string()];
    let mut series = Vec::new();
    for &mpi in &options.mpi {
        for &workload in &workloads {
            let at = |bytes: &usize| Some((*bytes, measured.get(&(mpi, workload, *bytes))?));
            let sizes = sizes_of(&measured, mpi, workload);
            let all: Vec<(usize, &Times)> = sizes.iter().filter_map(at).collect();
            if all.is_empty() {
                continue; // this MPI failed, or has no NetPIPE
            }
            print_table(mpi, workload, options, &all);
            for (bytes, times) in &all {
                lines.extend(summary_lines(mpi, workload, *bytes, times, &options.mode));
            }
            let aimed: Vec<Aimed> = all
                .iter()
                .flat_map(|(bytes, times)| targets::aimed(workload, *bytes, times))
                .collect();
            target_lines.extend(aimed.iter().map(|aimed| target_line(mpi, workload, aimed)));
            let what = format!("{}, {}", mpi.name(), workload.key());
            targets::add_lines(&mut table, &what, &aimed, sizes::shown);
            verdicts.extend(aimed.iter().map(|aimed| aimed.verdict));
            series.push(Series { mpi, workload, points: figures::points(&all, &options.mode) });
        }
    }
    table.print("ping-pong: targets of the space");
    let count = |verdict: Verdict| verdicts.iter().filter(|&&v| v == verdict).count();
    let counts = [Verdict::Met, Verdict::Even, Verdict::Missed].map(count);
    println!("ping-pong targets: {} met, {} even, {} missed", counts[0], counts[1], counts[2]);

    write_lines(&out.join("pingpong.csv"), &lines)?;
    write_lines(&out.join("pingpong-targets.csv"), &target_lines)?;
    write_lines(&out.join("pingpong-samples.csv"), &sample_lines(runs))?;
    let drawn = figures::write(&series, distance_ns, out)?;
    println!("written: pingpong*.csv, {} in {}", drawn.join(", "), out.display());
    Ok(())
}

fn sizes_of(measured: &Measured, mpi: Mpi, workload: Workload) -> Vec<usize> {
    let range = measured.range((mpi, workload, 0)..=(mpi, workload, usize::MAX));
    range.map(|((_, _, bytes), _)| *bytes).collect()
}

fn print_table(mpi: Mpi, workload: Workload, options: &Options, all: &[(usize, &Times)]) {
    let seen = |mode: &&Mode| all.iter().any(|(_, times)| times.of(**mode).is_some());
    let modes: Vec<Mode> = options.mode.iter().filter(seen).copied().collect();
    let mut headings = vec!["size".to_string()];
    for mode in &modes {
        headings.extend([format!("{} µs", mode.name()), "(min..max)".to_string()]);
    }
    let has_limit = modes.contains(&Mode::Limit);
    // The peer beside each of Nagaya's modes.
    let ours = [
        (Mode::Space, ["CMA/space", "space/limit"]),
        (Mode::Provider, ["CMA/provider", "provider/limit"]),
        (Mode::Protected, ["CMA/protected", "protected/limit"]),
        (Mode::ProtectedAll, ["CMA/protected-all", "protected-all/limit"]),
        (Mode::Exec, ["CMA/exec", "exec/limit"]),
    ];
    let ours: Vec<_> = ours.into_iter().filter(|(mode, _)| modes.contains(mode)).collect();
    for (_, [over, of_limit]) in &ours {
        headings.extend([over, "(min..max)"].map(|it| it.to_string()));
        headings.extend(has_limit.then(|| of_limit.to_string()));
    }
    headings.push(String::new());
    let mut table = Table::new(headings.iter().map(String::as_str));
    for (bytes, times) in all {
        let mut cells = vec![sizes::shown(*bytes)];
        for mode in &modes {
            cells.extend(match times.of(*mode) {
                Some(of) => [three_digits(of.median), range(of, three_digits)],
                None => ["".to_string(), "".to_string()],
            });
        }
        let two = |value: f64| format!("{value:.2}");
        for (mode, _) in &ours {
            cells.extend(match times.quotient(Mode::Cma, *mode) {
                Some(of) => [format!("{}{:.2}", same(of), of.median), range(of, two)],
                None => ["".to_string(), "".to_string()],
            });
            let over_limit = times.quotient(*mode, Mode::Limit);
            let over_limit = over_limit.map(|of| two(of.median)).unwrap_or_default();
            cells.extend(has_limit.then_some(over_limit));
        }
        let verdicts = targets::aimed(workload, *bytes, times);
        let worst = verdicts.iter().map(|aimed| aimed.verdict).max();
        cells.push(worst.map(Verdict::name).unwrap_or_default().to_string());
        table.row(cells);
    }
    let rounds = options.rounds;
    table.print(&format!("{}, {}; time a message, {rounds} rounds", mpi.name(), workload.title()));
}

fn range(of: Spread, shown: impl Fn(f64) -> String) -> String {
    format!("({}..{})", shown(of.min), shown(of.max))
}

/// Marks a ratio whose range includes 1.
fn same(ratio: Spread) -> &'static str {
    if ratio.min <= 1.0 && ratio.max >= 1.0 { "≈" } else { "" }
}

const HEADINGS: &str = "mpi,workload,bytes,mode,one_way_us,one_way_us_min,one_way_us_max,mb_per_s,cma_over_this,\
     cma_over_this_min,cma_over_this_max";

fn summary_lines(
    mpi: Mpi,
    workload: Workload,
    bytes: usize,
    times: &Times,
    modes: &[Mode],
) -> Vec<String> {
    let line = |mode: &Mode| {
        let Spread { median, min, max } = times.of(*mode)?;
        let ratio = times
            .quotient(Mode::Cma, *mode)
            .map_or(",,".to_string(), |of| format!("{:.4},{:.4},{:.4}", of.median, of.min, of.max));
        let (mpi, workload, mode) = (mpi.key(), workload.key(), mode.key());
        let rate = mb_per_s(bytes, median);
        Some(format!(
            "{mpi},{workload},{bytes},{mode},{median:.4},{min:.4},{max:.4},{rate:.1},{ratio}"
        ))
    };
    modes.iter().filter_map(line).collect()
}

const TARGET_HEADINGS: &str = "mpi,workload,bytes,aim,target,ratio,ratio_min,ratio_max,verdict";

fn target_line(mpi: Mpi, workload: Workload, aimed: &Aimed) -> String {
    let (mpi, workload, aim) = (mpi.key(), workload.key(), aimed.aim.key());
    let Spread { median, min, max } = aimed.ratio;
    let (bytes, target) = (aimed.bytes, aimed.target);
    let verdict = aimed.verdict.name().to_lowercase();
    format!("{mpi},{workload},{bytes},{aim},{target},{median:.4},{min:.4},{max:.4},{verdict}")
}

/// All samples, including the discarded ones.
fn sample_lines(runs: &[Run]) -> Vec<String> {
    let headings = "mpi,workload,bytes,mode,round,one_way_us,distance_min_ns,distance_max_ns";
    let mut lines = vec![headings.to_string()];
    for run in runs {
        let (mpi, mode, round) = (run.mpi.key(), run.mode.key(), run.round);
        for Sample { workload, bytes, us, distance_ns: [near, far] } in &run.samples {
            let workload = workload.key();
            lines.push(format!(
                "{mpi},{workload},{bytes},{mode},{round},{us:.4},{near:.1},{far:.1}"
            ));
        }
    }
    lines
}
