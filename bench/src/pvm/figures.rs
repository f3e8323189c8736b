//! The figure: time and bandwidth of messages over their size, by encoding; and times of group
//! operations over the number of tasks.

use std::path::Path;

use figure::{Axis, COLOURS, Figure, Kind, Line, Look, Panel, Row, log2};

use super::options::Options;
use super::rounds::OPERATION_BYTES;
use super::way::{WAYS, Way};
use crate::failure::Failure;
use crate::machine;
use crate::results::{Measure, Results};

fn look(way: Way) -> Look {
    let (colour, kind) = match way {
        Way::StockDaemon => (COLOURS[6], Kind::Dashed),
        Way::StockDirect => (COLOURS[1], Kind::Dashed),
        Way::Nagaya => (COLOURS[0], Kind::Solid),
        Way::NagayaDaemon => (COLOURS[5], Kind::Solid),
        Way::Space => (COLOURS[2], Kind::Solid),
        Way::Fcp => (COLOURS[3], Kind::Solid),
        Way::FcpPlus => (COLOURS[4], Kind::Solid),
        Way::OpenMpi => (COLOURS[3], Kind::Dashed),
        Way::Mpich => (COLOURS[4], Kind::Dashed),
    };
    Look { colour, kind }
}

/// Draws the figure, unless neither messages nor groups were measured.
pub fn write(results: &Results<Way>, options: &Options, file: &Path) -> Result<(), Failure> {
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
    let mut ways: Vec<Way> = results.all().map(|(_, way, _)| way).collect();
    ways.sort();
    ways.dedup();
    ways.retain(|way| !matches!(way, Way::Fcp | Way::FcpPlus)); // two sizes, in the paper's table
    let legend = ways.into_iter().map(|way| (way.name().to_string(), look(way))).collect();
    Ok(Figure { caption: machine::caption(), legend, rows }.write(file)?)
}

/// Returns a line for each transport that has points.
fn lines(
    results: &Results<Way>,
    measures: &[Measure],
    place: impl Fn(Measure, f64) -> (f64, f64),
) -> Vec<Line> {
    let line = |way: Way| {
        let point = |of: &Measure| Some(place(*of, results.of(*of, way)?.median));
        Line { points: measures.iter().filter_map(point).collect(), look: look(way) }
    };
    WAYS.into_iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// Returns the panel of one kind of messages over their size.
fn of_sizes(
    results: &Results<Way>,
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
fn of_tasks(results: &Results<Way>, options: &Options, what: &'static str) -> Option<Panel> {
    let measure = |&tasks: &u32| {
        let tasks = tasks as usize;
        let of = |bytes| Measure { what, tasks, bytes };
        let seen = |of: &Measure| WAYS.iter().any(|&way| results.of(*of, way).is_some());
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
