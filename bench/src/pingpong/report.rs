//! What a ping-pong run leaves: tables on the terminal, CSV files, and the figure.

use std::path::Path;

use super::pairs::{Compared, Verdict, pairs_at_one_distance};
use super::{Options, Run, Sample, Workload};
use crate::failure::Failure;
use crate::mpi::Mpi;
use crate::plot::{Comparison, Point, Row};
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::{plot, sizes};

/// 10⁶ bytes a second.
fn mb_per_s(bytes: usize, us: f64) -> f64 {
    bytes as f64 / us
}

/// Prints the tables; writes `pingpong.csv`, `pingpong-samples.csv` and `pingpong.svg`.
pub fn write(runs: &[Run], options: &Options, out: &Path) -> Result<(), Failure> {
    let measured = pairs_at_one_distance(runs);
    let mut workloads = options.workload.clone();
    workloads.sort();
    workloads.dedup();
    let mut verdicts = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut summary = vec![SUMMARY_HEADINGS.to_string()];
    for workload in workloads {
        let mut comparisons = Vec::new();
        for &mpi in &options.mpi {
            let compared: Vec<Compared> = measured
                .range((mpi, workload, 0)..=(mpi, workload, usize::MAX))
                .map(|((_, _, bytes), pairs)| Compared::new(*bytes, pairs))
                .collect();
            if compared.is_empty() {
                continue; // this MPI failed
            }
            print_table(mpi, workload, options.rounds, &compared);
            summary.extend(compared.iter().map(|at| summary_line(mpi, workload, at)));
            verdicts.extend(compared.iter().map(|at| at.verdict));
            comparisons.push(Comparison { mpi, points: compared.iter().map(point).collect() });
        }
        rows.push(Row { title: workload.title().to_string(), comparisons });
    }
    let files = ["pingpong.csv", "pingpong-samples.csv", "pingpong.svg"].map(|file| out.join(file));
    write_lines(&files[0], &summary)?;
    write_lines(&files[1], &sample_lines(runs))?;
    plot::write(&files[2], &rows)?;

    let count = |verdict: Verdict| verdicts.iter().filter(|&&v| v == verdict).count();
    let counts = [Verdict::Met, Verdict::Even, Verdict::Missed].map(count);
    println!("\nping-pong targets: {} met, {} even, {} missed", counts[0], counts[1], counts[2]);
    println!("written: {}", files.map(|file| file.display().to_string()).join("\n         "));
    Ok(())
}

fn point(at: &Compared) -> Point {
    Point {
        bytes: at.bytes,
        plain_us: at.plain.median,
        nagaya_us: at.nagaya.median,
        ratio: at.ratio.median,
    }
}

fn print_table(mpi: Mpi, workload: Workload, rounds: u32, compared: &[Compared]) {
    let mut table = Table::new([
        "size",
        "plain µs",
        "(min..max)",
        "MB/s",
        "nagaya µs",
        "(min..max)",
        "MB/s",
        "ratio",
        "(min..max)",
        "target",
        "",
    ]);
    for at in compared {
        let spread = |of: Spread| format!("({}..{})", three_digits(of.min), three_digits(of.max));
        let rate = |of: Spread| format!("{:.0}", mb_per_s(at.bytes, of.median));
        table.row([
            sizes::shown(at.bytes),
            three_digits(at.plain.median),
            spread(at.plain),
            rate(at.plain),
            three_digits(at.nagaya.median),
            spread(at.nagaya),
            rate(at.nagaya),
            format!("{:.2}", at.ratio.median),
            format!("({:.2}..{:.2})", at.ratio.min, at.ratio.max),
            format!("{:.1}", sizes::target(at.bytes)),
            at.verdict.name().to_string(),
        ]);
    }
    table.print(&format!("{}, {}; one way, {rounds} rounds", mpi.name(), workload.title()));
}

const SUMMARY_HEADINGS: &str = "mpi,workload,bytes,plain_us,plain_us_min,plain_us_max,\
    nagaya_us,nagaya_us_min,nagaya_us_max,plain_mb_per_s,nagaya_mb_per_s,\
    ratio,ratio_min,ratio_max,target,verdict";

fn summary_line(mpi: Mpi, workload: Workload, at: &Compared) -> String {
    let times = [at.plain, at.nagaya].map(|s| format!("{:.4},{:.4},{:.4}", s.median, s.min, s.max));
    format!(
        "{},{},{},{},{:.1},{:.1},{:.4},{:.4},{:.4},{},{}",
        mpi.key(),
        workload.key(),
        at.bytes,
        times.join(","),
        mb_per_s(at.bytes, at.plain.median),
        mb_per_s(at.bytes, at.nagaya.median),
        at.ratio.median,
        at.ratio.min,
        at.ratio.max,
        sizes::target(at.bytes),
        at.verdict.name().to_lowercase(),
    )
}

/// Every single measurement, with those that were left aside.
fn sample_lines(runs: &[Run]) -> Vec<String> {
    let headings = "mpi,workload,bytes,side,round,one_way_us,distance_min_ns,distance_max_ns";
    let mut lines = vec![headings.to_string()];
    for run in runs {
        let (mpi, side, round) = (run.mpi.key(), run.side.name(), run.round);
        for Sample { workload, bytes, us, distance_ns: [near, far] } in &run.samples {
            let workload = workload.key();
            lines.push(format!(
                "{mpi},{workload},{bytes},{side},{round},{us:.4},{near:.1},{far:.1}"
            ));
        }
    }
    lines
}
