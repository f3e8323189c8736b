//! `c/memory.c` on the host, over a made-up kernel: the bitmap against a simple model. Set
//! `NAGAYA_SEED` to repeat a run.

use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

mod driver;

fn model() -> &'static Path {
    static DRIVER: OnceLock<std::path::PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| driver::compile("memory_model"))
}

/// Several runs of one kind, each with its own seed.
fn run(kind: &str, runs: u64, operations: u64) {
    let first = match std::env::var("NAGAYA_SEED") {
        Ok(text) => text.parse().expect("NAGAYA_SEED is a number"),
        Err(_) => std::hash::RandomState::new().build_hasher().finish() >> 32,
    };
    println!("NAGAYA_SEED={first}");
    for seed in first..first + runs {
        let mut command = Command::new(model());
        driver::succeed(command.args([kind, &seed.to_string(), &operations.to_string()]));
    }
}

#[test]
fn the_bitmap_tells_mapped_pages() {
    run("alone", 20, 3000);
}

#[test]
fn mappings_that_did_not_come_through_the_gate_stay() {
    run("foreign", 20, 3000);
}

#[test]
fn no_page_is_given_to_two_threads() {
    run("threads", 20, 20_000);
}

#[test]
fn memory_is_given_back_once_and_before_others_have_it() {
    run("shared", 20, 3000);
    run("shared-threads", 20, 20_000);
}

#[test]
fn gaps_at_word_borders_are_found_and_taken_whole() {
    driver::succeed(Command::new(model()).arg("borders"));
}
