//! Files that several tasks map at one address outside their segments: each gets the requested
//! mapping, and unused ones are unmapped.

use nagaya_tests::{Cmd, WorkDir, program, tasks};

/// In the window of the space, as PMIx's servers choose it on stock kernels; and beside
/// the libraries of the space's owner.
const ADDRESSES: [&str; 2] = ["0x3ff8b0000000", "0x7e0000000000"];

fn program() -> std::path::PathBuf {
    program::c_pvas("regions.c")
}

#[test]
fn a_file_is_shared_at_one_address() {
    for address in ADDRESSES {
        let dir = WorkDir::new();
        let file = dir.join("alone");
        Cmd::new(program()).arg(file).args(["1", address]).run().prints("shared\n");
        let file = dir.join("together");
        let run = tasks(4, program()).arg(file).args(["4", address]).run();
        run.prints(&"shared\n".repeat(4));
    }
}

#[test]
fn a_region_outlives_users_that_are_killed() {
    for address in ADDRESSES {
        let dir = WorkDir::new();
        let run = tasks(4, program()).arg(dir.join("file")).args(["4", address, "die"]).run();
        assert!(run.stdout == "outlived\n", "{run}");
    }
}
