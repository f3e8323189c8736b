//! Speed-ups and messages of simulated programs as a figure.

use std::path::Path;

use figure::{Axis, COLOURS, Figure, GREY, Kind, Line, Panel, Row, Style, log2};
use nagaya_server::Failure;
use sim::cluster::Cluster;
use sim::report::Outcome;

/// Draws the runs of each program: speed-up over tasks against one node, and messages that can
/// carry pages.
pub fn plot(
    file: &Path,
    cluster: &Cluster,
    programs: &[(&'static str, Vec<Outcome>)],
) -> Result<(), Failure> {
    let styles = COLOURS.map(|colour| Style { colour, kind: Kind::Solid });
    let tasks = |run: &Outcome| run.nodes as usize * run.tasks as usize;
    let mut counts: Vec<usize> = programs.iter().flat_map(|(_, runs)| runs).map(tasks).collect();
    counts.sort_unstable();
    let (mut speedups, mut messages) = (Vec::new(), Vec::new());
    for ((_, runs), style) in programs.iter().zip(styles) {
        let one = runs.iter().find(|run| run.nodes == 1).ok_or_else(|| {
            Failure::ours("--plot needs one node for comparison; add 1 to --nodes")
        })?;
        let times = |run: &Outcome| one.time_ns as f64 / run.time_ns.max(1) as f64;
        let speedup = |run: &Outcome| (log2(tasks(run)), times(run) * f64::from(one.tasks));
        speedups.push(Line { points: runs.iter().map(speedup).collect(), style });
        let sent = runs.iter().filter(|run| run.page_messages() > 0);
        let sent = sent.map(|run| (log2(tasks(run)), (run.page_messages() as f64).log10()));
        messages.push(Line { points: sent.collect(), style });
    }
    messages.retain(|line| !line.points.is_empty());
    let y = Axis::from_zero(&speedups);
    let highest = speedups.iter().flat_map(|line| &line.points).fold(1.0, |y, p| p.1.max(y));
    let ideal = counts.iter().filter(|count| **count as f64 <= highest * 1.05);
    let ideal = ideal.map(|count| (log2(*count), *count as f64)).collect();
    speedups.push(Line { points: ideal, style: GREY });
    let axis = || Axis::counts(counts.iter().copied());
    let x_caption = "tasks";
    let mut panels = vec![Panel {
        caption: "speed-up; one node counts as its tasks".into(),
        x_caption,
        x: axis(),
        y,
        lines: speedups,
    }];
    if !messages.is_empty() {
        let y = Axis::decades(&messages);
        let caption = "OP_GETPGRANT and OP_BARRGRANT".into();
        panels.push(Panel { caption, x_caption, x: axis(), y, lines: messages });
    }
    let mut legend: Vec<(String, Style)> =
        programs.iter().zip(styles).map(|((name, _), style)| (name.to_string(), style)).collect();
    legend.push(("as many as tasks".into(), GREY));
    let title = format!("Simulated: {}", cluster.name);
    let rows = vec![Row { title, panels }];
    let caption = "virtual time; the protocol's production code (nagaya sim)".to_string();
    Figure { caption, legend, rows }.write(file).map_err(|figure::Undrawn(why)| Failure::ours(why))
}
