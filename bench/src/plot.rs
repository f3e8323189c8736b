//! The ping-pong figure: for each workload a row of three panels over the message size:
//! bandwidth, one-way time, and the ratio of the two sides beside its target.
//!
//! Coordinates are linear in what is plotted; where an axis is logarithmic, the logarithm
//! is plotted and the labels say the value.

use std::ops::Range;
use std::path::Path;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::failure::Failure;
use crate::mpi::{Mpi, Side};
use crate::sizes;

/// A row of panels: one workload.
pub struct Row {
    /// What was run.
    pub title: String,
    /// What each MPI showed.
    pub comparisons: Vec<Comparison>,
}

/// Both sides under one MPI, over all sizes.
pub struct Comparison {
    /// The MPI.
    pub mpi: Mpi,
    /// In ascending size.
    pub points: Vec<Point>,
}

/// Medians at one size.
#[derive(Clone, Copy)]
pub struct Point {
    /// The message's size.
    pub bytes: usize,
    /// One-way time between processes.
    pub plain_us: f64,
    /// One-way time between tasks.
    pub nagaya_us: f64,
    /// plain / nagaya.
    pub ratio: f64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

const WIDTH: u32 = 1440;
const ROW_HEIGHT: u32 = 380;
const LEGEND_HEIGHT: u32 = 56;
const TITLE_HEIGHT: u32 = 36;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(50, 50, 50);
const GRID: RGBColor = RGBColor(226, 226, 226);
const TARGET: RGBColor = RGBColor(130, 130, 130);

/// A colour for each MPI, which readers who see few colours tell apart, too.
fn colour(mpi: Mpi) -> RGBColor {
    match mpi {
        Mpi::OpenMpi => RGBColor(0, 95, 175),
        Mpi::Mpich => RGBColor(213, 94, 0),
    }
}

/// Writes the figure.
pub fn write(file: &Path, rows: &[Row]) -> Result<(), Failure> {
    draw(file, rows)
        .map_err(|error| Failure::new(format!("{}: cannot be drawn: {error}", file.display())))
}

fn draw<'a>(file: &'a Path, rows: &[Row]) -> Result<(), DrawError<'a>> {
    let height = LEGEND_HEIGHT + ROW_HEIGHT * rows.len() as u32;
    let figure = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    figure.fill(&WHITE)?;
    let (head, body) = figure.split_vertically(LEGEND_HEIGHT);
    legend(&head, rows)?;
    for (area, row) in body.split_evenly((rows.len(), 1)).iter().zip(rows) {
        let (title, panels) = area.split_vertically(TITLE_HEIGHT);
        title.draw(&Text::new(row.title.clone(), (24, 10), (FONT, 19).into_font().color(&INK)))?;
        let panels = panels.split_evenly((1, 3));
        panel(&panels[0], &bandwidth(row))?;
        panel(&panels[1], &one_way_time(row))?;
        panel(&panels[2], &ratio(row))?;
    }
    figure.present()
}

/// What the colours and the two kinds of line mean.
fn legend<'a>(area: &Area<'a>, rows: &[Row]) -> Result<(), DrawError<'a>> {
    let centred = Pos::new(HPos::Left, VPos::Center);
    let style = (FONT, 16).into_font().color(&INK).pos(centred);
    let mut x = 24;
    let y = 34;
    let mpis = rows.first().map(|row| row.comparisons.iter().map(|c| c.mpi));
    for mpi in mpis.into_iter().flatten() {
        for side in Side::BOTH {
            let ends = [(x, y), (x + 44, y)];
            let line = Line { points: Vec::new(), look: Look::Side(mpi, side) };
            match side {
                Side::Plain => area.draw(&DashedPathElement::new(ends, 7, 4, line.stroke()))?,
                Side::Nagaya => area.draw(&PathElement::new(ends, line.stroke()))?,
            }
            area.draw(&Circle::new((x + 22, y), 4, WHITE.filled()))?;
            area.draw(&Circle::new((x + 22, y), 4, line.marker()))?;
            let words = match side {
                Side::Plain => format!("{}, plain", mpi.name()),
                Side::Nagaya => format!("{}, nagaya exec", mpi.name()),
            };
            area.draw(&Text::new(words, (x + 54, y), style.clone()))?;
            x += 260;
        }
    }
    area.draw(&PathElement::new([(x, y), (x + 44, y)], TARGET.stroke_width(2)))?;
    area.draw(&Text::new("target", (x + 54, y), style))
}

/// How a line looks.
#[derive(Clone, Copy)]
enum Look {
    /// One side under an MPI: dashed and hollow for processes, solid for tasks.
    Side(Mpi, Side),
    /// A ratio to be reached.
    Target,
}

/// A line through points in plotted coordinates.
struct Line {
    points: Vec<(f64, f64)>,
    look: Look,
}

impl Line {
    fn stroke(&self) -> ShapeStyle {
        match self.look {
            Look::Side(mpi, Side::Plain) => colour(mpi).stroke_width(1),
            Look::Side(mpi, Side::Nagaya) => colour(mpi).stroke_width(2),
            Look::Target => TARGET.stroke_width(2),
        }
    }

    fn marker(&self) -> ShapeStyle {
        match self.look {
            Look::Side(mpi, Side::Plain) => colour(mpi).stroke_width(1),
            Look::Side(mpi, Side::Nagaya) => colour(mpi).filled(),
            Look::Target => TARGET.filled(),
        }
    }
}

/// One diagram over the message size.
struct Panel {
    caption: &'static str,
    y: Axis,
    lines: Vec<Line>,
}

/// An axis that brings its own labels.
#[derive(Clone)]
struct Axis {
    range: Range<f64>,
    /// Where labels and grid lines stand, with their text.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From the first tick to the last.
    fn over(ticks: Vec<(f64, String)>) -> Self {
        let [Some(first), Some(last)] = [ticks.first(), ticks.last()] else {
            unreachable!("an axis has ticks");
        };
        Axis { range: first.0..last.0, ticks }
    }

    /// The horizontal one: message sizes, with a margin for the markers at both ends.
    fn sizes() -> Self {
        let labelled = [8, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20];
        let ticks = labelled.map(|bytes| (x(bytes), sizes::shown(bytes))).to_vec();
        Axis { range: x(8) - 0.3..x(16 << 20) + 0.3, ticks }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = (value - self.range.start) / (self.range.end - self.range.start);
        from + (place * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|tick| tick.0).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.0 == *value);
        tick.map(|tick| tick.1.clone()).unwrap_or_default()
    }
}

/// The horizontal place of a size.
fn x(bytes: usize) -> f64 {
    (bytes as f64).log2()
}

/// A line for each MPI and side, with the vertical place of a point given its size and time.
fn both_sides(row: &Row, place: impl Fn(usize, f64) -> f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for comparison in &row.comparisons {
        for side in Side::BOTH {
            let points = comparison.points.iter().map(|point| {
                let us = match side {
                    Side::Plain => point.plain_us,
                    Side::Nagaya => point.nagaya_us,
                };
                (x(point.bytes), place(point.bytes, us))
            });
            lines.push(Line { points: points.collect(), look: Look::Side(comparison.mpi, side) });
        }
    }
    lines
}

fn bandwidth(row: &Row) -> Panel {
    let lines = both_sides(row, |bytes, us| bytes as f64 / us / 1000.0);
    let y = Axis::over(linear_ticks(highest(&lines) * 1.05));
    Panel { caption: "bandwidth, GB/s", y, lines }
}

fn one_way_time(row: &Row) -> Panel {
    let lines = both_sides(row, |_, us| us.log10());
    let values = || lines.iter().flat_map(|line| &line.points).map(|&(_, y)| y);
    let low = values().fold(f64::INFINITY, f64::min).floor() as i32;
    let high = (highest(&lines).ceil() as i32).max(low + 1);
    let ticks = (low..=high).map(|power| (f64::from(power), format!("{}", 10f64.powi(power))));
    Panel { caption: "one-way time, µs", y: Axis::over(ticks.collect()), lines }
}

/// The ratios, and their targets as steps.
fn ratio(row: &Row) -> Panel {
    let mut lines = Vec::new();
    if let Some(comparison) = row.comparisons.first() {
        lines.push(Line { points: target_steps(&comparison.points), look: Look::Target });
    }
    for comparison in &row.comparisons {
        let points = comparison.points.iter().map(|point| (x(point.bytes), point.ratio));
        let look = Look::Side(comparison.mpi, Side::Nagaya);
        lines.push(Line { points: points.collect(), look });
    }
    let y = Axis::over(linear_ticks(highest(&lines) * 1.05));
    Panel { caption: "times faster (plain / nagaya)", y, lines }
}

/// Each size's target holds half-way to the sizes beside it.
fn target_steps(points: &[Point]) -> Vec<(f64, f64)> {
    let mut steps = Vec::new();
    for (at, point) in points.iter().enumerate() {
        let here = x(point.bytes);
        let half_way = |other: Option<&Point>| other.map_or(here, |p| (here + x(p.bytes)) / 2.0);
        let before = half_way(at.checked_sub(1).and_then(|before| points.get(before)));
        let target = sizes::target(point.bytes);
        steps.extend([(before, target), (half_way(points.get(at + 1)), target)]);
    }
    steps
}

fn highest(lines: &[Line]) -> f64 {
    let values = lines.iter().flat_map(|line| &line.points).map(|&(_, y)| y);
    values.fold(f64::NEG_INFINITY, f64::max)
}

/// Some four to seven round values from 0 until `high` is covered.
fn linear_ticks(high: f64) -> Vec<(f64, String)> {
    let raw = (high / 6.0).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|m| m * power >= raw).unwrap_or(10.0) * power;
    let decimals = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
    let count = (high / step).ceil() as usize;
    (0..=count).map(|n| step * n as f64).map(|y| (y, format!("{y:.decimals$}"))).collect()
}

/// Draws frame, grid, labels and lines.
fn panel<'a>(area: &Area<'a>, panel: &Panel) -> Result<(), DrawError<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_left(12)
        .caption(panel.caption, (FONT, 15).into_font().color(&INK))
        .x_label_area_size(44)
        .y_label_area_size(48)
        .build_cartesian_2d(Axis::sizes(), panel.y.clone())?;
    chart
        .configure_mesh()
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 13).into_font().color(&INK))
        .x_desc("message size")
        .axis_desc_style((FONT, 13).into_font().color(&INK))
        .draw()?;
    for line in &panel.lines {
        let points = || line.points.iter().copied();
        match line.look {
            Look::Side(_, Side::Plain) => {
                chart.draw_series(DashedLineSeries::new(points(), 6, 4, line.stroke()))?;
            }
            _ => {
                chart.draw_series(LineSeries::new(points(), line.stroke()))?;
            }
        }
        if let Look::Side(..) = line.look {
            chart.draw_series(points().map(|at| Circle::new(at, 3, WHITE.filled())))?;
            chart.draw_series(points().map(|at| Circle::new(at, 3, line.marker())))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        let values: Vec<f64> = linear_ticks(23.0).iter().map(|tick| tick.0).collect();
        assert_eq!(values.first(), Some(&0.0));
        assert!(values.last().unwrap() >= &23.0);
        assert!((4..=8).contains(&values.len()), "{values:?}");
    }

    #[test]
    fn target_steps_change_half_way_between_sizes() {
        let point = |bytes| Point { bytes, plain_us: 1.0, nagaya_us: 1.0, ratio: 1.0 };
        let steps = target_steps(&[point(8192), point(16384)]);
        assert_eq!(steps, [(13.0, 1.0), (13.5, 1.0), (13.5, 1.8), (14.0, 1.8)]);
    }
}
