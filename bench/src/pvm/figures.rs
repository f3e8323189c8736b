//! The figure: time and bandwidth of messages over their size, by encoding; and times of group
//! operations over the number of tasks.

use std::path::Path;

use figure::{Axis, COLOURS, Figure, Kind, Line, Panel, Row, Style, log2};

use super::options::Options;
use super::rounds::OPERATION_BYTES;
use super::transport::{TRANSPORTS, Transport};
use crate::failure::Failure;
use crate::machine;
use crate::results::{Measure, Results};

fn style(transport: Transport) -> Style {
    let (colour, kind) = match transport {
        Transport::StockDaemon => (COLOURS[6], Kind::Dashed),
        Transport::StockDirect => (COLOURS[1], Kind::Dashed),
        Transport::Nagaya => (COLOURS[0], Kind::Solid),
        Transport::NagayaDaemon => (COLOURS[5], Kind::Solid),
        Transport::Space => (COLOURS[2], Kind::Solid),
        Transport::Fcp => (COLOURS[3], Kind::Solid),
        Transport::FcpPlus => (COLOURS[4], Kind::Solid),
        Transport::OpenMpi => (COLOURS[3], Kind::Dashed),
        Transport::Mpich => (COLOURS[4], Kind::Dashed),
    };
    Style { colour, kind }
}

/// Draws the figure, unless neither messages nor groups were measured.
pub fn write(results: &Results<Transport>, options: &Options, file: &Path) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let panels = [
        ("inplace-fresh", "PvmDataInPlace, fresh buffers"),
        ("raw-fresh", "PvmDataRaw, fresh buffers"),
        ("xdr-fresh", "PvmDataDefault (XDR), fresh buffers"),
    ];
    for (caption, place) in [
        ("one-way time, µs", (|_, us| us) as fn(usize, f64) -> f64),
        ("bandwidth, MB/s", |bytes, us| bytes as f64 / us),
    ] {
        let panel = |(what, words)| of_sizes(results, options, what, words, place);
        let panels: Vec<Panel> = panels.into_iter().filter_map(panel).collect();
        if !panels.is_empty() {
            rows.push(Row { title: format!("PVM messages: {caption}"), panels });
        }
    }
    let together: Vec<Panel> = ["barrier", "bcast", "ring", "pairs"]
        .into_iter()
        .filter_map(|what| of_tasks(results, options, what))
        .collect();
    if !together.is_empty() {
        let title = "PVM tasks together, by their number: µs".to_string();
        rows.push(Row { title, panels: together });
    }
    if rows.is_empty() {
        return Ok(());
    }
    let mut transports: Vec<Transport> = results.all().map(|(_, transport, _)| transport).collect();
    transports.sort();
    transports.dedup();
    transports.retain(|transport| !matches!(transport, Transport::Fcp | Transport::FcpPlus)); // two sizes, in the paper's table
    let legend = transports
        .into_iter()
        .map(|transport| (transport.name().to_string(), style(transport)))
        .collect();
    Ok(Figure { caption: machine::caption(), legend, rows }.write(file)?)
}

/// Returns a line for each transport that has points.
fn lines(
    results: &Results<Transport>,
    measures: &[Measure],
    place: impl Fn(Measure, f64) -> (f64, f64),
) -> Vec<Line> {
    let line = |transport: Transport| {
        let point = |of: &Measure| Some(place(*of, results.of(*of, transport)?.median));
        Line { points: measures.iter().filter_map(point).collect(), style: style(transport) }
    };
    TRANSPORTS.into_iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// Returns the panel of one kind of messages over their size.
fn of_sizes(
    results: &Results<Transport>,
    options: &Options,
    what: &'static str,
    caption: &str,
    place: fn(usize, f64) -> f64,
) -> Option<Panel> {
    let measures = options.sizes.iter().map(|&bytes| Measure { what, tasks: 2, bytes });
    let measures: Vec<Measure> = measures.collect();
    let at = |of: Measure, us: f64| (log2(of.bytes), place(of.bytes, us).log10());
    let lines = lines(results, &measures, at);
    (!lines.is_empty()).then(|| Panel {
        caption: caption.to_string(),
        x_caption: "message size",
        x: Axis::sizes(options.sizes.iter().copied()),
        y: Axis::decades(&lines),
        lines,
    })
}

/// Returns the panel of an operation over the number of tasks.
fn of_tasks(results: &Results<Transport>, options: &Options, what: &'static str) -> Option<Panel> {
    let measure = |&tasks: &u32| {
        let tasks = tasks as usize;
        let of = |bytes| Measure { what, tasks, bytes };
        let seen =
            |of: &Measure| TRANSPORTS.iter().any(|&transport| results.of(*of, transport).is_some());
        [of(0), of(OPERATION_BYTES)].into_iter().find(seen)
    };
    let measures: Vec<Measure> = options.tasks.iter().filter_map(measure).collect();
    let lines = lines(results, &measures, |of, us| (log2(of.tasks), us.log10()));
    (!lines.is_empty()).then(|| Panel {
        caption: format!("{what}, µs"),
        x_caption: "tasks",
        x: Axis::counts(measures.iter().map(|of| of.tasks)),
        y: Axis::decades(&lines),
        lines,
    })
}
