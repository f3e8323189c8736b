//! The results of a run: tables on the terminal, CSV files, a figure.

use std::collections::BTreeMap;
use std::path::Path;

use figure::{Axis, COLOURS, Figure, GREY, Kind, Line, Panel, Row, Style, log2};

use super::options::Options;
use super::paper;
use super::sample::{BUFFERS, SENDERS, SENDERS_BYTES, Sample, TRANSPORTS, Transport};
use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::results::{Measure, Results};
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Bound, Target};
use crate::{cores, machine, sizes};

/// Targets of FCP II: 8 bytes against the transfer of a cache line, 1 MB against one copy.
const OVER_LINE_MAX: f64 = 1.4;
const OVER_COPY_MAX: f64 = 1.2;

/// Prints the tables; writes `fcp.csv`, `fcp-samples.csv`, `fcp-counts.csv`, `fcp-targets.csv`,
/// `fcp.svg`.
pub fn write(
    samples: &[Sample],
    senders: &Results<Transport>,
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
    let title = "FCP: targets";
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
fn results_at_one_distance(samples: &[Sample]) -> Results<Transport> {
    let distances: Vec<f64> = samples.iter().flat_map(|sample| sample.line_ns).collect();
    let usual = Spread::of(&distances).median;
    let mut times: BTreeMap<_, [Vec<f64>; 2]> = BTreeMap::new();
    let mut aside = 0;
    for sample in samples {
        let near = cores::is_one_distance(usual, sample.line_ns);
        aside += usize::from(!near);
        let mut add = |transport, ns: f64| {
            let key = (measure(sample.what, sample.bytes), transport, sample.round);
            times.entry(key).or_default()[usize::from(!near)].push(ns / 1000.0);
        };
        add(sample.transport, sample.ns);
        if sample.transport == Transport::Fcp2 {
            add(Transport::Line, sample.line_ns.iter().sum::<f64>() / 2.0);
        }
    }
    println!(
        "\ncores {usual:.0} ns apart; {aside} of {} samples at another distance discarded",
        samples.len()
    );
    let mut results = Results::new();
    for ((measure, transport, round), [near, far]) in times {
        let all = if near.is_empty() { far } else { near };
        results.add(measure, transport, round, Spread::of(&all).median);
    }
    results
}

fn print(results: &Results<Transport>, what: &'static str, options: &Options) {
    let seen = |transport: &Transport| {
        options.sizes.iter().any(|&bytes| results.of(measure(what, bytes), *transport).is_some())
    };
    let transports: Vec<Transport> = TRANSPORTS.into_iter().filter(seen).collect();
    let headings =
        std::iter::once("size").chain(transports.iter().map(|transport| transport.name()));
    let mut table = Table::new(headings.chain([""]));
    for &bytes in &options.sizes {
        let cell = |transport: &Transport| match results.of(measure(what, bytes), *transport) {
            Some(of) => format!("{} ({})", three_digits(of.median), three_digits(of.min)),
            None => String::new(),
        };
        let cells: Vec<String> = transports.iter().map(cell).collect();
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

fn targets(results: &Results<Transport>) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut ask = |what: String, most: f64, of: Measure, above: Transport, below: Transport| {
        let ratio = results.quotient((of, above), (of, below));
        targets.push(Target { what, bound: Bound::AtMost(most), ratio });
    };
    for ours in [Transport::Fcp2, Transport::Space] {
        let name = ours.name();
        for limit in [Transport::Line, Transport::Word] {
            let what = format!("8 B: {name} / {}", limit.name());
            ask(what, OVER_LINE_MAX, measure(BUFFERS[0], 8), ours, limit);
        }
    }
    for ours in [Transport::Fcp2, Transport::Huge, Transport::Space] {
        for buffers in BUFFERS {
            let what = format!("1 MB, {buffers}: {} / one copy", ours.name());
            ask(what, OVER_COPY_MAX, measure(buffers, 1 << 20), ours, Transport::Copy);
        }
    }
    targets
}

fn csv(results: &Results<Transport>, senders: &Results<Transport>) -> Vec<String> {
    let mut lines = vec!["what,processes,bytes,way,us,us_min,us_max".to_string()];
    let all = results.all().chain(senders.all());
    lines.extend(all.map(|(Measure { what, tasks, bytes }, transport, of)| {
        let Spread { median, min, max } = of;
        format!("{what},{tasks},{bytes},{},{median:.5},{min:.5},{max:.5}", transport.key())
    }));
    lines
}

/// Prints messages per second to one receiver.
fn print_senders(senders: &Results<Transport>) {
    let transports = [Transport::Fcp, Transport::FcpPlus, Transport::Fcp2];
    let headings =
        std::iter::once("senders").chain(transports.iter().map(|transport| transport.name()));
    let mut table = Table::new(headings.chain([""]));
    let measure =
        |senders: usize| Measure { what: "senders", tasks: senders + 1, bytes: SENDERS_BYTES };
    for count in SENDERS {
        let cell = |transport: &Transport| match senders.of(measure(count), *transport) {
            Some(of) => format!("{:.2}", 1.0 / of.median),
            None => String::new(),
        };
        let row = std::iter::once(count.to_string()).chain(transports.iter().map(cell));
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
        let Sample { round, what, transport, bytes, ns, line_ns: [before, after] } = sample;
        format!("{round},{what},{bytes},{},{ns:.1},{before:.1},{after:.1}", transport.key())
    };
    std::iter::once(headings.to_string()).chain(samples.iter().map(line)).collect()
}

fn style(transport: Transport) -> Style {
    let (colour, kind) = match transport {
        Transport::Word | Transport::Line | Transport::Copy => return GREY,
        Transport::Vcl => (COLOURS[7], Kind::Dashed),
        Transport::Fcp => (COLOURS[3], Kind::Solid),
        Transport::FcpPlus => (COLOURS[5], Kind::Solid),
        Transport::Fcp2 => (COLOURS[0], Kind::Solid),
        Transport::Huge => (COLOURS[0], Kind::Dashed),
        Transport::Space => (COLOURS[2], Kind::Solid),
        Transport::Unix => (COLOURS[6], Kind::Dashed),
        Transport::Tcp => (COLOURS[4], Kind::Dashed),
        Transport::Udp => (COLOURS[1], Kind::Dashed),
    };
    Style { colour, kind }
}

/// Returns the figure: a row for unchanged and one for fresh buffers, with time and bandwidth.
fn figure(results: &Results<Transport>, options: &Options) -> Figure {
    let panel = |what: &'static str, caption: &str, place: fn(usize, f64) -> f64| {
        let line = |transport: Transport| {
            let point = |&bytes: &usize| {
                let us = results.of(measure(what, bytes), transport)?.median;
                Some((log2(bytes), place(bytes, us).log10()))
            };
            Line {
                points: options.sizes.iter().filter_map(point).collect(),
                style: style(transport),
            }
        };
        let lines: Vec<Line> =
            TRANSPORTS.into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
        Panel {
            caption: caption.to_string(),
            x_caption: "message size",
            x: Axis::sizes(options.sizes.iter().copied().filter(|&bytes| {
                TRANSPORTS
                    .iter()
                    .any(|transport| results.of(measure(what, bytes), *transport).is_some())
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
    let mut transports: Vec<Transport> = results.all().map(|(_, transport, _)| transport).collect();
    transports.sort();
    transports.dedup();
    Figure {
        caption: machine::caption(),
        legend: transports
            .into_iter()
            .map(|transport| (transport.name().to_string(), style(transport)))
            .collect(),
        rows: BUFFERS.map(row).into(),
    }
}
