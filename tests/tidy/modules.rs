//! Modules within a crate have no cycles.

use house::modules::{cyclic, cyclic_edges, graph};

use crate::assert_only;
use crate::sources::members;

/// Crates that still have cycles, and how many of their modules lie on one. To be cut.
const EXCEPTIONS: &[&str] = &[];

#[test]
fn modules_have_no_cycles() {
    let mut found = Vec::new();
    for member in members() {
        let graph = graph(&member);
        let cyclic = cyclic(&graph);
        if cyclic.is_empty() {
            continue;
        }
        found.push(format!("{}: {} modules", member.name(), cyclic.len()));
        // Shown with --nocapture: the edges to cut.
        for (name, used) in cyclic_edges(&graph) {
            println!("{}: {} uses {}", member.name(), name.join("::"), used.join("::"));
        }
    }
    assert_only(&found, EXCEPTIONS, "modules within a crate have no cycles");
}
