//! The results of a run: tables on the terminal, CSV files, a figure.

use std::collections::BTreeMap;
use std::path::Path;

use figure::{Axis, COLOURS, Figure, GREY, Kind, Line, Look, Panel, Row, log2};

use super::options::Options;
use super::paper;
use super::sample::{BUFFERS, SENDERS, SENDERS_BYTES, Sample, WAYS, Way};
use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::results::{Measure, Results};
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Asked, Target};
use crate::{cores, machine, sizes};

/// Targets of FCP II: 8 bytes against the transfer of a cache line, 1 MB against one copy.
const OVER_LINE: f64 = 1.4;
const OVER_COPY: f64 = 1.2;

/// Prints the tables; writes `fcp.csv`, `fcp-samples.csv`, `fcp-counts.csv`, `fcp-targets.csv`,
/// `fcp.svg`.
pub fn write(
    samples: &[Sample],
    senders: &Results<Way>,
    options: &Options,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<(), Failure> {
    let results = &results_at_one_distance(samples);
    paper::print_times(results);
    paper::print_counts(nagaya, out)?;
    for what in BUFFERS {
        print(results, what, options);
    }
    print_senders(senders);
    let title = "FCP: what is asked, and whether it is reached";
    target::report(title, &targets(results), &out.join("fcp-targets.csv"))?;
    write_lines(&out.join("fcp.csv"), &csv(results, senders))?;
    write_lines(&out.join("fcp-samples.csv"), &sample_lines(samples))?;
    figure(results, options).write(&out.join("fcp.svg"))?;
    println!(
        "written: fcp.csv, fcp-samples.csv, fcp-counts.csv, fcp-targets.csv, fcp.svg in {}",
        out.display()
    );
    Ok(())
}

fn measure(what: &'static str, bytes: usize) -> Measure {
    Measure { what, tasks: 2, bytes }
}

/// Returns the median of each round in µs. Samples at an unusual distance of the two cores are
/// discarded, unless there are no others. The transfer time of a cache line beside each message of
/// FCP II is a transport of its own, so that both are measured at the same moment.
fn results_at_one_distance(samples: &[Sample]) -> Results<Way> {
    let distances: Vec<f64> = samples.iter().flat_map(|sample| sample.line_ns).collect();
    let usual = Spread::of(&distances).median;
    let mut times: BTreeMap<_, [Vec<f64>; 2]> = BTreeMap::new();
    let mut aside = 0;
    for sample in samples {
        let near = cores::is_one_distance(usual, sample.line_ns);
        aside += usize::from(!near);
        let mut add = |way, ns: f64| {
            let key = (measure(sample.what, sample.bytes), way, sample.round);
            times.entry(key).or_default()[usize::from(!near)].push(ns / 1000.0);
        };
        add(sample.way, sample.ns);
        if sample.way == Way::Fcp2 {
            add(Way::Line, sample.line_ns.iter().sum::<f64>() / 2.0);
        }
    }
    println!(
        "\ncores {usual:.0} ns apart; {aside} of {} samples at another distance left aside",
        samples.len()
    );
    let mut results = Results::new();
    for ((measure, way, round), [near, far]) in times {
        let all = if near.is_empty() { far } else { near };
        results.add(measure, way, round, Spread::of(&all).median);
    }
    results
}

fn print(results: &Results<Way>, what: &'static str, options: &Options) {
    let seen = |way: &Way| {
        options.sizes.iter().any(|&bytes| results.of(measure(what, bytes), *way).is_some())
    };
    let ways: Vec<Way> = WAYS.into_iter().filter(seen).collect();
    let headings = std::iter::once("size").chain(ways.iter().map(|way| way.name()));
    let mut table = Table::new(headings.chain([""]));
    for &bytes in &options.sizes {
        let cell = |way: &Way| match results.of(measure(what, bytes), *way) {
            Some(of) => format!("{} ({})", three_digits(of.median), three_digits(of.min)),
            None => String::new(),
        };
        let cells: Vec<String> = ways.iter().map(cell).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            let row = std::iter::once(sizes::shown(bytes)).chain(cells);
            table.row(row.chain([String::new()]));
        }
    }
    table.print(&format!(
        "messages between two processes, {what} buffers; µs one way, median (min) of {} rounds",
        options.rounds
    ));
}

fn targets(results: &Results<Way>) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut ask = |what: String, most: f64, of: Measure, above: Way, below: Way| {
        let ratio = results.quotient((of, above), (of, below));
        targets.push(Target { what, asked: Asked::AtMost(most), ratio });
    };
    for ours in [Way::Fcp2, Way::Space] {
        let name = ours.name();
        for limit in [Way::Line, Way::Word] {
            let what = format!("8 B: {name} / {}", limit.name());
            ask(what, OVER_LINE, measure(BUFFERS[0], 8), ours, limit);
        }
    }
    for ours in [Way::Fcp2, Way::Huge, Way::Space] {
        for buffers in BUFFERS {
            let what = format!("1 MB, {buffers}: {} / one copy", ours.name());
            ask(what, OVER_COPY, measure(buffers, 1 << 20), ours, Way::Copy);
        }
    }
    targets
}

fn csv(results: &Results<Way>, senders: &Results<Way>) -> Vec<String> {
    let mut lines = vec!["what,processes,bytes,way,us,us_min,us_max".to_string()];
    let all = results.all().chain(senders.all());
    lines.extend(all.map(|(Measure { what, tasks, bytes }, way, of)| {
        let Spread { median, min, max } = of;
        format!("{what},{tasks},{bytes},{},{median:.5},{min:.5},{max:.5}", way.key())
    }));
    lines
}

/// Prints messages per second to one receiver.
fn print_senders(senders: &Results<Way>) {
    let ways = [Way::Fcp, Way::FcpPlus, Way::Fcp2];
    let headings = std::iter::once("senders").chain(ways.iter().map(|way| way.name()));
    let mut table = Table::new(headings.chain([""]));
    let measure =
        |senders: usize| Measure { what: "senders", tasks: senders + 1, bytes: SENDERS_BYTES };
    for count in SENDERS {
        let cell = |way: &Way| match senders.of(measure(count), *way) {
            Some(of) => format!("{:.2}", 1.0 / of.median),
            None => String::new(),
        };
        let row = std::iter::once(count.to_string()).chain(ways.iter().map(cell));
        table.row(row.chain([String::new()]));
    }
    if !senders.is_empty() {
        table.print(&format!(
            "many senders to one receiver, {SENDERS_BYTES} B: million messages a second"
        ));
    }
}

/// All samples, including the discarded ones.
fn sample_lines(samples: &[Sample]) -> Vec<String> {
    let headings = "round,buffers,bytes,way,ns,line_before_ns,line_after_ns";
    let line = |sample: &Sample| {
        let Sample { round, what, way, bytes, ns, line_ns: [before, after] } = sample;
        format!("{round},{what},{bytes},{},{ns:.1},{before:.1},{after:.1}", way.key())
    };
    std::iter::once(headings.to_string()).chain(samples.iter().map(line)).collect()
}

fn look(way: Way) -> Look {
    let (colour, kind) = match way {
        Way::Word | Way::Line | Way::Copy => return GREY,
        Way::Vcl => (COLOURS[7], Kind::Dashed),
        Way::Fcp => (COLOURS[3], Kind::Solid),
        Way::FcpPlus => (COLOURS[5], Kind::Solid),
        Way::Fcp2 => (COLOURS[0], Kind::Solid),
        Way::Huge => (COLOURS[0], Kind::Dashed),
        Way::Space => (COLOURS[2], Kind::Solid),
        Way::Unix => (COLOURS[6], Kind::Dashed),
        Way::Tcp => (COLOURS[4], Kind::Dashed),
        Way::Udp => (COLOURS[1], Kind::Dashed),
    };
    Look { colour, kind }
}

/// Returns the figure: a row for unchanged and one for fresh buffers, with time and bandwidth.
fn figure(results: &Results<Way>, options: &Options) -> Figure {
    let panel = |what: &'static str, caption: &str, place: fn(usize, f64) -> f64| {
        let line = |way: Way| {
            let point = |&bytes: &usize| {
                let us = results.of(measure(what, bytes), way)?.median;
                Some((log2(bytes), place(bytes, us).log10()))
            };
            Line { points: options.sizes.iter().filter_map(point).collect(), look: look(way) }
        };
        let lines: Vec<Line> =
            WAYS.into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
        Panel {
            caption: caption.to_string(),
            x_caption: "message size",
            x: Axis::sizes(options.sizes.iter().copied().filter(|&bytes| {
                WAYS.iter().any(|way| results.of(measure(what, bytes), *way).is_some())
            })),
            y: Axis::decades(&lines),
            lines,
        }
    };
    let row = |what| Row {
        title: format!("messages between two processes, {what} buffers"),
        panels: vec![
            panel(what, "one-way time, µs", |_, us| us),
            panel(what, "bandwidth, MB/s", |bytes, us| bytes as f64 / us),
        ],
    };
    let mut ways: Vec<Way> = results.all().map(|(_, way, _)| way).collect();
    ways.sort();
    ways.dedup();
    Figure {
        caption: machine::caption(),
        legend: ways.into_iter().map(|way| (way.name().to_string(), look(way))).collect(),
        rows: BUFFERS.map(row).into(),
    }
}
