//! The paths that documents name exist, and README is short.

use std::path::Path;

use crate::sources::{files, root, text};

/// The documents that are checked.
const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/bindings.md",
    "docs/coherence.md",
    "docs/fuzzing.md",
    "docs/house.md",
    "docs/install.md",
    "docs/memory.md",
    "docs/message.md",
    "docs/mpi-libraries.md",
    "docs/net.md",
    "docs/pvm.md",
    "docs/reader.md",
    "docs/simulator.md",
    "docs/space.md",
    "docs/span.md",
    "docs/tutorials/teaching.md",
];

/// Returns the source paths between backquotes in a text, such as `agent/pages.rs`.
fn paths(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    let is_path = |span: &&str| {
        let extension = Path::new(span).extension().and_then(|one| one.to_str());
        extension.is_some_and(|one| ["rs", "c", "h", "S", "md"].contains(&one))
            && span.chars().all(|one| one.is_ascii_alphanumeric() || "/._-".contains(one))
            && span.contains(|one: char| one.is_ascii_alphanumeric())
            && !span.starts_with('.')
            && !span.starts_with('/')
    };
    spans.filter(is_path).map(str::to_owned).collect()
}

#[test]
fn documents_name_only_files_that_exist() {
    let wings = [
        "sync", "net", "launch", "space", "memory", "message", "tools", "cli", "bench", "fuzz",
        "tests", "include", "examples",
    ];
    let all: Vec<String> =
        wings.iter().flat_map(|wing| files(wing, &["rs", "c", "h", "S", "md"])).collect();
    let exists = |path: &str| {
        // Documents give a path within a crate or its source: `server/block.rs`, `agent/pages.rs`.
        let name = path.rsplit('/').next().expect("a name");
        let parts: Vec<&str> = path.split('/').collect();
        root().join(path).exists()
            || all.iter().any(|file| {
                let file: Vec<&str> = file.split('/').collect();
                let mut rest = parts.iter().rev();
                let same = file.last() == Some(&name);
                // Each directory of the path is one of the file's, in the same order.
                rest.next();
                let mut directories = file.iter().rev().skip(1);
                same && rest.all(|part| directories.any(|one| one == part))
            })
    };
    for document in DOCUMENTS {
        let text = text(document);
        let missing: Vec<String> = paths(&text).into_iter().filter(|path| !exists(path)).collect();
        assert!(missing.is_empty(), "{document} names files that do not exist: {missing:?}");
    }
}

#[test]
fn readme_fits_a_screen() {
    // With the markup of links and tables. Longer text belongs on a page in docs/.
    let words = text("README.md").split_whitespace().count();
    assert!(words <= 540, "README.md has {words} words");
}
