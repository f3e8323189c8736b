//! The figures of the ping-pong. Each MPI has the two of the paper, latency and bandwidth over the
//! message size, with a line for each mode. One figure shows all MPIs: bandwidth, time, and the
//! ratio of CMA to the space with its target.

use std::collections::BTreeMap;
use std::path::Path;

use figure::{Axis, COLOURS, Figure, GREY, Kind, Line, Panel, Row, Style, log2};

use super::rounds::Times;
use super::sample::Workload;
use super::targets;
use crate::failure::Failure;
use crate::machine;
use crate::mode::Mode;
use crate::mpi::Mpi;

/// One-way times in µs by mode, in ascending size.
pub type Points = BTreeMap<Mode, Vec<(usize, f64)>>;

/// The results of one MPI with one workload.
pub struct Series {
    /// The MPI.
    pub mpi: Mpi,
    /// The workload.
    pub workload: Workload,
    /// The medians.
    pub points: Points,
}

/// Returns the medians for a figure, without size 0, which has no logarithm.
pub fn points(all: &[(usize, &Times)], modes: &[Mode]) -> Points {
    let of_mode = |mode: Mode| {
        let all = all.iter().filter(|(bytes, _)| *bytes > 0);
        let points = all.filter_map(|(bytes, times)| Some((*bytes, times.of(mode)?.median)));
        (mode, points.collect::<Vec<_>>())
    };
    modes.iter().map(|mode| of_mode(*mode)).filter(|(_, points)| !points.is_empty()).collect()
}

/// Draws all figures; returns their file names.
pub fn write(
    series: &[Series],
    distance_ns: Option<f64>,
    out: &Path,
) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let mut mpis: Vec<Mpi> = series.iter().map(|series| series.mpi).collect();
    mpis.dedup();
    for &mpi in &mpis {
        let of_mpi: Vec<&Series> = series.iter().filter(|series| series.mpi == mpi).collect();
        for (measure, draw) in [("latency", latency as Draw), ("bandwidth", bandwidth as Draw)] {
            let name = format!("{measure}-{}.svg", mpi.key());
            figure_of(mpi, &of_mpi, draw, distance_ns).write(&out.join(&name))?;
            names.push(name);
        }
    }
    overview(series, &mpis, distance_ns).write(&out.join("pingpong.svg"))?;
    names.push("pingpong.svg".to_string());
    Ok(names)
}

/// Makes a panel of lines of sizes and times.
type Draw = fn(&str, Vec<(Style, &[(usize, f64)])>) -> Panel;

fn latency(title: &str, lines: Vec<(Style, &[(usize, f64)])>) -> Panel {
    panel(format!("time a message, µs; {title}"), lines, |_, us| us.log10())
}

fn bandwidth(title: &str, lines: Vec<(Style, &[(usize, f64)])>) -> Panel {
    panel(format!("bandwidth, MB/s; {title}"), lines, |bytes, us| (bytes as f64 / us).log10())
}

/// A log-log panel.
fn panel(
    caption: String,
    lines: Vec<(Style, &[(usize, f64)])>,
    place: impl Fn(usize, f64) -> f64,
) -> Panel {
    let x = Axis::sizes(lines.iter().flat_map(|(_, points)| points.iter().map(|at| at.0)));
    let line = |(style, points): (Style, &[(usize, f64)])| {
        let points = points.iter().map(|&(bytes, us)| (log2(bytes), place(bytes, us)));
        Line { points: points.collect(), style }
    };
    let lines: Vec<Line> = lines.into_iter().map(line).collect();
    Panel { caption, x_caption: "message size", x, y: Axis::decades(&lines), lines }
}

fn style_of_mode(mode: Mode) -> Style {
    match mode {
        Mode::Eager => Style { colour: COLOURS[2], kind: Kind::Dashed },
        Mode::Rendezvous => Style { colour: COLOURS[3], kind: Kind::Dashed },
        Mode::Cma => Style { colour: COLOURS[1], kind: Kind::Dashed },
        Mode::Space => Style { colour: COLOURS[0], kind: Kind::Solid },
        Mode::Provider => Style { colour: COLOURS[4], kind: Kind::Solid },
        Mode::Protected => Style { colour: COLOURS[5], kind: Kind::Solid },
        Mode::ProtectedAll => Style { colour: COLOURS[6], kind: Kind::Solid },
        Mode::Exec => Style { colour: COLOURS[0], kind: Kind::Dashed },
        Mode::Limit => GREY,
    }
}

fn caption(distance_ns: Option<f64>) -> String {
    let distance = distance_ns.map(|ns| format!("; cores {ns:.0} ns apart")).unwrap_or_default();
    format!("{}{distance}", machine::caption())
}

/// Returns the figure of one MPI: a panel for each workload.
fn figure_of(mpi: Mpi, series: &[&Series], draw: Draw, distance_ns: Option<f64>) -> Figure {
    let own = series.iter().filter(|series| series.workload != Workload::NetPipe);
    let own: Vec<&&Series> = own.collect();
    let series: Vec<&&Series> = if own.is_empty() { series.iter().collect() } else { own };
    let panels = series.iter().map(|series| {
        let lines = series.points.iter().map(|(mode, points)| (style_of_mode(*mode), &points[..]));
        draw(series.workload.title(), lines.collect())
    });
    let mut modes: Vec<Mode> = series.iter().flat_map(|s| s.points.keys().copied()).collect();
    modes.sort();
    modes.dedup();
    let version = mpi.version().map(|version| format!(" ({version})")).unwrap_or_default();
    Figure {
        caption: caption(distance_ns),
        legend: modes.iter().map(|m| (m.words().to_string(), style_of_mode(*m))).collect(),
        rows: vec![Row { title: format!("{}{version}", mpi.name()), panels: panels.collect() }],
    }
}

fn style_of_mpi(mpi: Mpi, mode: Mode) -> Style {
    let kind = if mode == Mode::Space { Kind::Solid } else { Kind::Dashed };
    Style { colour: COLOURS[mpi as usize], kind }
}

/// Returns the figure of all MPIs: a row for each workload, with CMA and the space only.
fn overview(series: &[Series], mpis: &[Mpi], distance_ns: Option<f64>) -> Figure {
    let compared = [Mode::Cma, Mode::Space];
    let mut legend = Vec::new();
    for &mpi in mpis {
        legend.extend(
            compared
                .map(|mode| (format!("{}, {}", mpi.name(), mode.name()), style_of_mpi(mpi, mode))),
        );
    }
    legend.push(("target".to_string(), GREY));
    let mut workloads: Vec<Workload> = series.iter().map(|series| series.workload).collect();
    workloads.sort();
    workloads.dedup();
    let row = |workload: &Workload| {
        let of_workload: Vec<&Series> =
            series.iter().filter(|series| series.workload == *workload).collect();
        let lines = || {
            let of_series = |series: &&'_ Series| {
                let (mpi, points) = (series.mpi, &series.points);
                compared.map(|mode| (mpi, mode, points.get(&mode).cloned().unwrap_or_default()))
            };
            of_workload.iter().flat_map(of_series).collect::<Vec<_>>()
        };
        let all = lines();
        let styles =
            || all.iter().map(|(mpi, mode, points)| (style_of_mpi(*mpi, *mode), &points[..]));
        let title = workload.title().to_string();
        let panels = vec![
            bandwidth("", styles().collect()).captioned("bandwidth, MB/s"),
            latency("", styles().collect()).captioned("time a message, µs"),
            ratio(*workload, &of_workload),
        ];
        Row { title, panels }
    };
    Figure { caption: caption(distance_ns), legend, rows: workloads.iter().map(row).collect() }
}

/// Returns the panel of CMA / space with the targets as steps.
fn ratio(workload: Workload, series: &[&Series]) -> Panel {
    let mut lines = Vec::new();
    let mut sizes = Vec::new();
    for series in series {
        let of = |mode| series.points.get(&mode).cloned().unwrap_or_default();
        let (cma, space) = (of(Mode::Cma), of(Mode::Space));
        let both = cma.iter().zip(&space).filter(|(cma, space)| cma.0 == space.0);
        let points: Vec<(f64, f64)> =
            both.map(|(cma, space)| (log2(cma.0), cma.1 / space.1)).collect();
        sizes = cma.iter().map(|at| at.0).collect();
        lines.push(Line { points, style: style_of_mpi(series.mpi, Mode::Space) });
    }
    lines.insert(0, Line { points: target_steps(workload, &sizes), style: GREY });
    let x = Axis::sizes(sizes.into_iter());
    let caption = "times faster than CMA".to_string();
    Panel { caption, x_caption: "message size", x, y: Axis::from_zero(&lines), lines }
}

/// Returns the targets as steps. A target extends half-way to the neighbouring sizes.
fn target_steps(workload: Workload, sizes: &[usize]) -> Vec<(f64, f64)> {
    let mut steps = Vec::new();
    for (at, &bytes) in sizes.iter().enumerate() {
        let here = log2(bytes);
        let half_way = |other: Option<&usize>| other.map_or(here, |o| (here + log2(*o)) / 2.0);
        let before = half_way(at.checked_sub(1).and_then(|before| sizes.get(before)));
        let target = targets::times_faster(workload, bytes).unwrap_or(1.0);
        steps.extend([(before, target), (half_way(sizes.get(at + 1)), target)]);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_steps_change_half_way_between_sizes() {
        let steps = target_steps(Workload::Fresh, &[8192, 16384]);
        assert_eq!(steps, [(13.0, 1.0), (13.5, 1.0), (13.5, 1.5), (14.0, 1.5)]);
    }
}
