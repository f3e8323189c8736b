//! Tests report by the crate `skip` that they did not run, so that `NAGAYA_TESTS_NO_SKIP` governs
//! all of them.

use crate::sources::{files, members, text};

#[test]
fn tests_report_by_the_crate_skip_that_they_did_not_run() {
    let mut found = Vec::new();
    for member in members() {
        for path in files(&member.directory, &["rs"]) {
            for (number, line) in (1..).zip(text(&path).lines()) {
                let line = line.to_lowercase();
                let is_print = ["println!(\"skip", "writeln!(", "nagaya_tests_no_skip\""];
                if is_print.iter().any(|it| line.contains(it)) && line.contains("skip") {
                    found.push(format!("{path}:{number}"));
                }
            }
        }
    }
    // The crate itself, and this file, which contains the searched names.
    let own = ["tests/skip/", "tests/tidy/skips.rs:"];
    found.retain(|place| !own.iter().any(|it| place.starts_with(it)));
    found.dedup();
    assert!(found.is_empty(), "use skip::because or skip::machine_lacks: {found:?}");
}
