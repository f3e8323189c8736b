//! What a run leaves: tables on the terminal, CSV files, a figure.

use std::path::Path;

use super::traffic::{Counts, PROGRAMS, Traffic};
use super::{BARRIER, Options, STEPS, Steps, Way};
use crate::failure::Failure;
use crate::figure::{Axis, COLOURS, Figure, Kind, Line, Look, Panel, Row, log2};
use crate::machine;
use crate::results::Measure;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Asked, Target};

/// Prints the tables; writes `dsm.csv`, `dsm-programs.csv`, `dsm-targets.csv`, `dsm.svg`.
pub fn write(
    steps: &Steps,
    traffic: &[Traffic],
    options: &Options,
    out: &Path,
) -> Result<(), Failure> {
    if !steps.medians.is_empty() {
        print_steps(steps, options);
        target::report(
            "shared memory: what is asked, and whether it is reached",
            &targets(steps),
            &out.join("dsm-targets.csv"),
        )?;
        write_lines(&out.join("dsm.csv"), &csv(steps))?;
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

fn measure(what: &'static str, tasks: usize) -> Measure {
    Measure { what, tasks, bytes: 0 }
}

/// Everything that was measured, with the number of nodes.
fn measures(options: &Options) -> Vec<Measure> {
    let more = options.barriers.iter().filter(|&&nodes| nodes > 2);
    let two = STEPS.iter().map(|step| measure(step.name, 2));
    two.chain(more.map(|&nodes| measure(BARRIER, nodes))).collect()
}

fn print_steps(steps: &Steps, options: &Options) {
    let mut table = Table::new([
        "",
        "nodes",
        "µs",
        "(min..max)",
        "99 %",
        "sleeping",
        "99 %",
        "ratio",
        "spinning",
        "99 %",
        "ratio",
        "",
    ]);
    for of in measures(options) {
        let Some(time) = steps.medians.of(of, Way::Dsm) else { continue };
        let tail = |way| steps.tails.of(of, way).map(|of| three_digits(of.median));
        let mut row = vec![
            of.what.to_string(),
            of.tasks.to_string(),
            three_digits(time.median),
            format!("({}..{})", three_digits(time.min), three_digits(time.max)),
            tail(Way::Dsm).unwrap_or_default(),
        ];
        for way in [Way::Sleeping, Way::Spinning] {
            let least = steps.medians.of(of, way).map(|of| three_digits(of.median));
            let ratio = steps.medians.quotient((of, Way::Dsm), (of, way));
            row.push(least.unwrap_or_default());
            row.push(tail(way).unwrap_or_default());
            row.push(ratio.map(|of| format!("{:.2}", of.median)).unwrap_or_default());
        }
        row.push(String::new());
        table.row(row);
    }
    table.print(&format!(
        "steps of shared memory, and what each cannot do without (UCX's round trip, a bare \
         fault) by threads that sleep and that spin; medians of {} rounds",
        options.rounds
    ));
}

fn targets(steps: &Steps) -> Vec<Target> {
    let mut targets = Vec::new();
    for step in &STEPS {
        let Some(most) = step.asked else { continue };
        for way in [Way::Sleeping, Way::Spinning] {
            let of = measure(step.name, 2);
            targets.push(Target {
                what: format!("{}: Nagaya / {}", step.name, way.key()),
                asked: Asked::AtMost(most),
                ratio: steps.medians.quotient((of, Way::Dsm), (of, way)),
            });
        }
    }
    targets
}

fn csv(steps: &Steps) -> Vec<String> {
    let mut lines = vec!["step,nodes,way,us,us_min,us_max,us_99".to_string()];
    lines.extend(steps.medians.all().map(|(of, way, time)| {
        let tail = steps.tails.of(of, way).map(|of| format!("{:.3}", of.median));
        format!(
            "{},{},{},{:.3},{:.3},{:.3},{}",
            of.what,
            of.tasks,
            way.key(),
            time.median,
            time.min,
            time.max,
            tail.unwrap_or_default()
        )
    }));
    lines
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
        "what programs send between nodes in one real run, and as nagaya sim says: page \
         messages, all messages, diffs",
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

fn program_look(at: usize) -> Look {
    Look { colour: COLOURS[at], kind: Kind::Solid }
}

/// Barriers, and the programs' pages and bytes, over the number of nodes.
fn figure(steps: &Steps, traffic: &[Traffic], options: &Options) -> Figure {
    let barrier = Look { colour: COLOURS[7], kind: Kind::Solid };
    let met = measures(options).into_iter().filter(|of| of.what == BARRIER);
    let point = |of: Measure| Some((log2(of.tasks), steps.medians.of(of, Way::Dsm)?.median));
    let barriers = vec![Line { points: met.filter_map(point).collect(), look: barrier }];
    let panel = |caption: &str, value: fn(&Traffic) -> f64| {
        let line = |(at, name): (usize, &str)| {
            let points = traffic.iter().filter(|of| of.name == name && value(of) > 0.0);
            let points = points.map(|of| (log2(of.nodes), value(of).log10())).collect();
            Line { points, look: program_look(at) }
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
        names.map(|(at, program)| (program.name.to_string(), program_look(at))).collect();
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
