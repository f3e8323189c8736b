//! `nagaya maps --svg`: a drawing of a job's address space, a row a task, and of its messages.
//!
//! Segments are larger than their memory by orders of magnitude, so a row shows the parts of a
//! segment in the order of their addresses, each as wide as its resident memory on a logarithmic
//! scale. Ranks that have counted their messages (`nagaya exec --report`) are drawn as a matrix.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nagaya_server::maps::Mapping;
use nagaya_server::protocol::Status;
use serde_json::Value;

use crate::ps::human;

const WIDTH: u32 = 960;
const MARGIN: u32 = 16;
/// Room for the name of a task, left of its segment.
const NAMES: u32 = 230;
const ROW: u32 = 34;
/// Height of a segment in its row.
const BAR: u32 = 20;
/// Tasks that are drawn: more would be no picture.
const TASKS_MAX: usize = 256;

/// The parts of a segment in the order of their addresses, with a colour each.
const PARTS: [(&str, &str); 6] = [
    ("export", "#8c6bb1"),
    ("control", "#9e9e9e"),
    ("image", "#4292c6"),
    ("heap", "#41ab5d"),
    ("mmap", "#fe9929"),
    ("stack", "#ef6548"),
];

/// Colours of domains.
const DOMAINS: [&str; 6] = ["#222222", "#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e"];

/// Text in XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

fn shortened(text: &str, letters: usize) -> String {
    match text.chars().count() > letters {
        true => text.chars().take(letters - 1).collect::<String>() + "…",
        false => text.to_owned(),
    }
}

/// A drawing in progress.
#[derive(Default)]
pub struct Drawing {
    body: String,
    height: u32,
}

impl Drawing {
    /// Returns the SVG document.
    pub fn finish(self) -> String {
        let height = self.height + MARGIN;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn text(&mut self, x: u32, y: u32, more: &str, text: &str) {
        let _ = writeln!(self.body, "<text x=\"{x}\" y=\"{y}\" {more}>{}</text>", escaped(text));
    }

    fn rectangle(&mut self, at: [f64; 2], size: [f64; 2], fill: &str, title: &str) {
        let ([x, y], [width, height]) = (at, size);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{fill}\"><title>{}</title></rect>",
            escaped(title)
        );
    }

    fn heading(&mut self, title: &str, below: &str) {
        self.height += MARGIN + 16;
        self.text(MARGIN, self.height, "font-size=\"16\" font-weight=\"bold\"", title);
        self.height += 18;
        self.text(MARGIN, self.height, "fill=\"#555\"", below);
        self.height += 12;
    }

    /// Draws a job's segments.
    pub fn job(&mut self, status: &Status, mappings: &[Mapping]) {
        let tasks = status.tasks.iter().take(TASKS_MAX);
        self.heading(
            &format!("job {}", status.job),
            &format!(
                "one address space from {:#x}, segments of {}, {} tasks; widths: resident memory, \
                 on a logarithmic scale",
                status.base,
                human(status.segment_size),
                status.tasks.len()
            ),
        );
        self.legend(status.domains.len());
        for task in tasks {
            let start = status.base + u64::from(task.id) * status.segment_size;
            let colour = DOMAINS[task.domain as usize % DOMAINS.len()];
            let y = self.height;
            let name = task.arguments.first().unwrap_or(&task.path);
            let name = name.rsplit('/').next().unwrap_or(name);
            let name = format!("{} · PID {} · {}", task.id, task.pid, shortened(name, 16));
            self.text(MARGIN, y + 14, "", &name);
            let copies = format!("{start:#x}; {} copies", task.copies);
            self.text(MARGIN, y + 27, "fill=\"#777\" font-size=\"10\"", &copies);
            let x = f64::from(MARGIN + NAMES);
            let title = format!("task {}, domain {}", task.id, task.domain);
            self.rectangle([x - 6.0, y.into()], [4.0, BAR.into()], colour, &title);
            let own: Vec<&Mapping> = mappings.iter().filter(|it| it.id == task.id).collect();
            self.parts(x, y, &own);
            self.height += ROW;
        }
        if status.tasks.len() > TASKS_MAX {
            let more = format!("and {} more tasks", status.tasks.len() - TASKS_MAX);
            self.text(MARGIN, self.height + 12, "fill=\"#555\"", &more);
            self.height += 18;
        }
    }

    fn legend(&mut self, domains: usize) {
        let y = self.height;
        for (at, (part, colour)) in PARTS.iter().enumerate() {
            let x = MARGIN + NAMES + 100 * at as u32;
            self.rectangle([x.into(), y.into()], [12.0, 12.0], colour, part);
            self.text(x + 17, y + 11, "", part);
        }
        if domains > 1 {
            self.text(MARGIN, y + 11, "", &format!("{domains} domains, a colour each"));
        }
        self.height += 24;
    }

    /// Draws the parts of a segment.
    fn parts(&mut self, x: f64, y: u32, mappings: &[&Mapping]) {
        let resident = |part: &str| -> u64 {
            let own = mappings.iter().filter(|mapping| mapping.part == part);
            own.map(|mapping| mapping.resident).sum()
        };
        // 4 KiB has the least width, and each doubling adds the same.
        let scale = |bytes: u64| (bytes as f64 / 4096.0).max(1.0).log2() * 6.0 + 3.0;
        let mut at = x;
        for (part, colour) in PARTS {
            let of_part = mappings.iter().filter(|mapping| mapping.part == part).count();
            if of_part == 0 {
                continue;
            }
            let bytes = resident(part);
            let width = scale(bytes);
            let title = format!("{part}: {} resident in {of_part} mappings", human(bytes));
            self.rectangle([at, y.into()], [width, BAR.into()], colour, &title);
            if width > 60.0 {
                let style = "fill=\"white\" font-size=\"10\"";
                self.text(at as u32 + 4, y + 14, style, &human(bytes));
            }
            at += width + 1.0;
        }
    }

    /// Draws the messages of the ranks in a report of `nagaya exec --report`: a row a sender, a
    /// column a receiver. Returns false if the report has none.
    pub fn messages(&mut self, report: &Value) -> bool {
        let sent = sent(report);
        let Some(ranks) = report["ranks"].as_u64().filter(|&ranks| ranks > 0) else { return false };
        let most = sent.values().copied().max().unwrap_or(0);
        self.heading(
            "who talks to whom",
            &format!(
                "bytes from the rank of a row to the rank of a column, up to {}; job {}",
                human(most),
                report["job"].as_str().unwrap_or("unknown")
            ),
        );
        let room = f64::from(WIDTH - 2 * MARGIN - 60);
        let cell = (room / ranks as f64).min(28.0);
        let (x, y) = (f64::from(MARGIN + 60), f64::from(self.height + 16));
        // A number for about each 20 pixels.
        let step = (20.0 / cell).ceil() as u64;
        for rank in (0..ranks).step_by(step as usize) {
            let at = rank as f64 * cell;
            let name = rank.to_string();
            let style = "font-size=\"10\"";
            self.text((x + at) as u32 + 2, y as u32 - 4, style, &name);
            self.text(
                MARGIN,
                (y + at + cell.max(10.0) - 2.0) as u32,
                style,
                &format!("rank {name}"),
            );
        }
        let side = ranks as f64 * cell;
        self.rectangle([x, y], [side, side], "#f4f4f4", "no message");
        for (&(from, to), &bytes) in &sent {
            if from >= ranks || to >= ranks {
                continue;
            }
            // Logarithmic: a barrier's messages are visible beside large ones.
            let share = (bytes as f64 + 1.0).ln() / (most as f64 + 1.0).ln().max(1.0);
            let fill = shade(share);
            let at = [x + to as f64 * cell, y + from as f64 * cell];
            let title = format!("rank {from} to rank {to}: {}", human(bytes));
            self.rectangle(at, [cell - 0.5, cell - 0.5], &fill, &title);
        }
        self.height = (y + side) as u32 + 8;
        true
    }
}

/// Returns the bytes of each pair of ranks.
fn sent(report: &Value) -> BTreeMap<(u64, u64), u64> {
    let mut sent = BTreeMap::new();
    for rank in report["per_rank"].as_array().into_iter().flatten() {
        for peer in rank["peers"].as_array().into_iter().flatten() {
            let pair = rank["rank"].as_u64().zip(peer["rank"].as_u64());
            if let Some((pair, bytes)) = pair.zip(peer["bytes"].as_u64()) {
                *sent.entry(pair).or_default() += bytes;
            }
        }
    }
    sent
}

/// Returns a colour from a light to a dark blue.
fn shade(share: f64) -> String {
    let mix = |from: f64, to: f64| (from + (to - from) * share.clamp(0.0, 1.0)) as u8;
    format!("#{:02x}{:02x}{:02x}", mix(222.0, 8.0), mix(235.0, 48.0), mix(247.0, 107.0))
}
