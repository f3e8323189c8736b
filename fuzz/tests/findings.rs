//! The inputs with which targets once failed, each as a test. The files are in
//! `findings/TARGET/NAME`.

use std::path::PathBuf;

use fuzz::corpus;
use fuzz::targets::{TARGETS, named};
use fuzz::watch::Watch;

/// Runs a target on an input that once failed.
#[track_caller]
fn run(target: &str, name: &str) {
    let target = named(target).expect("a target");
    let found = corpus::findings(target).into_iter().find(|(found, _)| found == name);
    let (_, input) = found.unwrap_or_else(|| panic!("findings/{}/{name} is missing", target.name));
    Watch::new(target, PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).run(name, &input);
}

macro_rules! findings {
    ($($target:ident: $($(#[doc = $doc:literal])+ $name:ident),+;)+) => {
        $($($(#[doc = $doc])+ #[test] fn $name() { run(stringify!($target), stringify!($name)); })+)+

        /// The tests above.
        const TESTED: &[(&str, &str)] = &[$($((stringify!($target), stringify!($name))),+),+];
    };
}

findings! {
    fabric:
        /// A peer that holds the secret says bye twice, and both byes wait for an earlier message.
        second_bye;
    gate_filter:
        /// A jump by almost 2^32 instructions led back, and the gate never returned.
        jump_to_itself,
        /// The kernel ends the filter then, and the gate went on.
        division_by_zero;
    pmix:
        /// PMIx gives a null pointer for an absent string.
        string_without_memory,
        /// The same for bytes.
        bytes_without_memory;
    recording:
        /// The replay had an entry for each of 2^35 pages.
        allocation_without_end;
    smaps:
        /// A task can write the start of its heap, by which the node server cut mappings.
        heap_in_the_export_area,
        /// No kernel writes that, but the parts of a mapping overflowed.
        mapping_that_ends_before_it_starts;
    span:
        /// The field for the bytes of vector registers was not compared with these.
        length_of_registers;
    span_text:
        /// The offset of a page overflowed.
        offset_near_the_largest_number,
        /// So did the offset of the rest of a range.
        range_cut_near_the_largest_number;
}

/// Each range of a list took memory, even if it repeated another, and a list may have many.
#[test]
fn a_list_names_no_more_processors_than_there_can_be() {
    use launch::placement::Domains;
    let parse = |text: &str| text.parse::<Domains>();
    assert!(parse("0-65535:1").is_ok() && parse("0-3,2-5:1").is_ok());
    for text in ["0-65535,0-65535:1", "0-65535,7:1", "0-65536:1"] {
        let line = parse(text).expect_err(text);
        assert!(line.contains("no processors"), "{line}");
    }
}

#[test]
fn all_findings_are_tests() {
    for target in TARGETS {
        for (name, _) in corpus::findings(target) {
            assert!(TESTED.contains(&(target.name, &*name)), "findings/{}/{name}", target.name);
        }
    }
}
