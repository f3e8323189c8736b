//! The command `house`: draws the crates of a workspace, and prints their counts.
//!
//! ```text
//! cargo run -p nagaya-house -- WORKSPACE TITLE FILE.svg
//! ```
//!
//! It writes the drawing to the file, and a row of a Markdown table to standard output: the title,
//! crates, lines of product code, edges, edges that do not lead to a lower floor, and modules on
//! cycles. Benchmarks, tests and this tool are not part of the drawing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use house::drawing::{Room, grouped, svg};
use house::floors::floors;
use house::lines::product;
use house::modules::{cyclic, graph};
use house::workspace::{Member, members};

/// Directories of crates that are not part of the product.
const NO_PRODUCT: &[&str] = &["bench", "tests", "tests/skip", "tools/house", "fuzz"];

/// Returns the product's crates as rooms.
fn rooms(root: &Path, members: &[Member], floors: &BTreeMap<String, usize>) -> Vec<Room> {
    let directories: Vec<&str> = members.iter().map(|one| one.directory.as_str()).collect();
    let short = |name: &str| name.strip_prefix("nagaya-").unwrap_or(name).to_owned();
    let room = |member: &Member| {
        let below = format!("{}/", member.directory);
        let nested: Vec<&str> =
            directories.iter().copied().filter(|other| other.starts_with(&below)).collect();
        let wing = member.directory.split('/').next().unwrap_or_default();
        Room {
            name: short(member.name()),
            wing: wing.to_owned(),
            floor: floors[member.name()],
            lines: product(root, &member.directory, &nested),
            uses: member.uses(members).iter().map(|used| short(used)).collect(),
        }
    };
    members.iter().map(room).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workspace, title, file] = arguments.as_slice() else {
        eprintln!("usage: house WORKSPACE TITLE FILE.svg");
        return ExitCode::FAILURE;
    };
    let root = Path::new(workspace);
    let mut members = members(root);
    members.retain(|member| !NO_PRODUCT.contains(&member.directory.as_str()));
    let floors = floors(&members);
    let rooms = rooms(root, &members, &floors);

    let lines: usize = rooms.iter().map(|room| room.lines).sum();
    let edges: usize = rooms.iter().map(|room| room.uses.len()).sum();
    let on_floor: BTreeMap<&str, usize> =
        rooms.iter().map(|room| (room.name.as_str(), room.floor)).collect();
    let is_up = |room: &Room, used: &String| on_floor[used.as_str()] >= room.floor;
    let upward: usize =
        rooms.iter().map(|room| room.uses.iter().filter(|used| is_up(room, used)).count()).sum();
    let graphs = members.iter().map(graph);
    let on_cycles: usize = graphs.map(|graph| cyclic(&graph).len()).sum();

    let subtitle = format!(
        "{} crates, {} lines of product code, {edges} edges ({upward} not downwards), {on_cycles} \
         modules on cycles. Edges that follow from others are not drawn.",
        rooms.len(),
        grouped(lines)
    );
    if let Err(error) = std::fs::write(file, svg(title, &subtitle, &rooms)) {
        eprintln!("house: {file}: {error}");
        return ExitCode::FAILURE;
    }
    println!(
        "| {title} | {} | {} | {edges} | {upward} | {on_cycles} |",
        rooms.len(),
        grouped(lines)
    );
    ExitCode::SUCCESS
}
