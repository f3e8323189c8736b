//! The floors of the house, and the floor of each crate.

use std::collections::BTreeMap;

use crate::workspace::Member;

/// The floors, from the ground. A crate may use those of the floors below its own.
pub const FLOORS: &[&[&str]] = &[
    &[
        "sync",
        "layout",
        "proc",
        "coherence",
        "figure",
        "skip",
        "house",
        "loaded",
        "traffic",
        "settings",
    ],
    &["gate", "pager", "net", "sim", "outbox", "shmem-wire"],
    &["loader", "control", "launch", "node"],
    &["pvas"],
    &["fcp"],
    &["fcp-classic", "pvm", "cluster", "delegate", "memop"],
    &["dsm", "span", "xpmem", "ofi", "coll", "shmem", "libtraffic", "libfcp", "libpvm3", "server"],
    &["libjia", "pvmd", "libgpvm3", "paths"],
    &["nagaya"],
    &["bench", "fuzz", "tests"],
];

/// Returns the floor of a package in [`FLOORS`].
pub fn floor(package: &str) -> Option<usize> {
    let name = package.strip_prefix("nagaya-").unwrap_or(package);
    FLOORS.iter().position(|floor| floor.contains(&name))
}

/// Returns the floor of each member, by name.
///
/// If a member is not in [`FLOORS`], as in an older state of the workspace, the floor of a crate is
/// the length of its longest chain of dependencies.
pub fn floors(members: &[Member]) -> BTreeMap<String, usize> {
    let listed = members.iter().map(|one| Some((one.name().to_owned(), floor(one.name())?)));
    if let Some(listed) = listed.collect() {
        return listed;
    }
    let mut depths: BTreeMap<String, usize> =
        members.iter().map(|one| (one.name().to_owned(), 0)).collect();
    // A chain has at most as many crates as there are.
    for _ in members {
        for member in members {
            let below = member.uses(members).iter().map(|used| depths[used] + 1).max();
            depths.insert(member.name().to_owned(), below.unwrap_or(0));
        }
    }
    depths
}
