//! Figures as SVG files: rows of panels, each with lines over a size or a count. A legend is
//! above, and a caption below names the machine.
//!
//! Coordinates are linear in the plotted values. On a logarithmic axis, the logarithm is plotted
//! and the labels have the value.

use std::ops::Range;
use std::path::Path;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Why a figure could not be drawn: a line with the file's name.
#[derive(Debug)]
pub struct Undrawn(pub String);

/// A whole figure.
pub struct Figure {
    /// One line below the panels: the machine of the measurement.
    pub caption: String,
    /// The meaning of each style of a line.
    pub legend: Vec<(String, Style)>,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// Panels beside each other.
pub struct Row {
    /// The common title.
    pub title: String,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// One diagram.
pub struct Panel {
    /// The quantity of the vertical axis, with its unit.
    pub caption: String,
    /// The quantity of the horizontal axis.
    pub x_caption: &'static str,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Panel {
    /// The same under another caption.
    pub fn captioned(self, caption: &str) -> Self {
        Panel { caption: caption.to_string(), ..self }
    }
}

/// A line through points in plotted coordinates.
pub struct Line {
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// The style of the line.
    pub style: Style,
}

/// The style of a line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Style {
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
    /// Stroke and markers.
    pub kind: Kind,
}

/// Stroke and markers of a line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// Solid with filled markers: ours.
    Solid,
    /// Dashed with hollow markers: a peer.
    Dashed,
    /// A plain grey line: a target or a limit.
    Bare,
}

/// Colours that colour-blind readers can distinguish, too.
pub const COLOURS: [(u8, u8, u8); 8] = [
    (0, 95, 175),
    (213, 94, 0),
    (0, 140, 105),
    (170, 70, 130),
    (120, 100, 20),
    (60, 160, 220),
    (230, 159, 0),
    (90, 90, 90),
];

/// Of targets and limits.
pub const GREY: Style = Style { colour: (130, 130, 130), kind: Kind::Bare };

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

const WIDTH: u32 = 1440;
const ROW_HEIGHT: u32 = 380;
const TITLE_HEIGHT: u32 = 36;
const CAPTION_HEIGHT: u32 = 34;
const LEGEND_LINE: u32 = 28;
const LEGEND_COLUMNS: usize = 5;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(50, 50, 50);
const GRID: RGBColor = RGBColor(226, 226, 226);

impl Style {
    fn rgb(self) -> RGBColor {
        RGBColor(self.colour.0, self.colour.1, self.colour.2)
    }

    fn stroke(self) -> ShapeStyle {
        self.rgb().stroke_width(if self.kind == Kind::Dashed { 1 } else { 2 })
    }

    fn marker(self) -> ShapeStyle {
        if self.kind == Kind::Dashed { self.rgb().stroke_width(1) } else { self.rgb().filled() }
    }
}

impl Figure {
    /// Writes it as an SVG file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), Undrawn> {
        self.draw(file)
            .map_err(|error| Undrawn(format!("{}: cannot be drawn: {error}", file.display())))
    }

    fn draw<'a>(&self, file: &'a Path) -> Result<(), DrawError<'a>> {
        let legend_height = 16 + LEGEND_LINE * self.legend.len().div_ceil(LEGEND_COLUMNS) as u32;
        let height = legend_height + ROW_HEIGHT * self.rows.len() as u32 + CAPTION_HEIGHT;
        let figure = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
        figure.fill(&WHITE)?;
        let (head, body) = figure.split_vertically(legend_height);
        let (body, foot) = body.split_vertically(height - legend_height - CAPTION_HEIGHT);
        draw_legend(&head, &self.legend)?;
        let words = |size: u32| (FONT, size).into_font().color(&INK);
        foot.draw(&Text::new(self.caption.clone(), (24, 8), words(13)))?;
        for (area, row) in body.split_evenly((self.rows.len(), 1)).iter().zip(&self.rows) {
            let (title, panels) = area.split_vertically(TITLE_HEIGHT);
            title.draw(&Text::new(row.title.clone(), (24, 10), words(19)))?;
            for (area, panel) in panels.split_evenly((1, row.panels.len())).iter().zip(&row.panels)
            {
                draw_panel(area, panel)?;
            }
        }
        figure.present()
    }
}

fn draw_legend<'a>(area: &Area<'a>, legend: &[(String, Style)]) -> Result<(), DrawError<'a>> {
    let centred = Pos::new(HPos::Left, VPos::Center);
    let text_style = (FONT, 15).into_font().color(&INK).pos(centred);
    for (at, (words, style)) in legend.iter().enumerate() {
        let column = WIDTH as i32 / LEGEND_COLUMNS as i32;
        let x = 24 + (at % LEGEND_COLUMNS) as i32 * (column - 6);
        let y = 22 + (at / LEGEND_COLUMNS) as i32 * LEGEND_LINE as i32;
        let ends = [(x, y), (x + 44, y)];
        match style.kind {
            Kind::Dashed => area.draw(&DashedPathElement::new(ends, 7, 4, style.stroke()))?,
            _ => area.draw(&PathElement::new(ends, style.stroke()))?,
        }
        if style.kind != Kind::Bare {
            area.draw(&Circle::new((x + 22, y), 4, WHITE.filled()))?;
            area.draw(&Circle::new((x + 22, y), 4, style.marker()))?;
        }
        area.draw(&Text::new(words.clone(), (x + 54, y), text_style.clone()))?;
    }
    Ok(())
}

/// Draws frame, grid, labels and lines.
fn draw_panel<'a>(area: &Area<'a>, panel: &Panel) -> Result<(), DrawError<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_left(12)
        .caption(&panel.caption, (FONT, 15).into_font().color(&INK))
        .x_label_area_size(44)
        .y_label_area_size(52)
        .build_cartesian_2d(panel.x.clone(), panel.y.clone())?;
    chart
        .configure_mesh()
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 13).into_font().color(&INK))
        .x_desc(panel.x_caption)
        .axis_desc_style((FONT, 13).into_font().color(&INK))
        .draw()?;
    for Line { points, style } in &panel.lines {
        let points = || points.iter().copied();
        if style.kind == Kind::Dashed {
            chart.draw_series(DashedLineSeries::new(points(), 6, 4, style.stroke()))?;
        } else {
            chart.draw_series(LineSeries::new(points(), style.stroke()))?;
        }
        if style.kind != Kind::Bare {
            chart.draw_series(points().map(|at| Circle::new(at, 3, WHITE.filled())))?;
            chart.draw_series(points().map(|at| Circle::new(at, 3, style.marker())))?;
        }
    }
    Ok(())
}

/// An axis that brings its own labels.
#[derive(Clone)]
pub struct Axis {
    range: Range<f64>,
    /// The positions of labels and grid lines, with their text.
    ticks: Vec<(f64, String)>,
}

/// The place of a size or count on a logarithmic axis of base 2.
pub fn log2(value: usize) -> f64 {
    (value as f64).log2()
}

/// `65536` → `64 KB`. (In message sizes K is 1024, as is usual; in MB/s, M is 10⁶.)
pub fn shown(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", bytes / 1024),
        _ => format!("{} MB", bytes / 1_048_576),
    }
}

impl Axis {
    /// Message sizes in bytes, for [`log2`]: a label at every third power of two.
    pub fn sizes(sizes: impl Iterator<Item = usize>) -> Self {
        Self::powers_of_two(sizes, 3, shown)
    }

    /// Counts (ranks), for [`log2`].
    pub fn counts(counts: impl Iterator<Item = usize>) -> Self {
        Self::powers_of_two(counts, 1, |count| count.to_string())
    }

    /// Names, one after the other from 0 on.
    pub fn named<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let ticks: Vec<_> =
            names.enumerate().map(|(at, name)| (at as f64, name.to_string())).collect();
        Axis { range: -0.5..ticks.len() as f64 - 0.5, ticks }
    }

    fn powers_of_two(
        values: impl Iterator<Item = usize>,
        step: usize,
        shown: impl Fn(usize) -> String,
    ) -> Self {
        let values: Vec<f64> = values.map(log2).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers = (low.ceil() as u32..=high as u32).step_by(step);
        let ticks = powers.map(|power| (f64::from(power), shown(1 << power))).collect();
        // A margin for the markers at both ends.
        Axis { range: low - 0.3..high + 0.3, ticks }
    }

    /// Powers of ten, which cover the lines' vertical values (logarithms of base 10).
    pub fn decades(lines: &[Line]) -> Self {
        let values = || lines.iter().flat_map(|line| &line.points).map(|&(_, y)| y);
        let low = values().fold(f64::INFINITY, f64::min).floor() as i32;
        let high = (values().fold(f64::NEG_INFINITY, f64::max).ceil() as i32).max(low + 1);
        let ticks = (low..=high).map(|power| (f64::from(power), format!("{}", 10f64.powi(power))));
        Axis { range: f64::from(low)..f64::from(high), ticks: ticks.collect() }
    }

    /// From 0 up, so that the lines' vertical values are covered.
    pub fn from_zero(lines: &[Line]) -> Self {
        let values = lines.iter().flat_map(|line| &line.points).map(|&(_, y)| y);
        let ticks = linear_ticks(values.fold(0.0, f64::max) * 1.05);
        Axis { range: 0.0..ticks.last().map_or(1.0, |tick| tick.0), ticks }
    }
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
    fn an_axis_of_sizes_labels_every_third_power() {
        let labels: Vec<String> =
            Axis::sizes([8, 1024].into_iter()).ticks.into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["8 B", "64 B", "512 B"]);
    }

    #[test]
    fn decades_enclose_the_lines() {
        let line = Line { points: vec![(0.0, -0.5), (1.0, 2.2)], style: GREY };
        assert_eq!(Axis::decades(&[line]).range, -1.0..3.0);
    }
}
