//! The drawing of the house: crates as boxes on their floors, with their lines of product code.
//!
//! A line connects a crate with one that it uses. A line is left out if it follows from others: if
//! `a` uses `b`, and `b` uses `c`, then no line connects `a` and `c`. A line to a crate that is not
//! on a lower floor is red.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A crate in the drawing.
pub struct Room {
    /// The name, without the common prefix.
    pub name: String,
    /// The wing: the first directory of the crate's path.
    pub wing: String,
    /// The floor, from 0.
    pub floor: usize,
    /// Lines of product code.
    pub lines: usize,
    /// The crates that it uses.
    pub uses: BTreeSet<String>,
}

const BOX_WIDTH: usize = 116;
const BOX_HEIGHT: usize = 40;
const GAP: usize = 18;
const FLOOR_HEIGHT: usize = 100;
const MARGIN: usize = 24;
const TITLE_HEIGHT: usize = 56;

/// Fill colours of the wings.
const COLOURS: &[(&str, &str)] = &[
    ("sync", "#d9d9d9"),
    ("space", "#cfe3f5"),
    ("memory", "#d6efd2"),
    ("net", "#fde2c0"),
    ("message", "#f9d4d4"),
    ("launch", "#e6dcf3"),
    ("cli", "#fff3b0"),
];

fn colour(wing: &str) -> &'static str {
    let found = COLOURS.iter().find(|(name, _)| *name == wing);
    found.map_or("#ffffff", |(_, colour)| colour)
}

/// Returns a number with a comma between thousands.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the edges that do not follow from others.
fn direct_edges(rooms: &[Room]) -> Vec<(&str, &str)> {
    let uses: BTreeMap<&str, &BTreeSet<String>> =
        rooms.iter().map(|room| (room.name.as_str(), &room.uses)).collect();
    let reaches = |from: &str, to: &str| {
        let mut open = vec![from.to_owned()];
        let mut seen = BTreeSet::new();
        while let Some(at) = open.pop() {
            for next in uses[at.as_str()] {
                if next == to {
                    return true;
                }
                if seen.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        false
    };
    let mut edges = Vec::new();
    for room in rooms {
        for used in &room.uses {
            let follows = room.uses.iter().any(|other| other != used && reaches(other, used));
            if !follows {
                edges.push((room.name.as_str(), used.as_str()));
            }
        }
    }
    edges
}

/// Draws the house as an SVG file, with a title and a line of text below it.
pub fn svg(title: &str, subtitle: &str, rooms: &[Room]) -> String {
    let mut floors: BTreeMap<usize, Vec<&Room>> = BTreeMap::new();
    for room in rooms {
        floors.entry(room.floor).or_default().push(room);
    }
    let widest = floors.values().map(Vec::len).max().unwrap_or(1);
    let count = floors.keys().max().map_or(1, |top| top + 1);
    let width = 2 * MARGIN + widest * (BOX_WIDTH + GAP);
    let height = TITLE_HEIGHT + count * FLOOR_HEIGHT + MARGIN;
    // The left upper corner of each box.
    let mut corners: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (floor, rooms) in &floors {
        let free = width - 2 * MARGIN - rooms.len() * BOX_WIDTH;
        let gap = free / (rooms.len() + 1);
        let y = TITLE_HEIGHT + (count - 1 - floor) * FLOOR_HEIGHT + (FLOOR_HEIGHT - BOX_HEIGHT) / 2;
        for (at, room) in rooms.iter().enumerate() {
            corners.insert(&room.name, (MARGIN + gap + at * (BOX_WIDTH + gap), y));
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"{MARGIN}\" y=\"44\" fill=\"#555555\">{subtitle}</text>\n"
    );
    for floor in 0..=count {
        let y = TITLE_HEIGHT + floor * FLOOR_HEIGHT;
        let _ = writeln!(
            svg,
            "<line x1=\"0\" y1=\"{y}\" x2=\"{width}\" y2=\"{y}\" stroke=\"#dddddd\"/>"
        );
    }
    let floor_of: BTreeMap<&str, usize> =
        rooms.iter().map(|room| (room.name.as_str(), room.floor)).collect();
    for (from, to) in direct_edges(rooms) {
        let ((x1, y1), (x2, y2)) = (corners[from], corners[to]);
        let (x1, x2) = (x1 + BOX_WIDTH / 2, x2 + BOX_WIDTH / 2);
        let is_down = floor_of[to] < floor_of[from];
        let (y1, y2) = if is_down { (y1 + BOX_HEIGHT, y2) } else { (y1, y2) };
        let colour = if is_down { "#8a8a8a" } else { "#d02020" };
        let bend = FLOOR_HEIGHT / 3;
        let end = y2.saturating_sub(bend);
        let begin = if is_down { y1 + bend } else { y1.saturating_sub(bend) };
        let _ = writeln!(
            svg,
            "<path d=\"M{x1} {y1} C{x1} {begin} {x2} {end} {x2} {y2}\" fill=\"none\" \
             stroke=\"{colour}\"/>"
        );
    }
    for room in rooms {
        let (x, y) = corners[room.name.as_str()];
        let middle = x + BOX_WIDTH / 2;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"4\" \
             fill=\"{}\" stroke=\"#555555\"/>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" fill=\"#333333\">{} lines</text>",
            colour(&room.wing),
            y + 17,
            room.name,
            y + 33,
            grouped(room.lines)
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str, floor: usize, uses: &[&str]) -> Room {
        let uses = uses.iter().map(|&used| used.to_owned()).collect();
        Room { name: name.into(), wing: "space".into(), floor, lines: 1234, uses }
    }

    #[test]
    fn edges_that_follow_from_others_are_left_out() {
        let rooms = [room("a", 2, &["b", "c"]), room("b", 1, &["c"]), room("c", 0, &[])];
        assert_eq!(direct_edges(&rooms), [("a", "b"), ("b", "c")]);
    }

    #[test]
    fn every_room_is_drawn_once() {
        let rooms = [room("a", 1, &["b"]), room("b", 0, &[])];
        let svg = svg("House", "two crates", &rooms);
        assert_eq!(svg.matches("1,234 lines").count(), 2);
        assert_eq!(svg.matches("<path").count(), 1);
    }
}
