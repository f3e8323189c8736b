//! The house rules that a program can check: crate floors, module cycles, sizes, messages, waits,
//! the paths and links of documents, and the symbols that man pages name.
//!
//! Each rule has a list of exceptions, the debts of older code. A list only shrinks: a test fails
//! when a new exception appears, and also when a listed one is gone, so that its entry is removed.

mod crates;
mod documents;
mod links;
mod manuals;
mod messages;
mod modules;
mod sizes;
mod skips;
mod sources;
mod waits;

/// Compares the exceptions that a check found with the listed ones.
///
/// # Panics
/// With one line for each difference, with the remedy.
fn assert_only(found: &[String], listed: &[&str], rule: &str) {
    let mut differences = Vec::new();
    for new in found.iter().filter(|new| !listed.contains(&new.as_str())) {
        differences.push(format!("breaks the rule: {new}"));
    }
    for gone in listed.iter().filter(|gone| !found.iter().any(|one| one == **gone)) {
        differences.push(format!("no exception any more, remove it from the list: {gone}"));
    }
    assert!(differences.is_empty(), "{rule}\n  {}", differences.join("\n  "));
}
