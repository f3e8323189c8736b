//! Tables, targets and `shmem.csv`.

use std::collections::BTreeMap;
use std::path::Path;

use super::layout::Layout;
use super::side::Side;
use crate::failure::Failure;
use crate::ranks::oversubscribed;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{self, Bound, Target};

/// Operation and bytes, in the order of the program.
pub type Operation = (usize, String, usize);
/// Times in ns, one per round.
pub type Measured = BTreeMap<(Layout, Operation, Side), Vec<f64>>;

/// The targets within a node: operation, bytes, whether the limit is compared with instead of the
/// best peer, and the bound of the ratio of times. With peers it is theirs divided by Nagaya's,
/// with the limit the reverse.
const WITHIN_A_NODE: [(&str, usize, bool, Bound); 12] = [
    ("put", 8, true, Bound::AtMost(1.2)),
    ("get", 8, true, Bound::AtMost(1.2)),
    ("fetch-add", 8, true, Bound::AtMost(1.2)),
    ("put", 1 << 20, true, Bound::AtMost(1.1)),
    ("put-rate", 8, false, Bound::AtLeast(2.0)),
    ("barrier", 0, false, Bound::AtLeast(1.5)),
    ("reduce", 8, false, Bound::AtLeast(1.5)),
    ("reduce", 8192, false, Bound::AtLeast(1.5)),
    ("broadcast", 8192, false, Bound::AtLeast(1.0)),
    ("gups", 8, false, Bound::AtLeast(1.3)),
    ("gups-atomic", 8, false, Bound::AtLeast(1.3)),
    ("sort", 2 << 20, false, Bound::AtLeast(1.3)),
];

/// The operations that are no slower than the best peer's between nodes.
const BETWEEN_NODES: [(&str, usize); 8] = [
    ("put", 8),
    ("get", 8),
    ("fetch-add", 8),
    ("put", 1 << 20),
    ("put+quiet", 8),
    ("put-rate", 8),
    ("barrier", 0),
    ("reduce", 8),
];

/// Prints a table for each layout, and the targets. Writes the CSV files.
pub fn write(measured: &Measured, layouts: &[Layout], out: &Path) -> Result<(), Failure> {
    let mut lines = vec!["nodes,pes,operation,bytes,library,ns,ns_min,ns_max".to_string()];
    for ((Layout { nodes, pes }, (_, operation, bytes), side), times) in measured {
        let Spread { median, min, max } = Spread::of(times);
        let name = side.name();
        lines.push(format!(
            "{nodes},{pes},{operation},{bytes},{name},{median:.2},{min:.2},{max:.2}"
        ));
    }
    write_lines(&out.join("shmem.csv"), &lines)?;
    let mut targets = Vec::new();
    for &layout in layouts {
        print_table(measured, layout);
        if layout.nodes == 2 {
            let of = |&it| target(measured, layout, it, false, Bound::AtLeast(1.0));
            targets.extend(BETWEEN_NODES.iter().map(of));
            continue;
        }
        for (operation, bytes, is_limit, bound) in WITHIN_A_NODE {
            if is_limit && layout.pes != 2 {
                continue;
            }
            targets.push(target(measured, layout, (operation, bytes), is_limit, bound));
        }
    }
    target::report("OpenSHMEM", &targets, &out.join("shmem-targets.csv"))
}

fn times<'a>(
    measured: &'a Measured,
    layout: Layout,
    (operation, bytes): (&str, usize),
    side: Side,
) -> Option<&'a [f64]> {
    let is_it = |key: &&(Layout, Operation, Side)| {
        key.0 == layout && key.1.1 == operation && key.1.2 == bytes && key.2 == side
    };
    measured.keys().find(is_it).map(|key| measured[key].as_slice())
}

fn target(
    measured: &Measured,
    layout: Layout,
    operation: (&str, usize),
    is_limit: bool,
    bound: Bound,
) -> Target {
    let of = |side| times(measured, layout, operation, side);
    let ours = of(Side::Nagaya);
    let of_rounds = |above: &[f64], below: &[f64]| {
        (above.len() == below.len()).then(|| Spread::of_quotients(above, below))
    };
    let (against, ratio) = match is_limit {
        true => {
            let limit = of(Side::Limit);
            ("the limit", ours.zip(limit).and_then(|(ours, limit)| of_rounds(ours, limit)))
        }
        false => {
            let peers = sides(measured, layout).into_iter().filter(|side| side.is_peer());
            let times = peers.filter_map(of);
            let best = times.min_by(|a, b| Spread::of(a).median.total_cmp(&Spread::of(b).median));
            ("the best peer", ours.zip(best).and_then(|(ours, best)| of_rounds(best, ours)))
        }
    };
    let ((name, bytes), layout) = (operation, layout.name());
    Target { what: format!("{name}, {bytes} B, {layout}: {against}"), bound, ratio }
}

/// Returns the sides that were measured with a layout.
fn sides(measured: &Measured, layout: Layout) -> Vec<Side> {
    let mut sides: Vec<Side> =
        measured.keys().filter(|key| key.0 == layout).map(|key| key.2).collect();
    sides.sort();
    sides.dedup();
    sides
}

fn print_table(measured: &Measured, layout: Layout) {
    let sides = sides(measured, layout);
    let names: Vec<String> = sides.iter().map(|side| side.name()).collect();
    let headings = ["operation", "bytes"].into_iter().chain(names.iter().map(String::as_str));
    let mut table = Table::new(headings);
    let mut operations: Vec<&Operation> =
        measured.keys().filter(|key| key.0 == layout).map(|key| &key.1).collect();
    operations.dedup();
    for (_, operation, bytes) in operations {
        let mut row = vec![operation.clone(), bytes.to_string()];
        for side in &sides {
            let times = times(measured, layout, (operation, *bytes), *side);
            row.push(times.map_or(String::new(), |it| three_digits(Spread::of(it).median)));
        }
        table.row(row);
    }
    let crowded = oversubscribed(layout.pes as usize);
    table.print(&format!("OpenSHMEM, {}{crowded}; ns", layout.name()));
}
