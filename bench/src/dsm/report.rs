//! The results of a run: tables on the terminal, CSV files, a figure.

use std::path::Path;

use figure::{Axis, COLOURS, Figure, Kind, Line, Panel, Row, Style, log2};

use super::options::Options;
use super::step::{BARRIER, STEPS};
use super::traffic::{Counts, PROGRAMS, Traffic};
use crate::failure::Failure;
use crate::machine;
use crate::results::Measure;
use crate::steps::{Series, Steps, measure};
use crate::table::{Table, write_lines};
use crate::target;

/// Prints the tables; writes `dsm.csv`, `dsm-programs.csv`, `dsm-targets.csv`, `dsm.svg`.
pub fn write(
    steps: &Steps,
    traffic: &[Traffic],
    options: &Options,
    out: &Path,
) -> Result<(), Failure> {
    if !steps.medians.is_empty() {
        steps.print(
            &measures(options),
            &format!(
                "operations of shared memory, and their lower bounds (UCX's round trip, a bare fault) \
                 by threads that sleep and that spin; medians of {} rounds",
                options.rounds
            ),
        );
        target::report(
            "shared memory: targets",
            &steps.targets(&STEPS),
            &out.join("dsm-targets.csv"),
        )?;
        steps.write(&out.join("dsm.csv"))?;
    }
    if !traffic.is_empty() {
        print_traffic(traffic);
        write_lines(&out.join("dsm-programs.csv"), &traffic_csv(traffic))?;
    }
    if !steps.medians.is_empty() && !traffic.is_empty() {
        figure(steps, traffic, options).write(&out.join("dsm.svg"))?;
    }
    Ok(())
}

/// Returns all measured operations, with the numbers of nodes.
fn measures(options: &Options) -> Vec<Measure> {
    let more = options.barriers.iter().filter(|&&nodes| nodes > 2);
    let two = STEPS.iter().map(|step| measure(step.name, 2));
    two.chain(more.map(|&nodes| measure(BARRIER, nodes))).collect()
}

fn print_traffic(traffic: &[Traffic]) {
    let headings = [
        "program", "nodes", "pages", "sim", "messages", "sim", "MB", "sim", "diffs", "sim",
        "seconds", "",
    ];
    let mut table = Table::new(headings);
    for of in traffic {
        let Traffic { real, simulated, .. } = of;
        let megabytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1e6);
        table.row([
            of.name.to_string(),
            of.nodes.to_string(),
            real.pages.to_string(),
            simulated.pages.to_string(),
            real.messages.to_string(),
            simulated.messages.to_string(),
            megabytes(real.bytes),
            megabytes(simulated.bytes),
            real.diffs.to_string(),
            simulated.diffs.to_string(),
            format!("{:.3}", of.seconds),
            if real == simulated { "equal".to_string() } else { String::new() },
        ]);
    }
    table.print(
        "messages of programs between nodes in one real run and in nagaya sim: page messages, all \
         messages, diffs",
    );
}

fn traffic_csv(traffic: &[Traffic]) -> Vec<String> {
    let counts = |of: &Counts| format!("{},{},{},{}", of.pages, of.messages, of.bytes, of.diffs);
    let line = |of: &Traffic| {
        let Traffic { name, nodes, seconds, real, simulated } = of;
        format!("{name},{nodes},{},{},{seconds}", counts(real), counts(simulated))
    };
    let headings = "program,nodes,page_messages,messages,bytes,diffs,sim_page_messages,\
                    sim_messages,sim_bytes,sim_diffs,seconds";
    std::iter::once(headings.to_string()).chain(traffic.iter().map(line)).collect()
}

fn program_style(at: usize) -> Style {
    Style { colour: COLOURS[at], kind: Kind::Solid }
}

/// Returns the figure: barriers, and pages and bytes of programs, over the number of nodes.
fn figure(steps: &Steps, traffic: &[Traffic], options: &Options) -> Figure {
    let barrier = Style { colour: COLOURS[7], kind: Kind::Solid };
    let met = measures(options).into_iter().filter(|of| of.what == BARRIER);
    let point = |of: Measure| Some((log2(of.tasks), steps.medians.of(of, Series::Nagaya)?.median));
    let barriers = vec![Line { points: met.filter_map(point).collect(), style: barrier }];
    let panel = |caption: &str, value: fn(&Traffic) -> f64| {
        let line = |(at, name): (usize, &str)| {
            let points = traffic.iter().filter(|of| of.name == name && value(of) > 0.0);
            let points = points.map(|of| (log2(of.nodes), value(of).log10())).collect();
            Line { points, style: program_style(at) }
        };
        let lines: Vec<Line> =
            PROGRAMS.iter().map(|program| program.name).enumerate().map(line).collect();
        Panel {
            caption: caption.to_string(),
            x_caption: "nodes",
            x: Axis::counts(traffic.iter().map(|of| of.nodes)),
            y: Axis::decades(&lines),
            lines,
        }
    };
    let names = PROGRAMS.iter().enumerate();
    let mut legend: Vec<_> =
        names.map(|(at, program)| (program.name.to_string(), program_style(at))).collect();
    legend.push(("barrier".to_string(), barrier));
    Figure {
        caption: machine::caption(),
        legend,
        rows: vec![Row {
            title: "shared memory between nodes".to_string(),
            panels: vec![
                panel("page messages", |of| of.real.pages as f64),
                panel("MB sent", |of| of.real.bytes as f64 / 1e6),
                Panel {
                    caption: "barrier, µs".to_string(),
                    x_caption: "nodes",
                    x: Axis::counts(options.barriers.iter().copied()),
                    y: Axis::from_zero(&barriers),
                    lines: barriers,
                },
            ],
        }],
    }
}
