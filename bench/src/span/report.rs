//! The results of a run: tables on the terminal, CSV files, a figure.

use std::path::Path;

use figure::{Axis, COLOURS, Figure, GREY, Kind, Line, Panel, Row, Style};

use super::options::Options;
use super::programs::{PROGRAMS, Programs};
use super::step::{FETCH, MOVE, MOVE_US_MAX, RUN, RUN_PAGES_MAX, STEPS};
use crate::failure::Failure;
use crate::machine;
use crate::spread::Spread;
use crate::steps::{Series, Steps, measure};
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Bound, Target};

/// Prints the tables; writes `span.csv`, `span-programs.csv`, `span-targets.csv`, `span.svg`.
pub fn write(
    steps: &Steps,
    programs: &Programs,
    options: &Options,
    out: &Path,
) -> Result<(), Failure> {
    let mut targets = Vec::new();
    if !steps.medians.is_empty() {
        steps.print(
            &STEPS.map(|step| measure(step.name, 2)),
            &format!(
                "operations of one process over two nodes, and their lower bounds (UCX's round \
                 trip, a bare fault) by threads that sleep and that spin; medians of {} rounds",
                options.rounds
            ),
        );
        steps.write(&out.join("span.csv"))?;
        targets.extend(steps.targets(&STEPS));
        let of = |step| (measure(step, 2), Series::Nagaya);
        targets.push(Target {
            what: format!("{RUN}: against one page"),
            bound: Bound::AtMost(RUN_PAGES_MAX),
            ratio: steps.medians.quotient(of(RUN), of(FETCH)),
        });
        targets.push(Target {
            what: format!("{MOVE}: there and back, µs"),
            bound: Bound::AtMost(MOVE_US_MAX),
            ratio: steps.medians.of(measure(MOVE, 2), Series::Nagaya),
        });
    }
    if !programs.0.is_empty() {
        print_programs(programs, options);
        write_lines(&out.join("span-programs.csv"), &csv(programs))?;
        targets.extend(programs.0.iter().map(|of| Target {
            what: format!("{}: two nodes against one processor", of.name),
            bound: Bound::AtLeast(of.bound),
            ratio: Some(of.speedup()),
        }));
    }
    if targets.is_empty() {
        return Ok(());
    }
    target::report("one process over two nodes: targets", &targets, &out.join("span-targets.csv"))?;
    if !steps.medians.is_empty() && !programs.0.is_empty() {
        figure(steps, programs).write(&out.join("span.svg"))?;
    }
    Ok(())
}

fn print_programs(programs: &Programs, options: &Options) {
    let mut table = Table::new(["program", "one, s", "two, s", "times as fast", "(min..max)", ""]);
    for of in &programs.0 {
        let seconds = |values: &[f64]| three_digits(Spread::of(values).median);
        let Spread { median, min, max } = of.speedup();
        table.row([
            of.name.to_string(),
            seconds(&of.one),
            seconds(&of.two),
            format!("{median:.2}"),
            format!("({min:.2}..{max:.2})"),
            String::new(),
        ]);
    }
    table.print(&format!(
        "programs with two threads on one processor, and on two nodes with one each, start and \
         end included; medians of {} rounds",
        options.rounds
    ));
}

fn csv(programs: &Programs) -> Vec<String> {
    let mut lines = vec!["program,round,one_s,two_s".to_string()];
    for of in &programs.0 {
        for (round, (one, two)) in of.one.iter().zip(&of.two).enumerate() {
            lines.push(format!("{},{},{one:.4},{two:.4}", of.name, round + 1));
        }
    }
    lines
}

/// Returns the figure: operations with their lower bounds, and speed-ups of programs with their
/// targets. Each has a position on the axis.
fn figure(steps: &Steps, programs: &Programs) -> Figure {
    let styles = [Series::Nagaya, Series::Sleeping, Series::Spinning]
        .into_iter()
        .enumerate()
        .map(|(at, series)| (series, Style { colour: COLOURS[at], kind: Kind::Solid }));
    let held: Vec<_> = STEPS.iter().filter(|step| step.round_trip.is_some()).collect();
    let line = |(series, style): (Series, Style)| {
        let points = held.iter().enumerate().filter_map(|(at, step)| {
            Some((at as f64, steps.medians.of(measure(step.name, 2), series)?.median.log10()))
        });
        Line { points: points.collect(), style }
    };
    let times: Vec<Line> = styles.clone().map(line).collect();
    let place = |name: &str| PROGRAMS.iter().position(|program| program.name == name);
    let speedups = |value: fn(&super::programs::Times) -> f64, style: Style| {
        let points = programs.0.iter().filter_map(|of| Some((place(of.name)? as f64, value(of))));
        Line { points: points.collect(), style }
    };
    let ours = Style { colour: COLOURS[0], kind: Kind::Solid };
    let gains = vec![speedups(|of| of.speedup().median, ours), speedups(|of| of.bound, GREY)];
    let mut legend: Vec<_> =
        styles.map(|(series, style)| (series.key().to_string(), style)).collect();
    legend.push(("target".to_string(), GREY));
    Figure {
        caption: machine::caption(),
        legend,
        rows: vec![Row {
            title: "one process over two nodes".to_string(),
            panels: vec![
                Panel {
                    caption: "steps, µs".to_string(),
                    x_caption: "",
                    x: Axis::named(held.iter().map(|step| step.name)),
                    y: Axis::decades(&times),
                    lines: times,
                },
                Panel {
                    caption: "times as fast as one processor".to_string(),
                    x_caption: "",
                    x: Axis::named(PROGRAMS.iter().map(|program| program.name)),
                    y: Axis::from_zero(&gains),
                    lines: gains,
                },
            ],
        }],
    }
}
