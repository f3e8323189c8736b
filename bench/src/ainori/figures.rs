//! Figures 5 to 12 of the paper in one, with a row for each program: speed-up, page messages, and
//! saved page messages, beside the numbers of the paper's text.

use figure::{Axis, COLOURS, Figure, GREY, Kind, Line, Panel, Row, Style, log2};

use super::options::{NORMAL, Options};
use super::paper::{CLAIMS, PROGRAMS, Program};
use super::simulated::{Run, Runs};

/// Returns the line style of a policy, by its position on the command line.
fn style(options: &Options, policy: &str, kind: Kind) -> Style {
    let at = options.rides.iter().position(|of| of == policy).unwrap_or_default();
    Style { colour: COLOURS[at % COLOURS.len()], kind }
}

/// Returns what a policy does, for readers who do not know its name.
fn meaning(policy: &str) -> String {
    let meaning = match policy {
        NORMAL => "no further pages",
        "ainori1" => "on replies with pages",
        "ainori2" => "and on barriers",
        "ainori3" => "and on locks",
        "auto" => "best of several predictors",
        _ => return policy.to_owned(),
    };
    format!("{policy}: {meaning}")
}

/// Returns the figure.
pub fn figure(runs: &Runs, options: &Options) -> Figure {
    let mut legend: Vec<_> = options
        .rides
        .iter()
        .map(|policy| (meaning(policy), style(options, policy, Kind::Solid)))
        .collect();
    for policy in ["ainori1", "ainori2"] {
        legend.push((
            format!("{policy}, from the paper's text"),
            style(options, policy, Kind::Dashed),
        ));
    }
    legend.push(("ideal: one per process".to_string(), GREY));
    Figure {
        caption: "Further pages travel on messages that are sent anyway. nagaya sim -c paper \
                  --per-machine 2: the protocol's code in virtual time, 16 dual Xeons, gigabit \
                  Ethernet"
            .to_string(),
        legend,
        rows: PROGRAMS.iter().map(|program| row(program, runs, options)).collect(),
    }
}

fn row(program: &Program, runs: &Runs, options: &Options) -> Row {
    let lines = |value: &dyn Fn(&Run) -> Option<f64>| -> Vec<Line> {
        let line = |policy: &String| {
            let runs = runs.all.iter().filter(|run| run.program == program.name);
            let runs = runs.filter(|run| run.policy == *policy);
            let points = runs.filter_map(|run| Some((log2(run.processes), value(run)?)));
            Line { points: points.collect(), style: style(options, policy, Kind::Solid) }
        };
        options.rides.iter().map(line).filter(|line| !line.points.is_empty()).collect()
    };
    let mut speedups = lines(&|run| Some(run.speedup));
    let highest = Axis::from_zero(&speedups);
    let top = speedups.iter().flat_map(|line| &line.points).fold(1.0, |top: f64, at| top.max(at.1));
    let ideal = options.processes.iter().filter(|count| **count as f64 <= top * 1.05);
    let ideal = ideal.map(|&count| (log2(count), count as f64)).collect();
    speedups.push(Line { points: ideal, style: GREY });
    let thousands = lines(&|run| Some(run.sent() / 1000.0));
    // One process sends nothing.
    let is_saved = |run: &Run| run.policy != NORMAL && run.processes > 1;
    let mut saved = lines(&|run| is_saved(run).then(|| runs.saved(run, Run::sent).max(0.0)));
    for claim in CLAIMS.iter().filter(|claim| claim.program == program.name) {
        if let Some(percent) = claim.messages {
            let points = vec![(log2(claim.processes), percent)];
            saved.push(Line { points, style: style(options, claim.policy, Kind::Dashed) });
        }
    }
    let panel = |caption: &str, y: Axis, lines: Vec<Line>| Panel {
        caption: caption.to_string(),
        x_caption: "processes",
        x: Axis::counts(options.processes.iter().copied()),
        y,
        lines,
    };
    let [first, second] = program.figures;
    Row {
        title: format!(
            "{}, {} (the Ainori paper's Figures {first} and {second})",
            program.name.to_uppercase(),
            program.topic
        ),
        panels: vec![
            panel("speed-up over one process", highest, speedups),
            panel("messages with pages, in thousands", Axis::from_zero(&thousands), thousands),
            panel("messages with pages that are saved, in %", Axis::from_zero(&saved), saved),
        ],
    }
}
