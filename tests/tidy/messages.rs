//! Messages on standard error go through `proc::stderr`, each in one write: otherwise lines of
//! several processes mix.

use crate::assert_only;
use crate::sources::{files, members, text};

/// Files that pass on the output of others, or look whether their own has been read.
const EXCEPTIONS: &[&str] = &[
    "cli/src/run/streams.rs",
    "memory/cluster/src/tasks.rs",
    "memory/dsm/src/error.rs",
    "net/src/pmi_client.rs",
    "space/proc/src/stderr.rs",
];

/// Crates that no user's process runs.
const NO_PRODUCTS: &[&str] = &["bench", "fuzz", "tests", "tests/skip", "tools/house"];

#[test]
fn products_write_messages_to_stderr_in_one_piece() {
    let mut found = Vec::new();
    for member in members() {
        if NO_PRODUCTS.contains(&member.directory.as_str()) {
            continue;
        }
        for path in files(&member.directory, &["rs"]) {
            let text = text(&path);
            let writes =
                ["eprint!", "eprintln!", "io::stderr()"].iter().any(|it| text.contains(it));
            if writes && !path.contains("/tests/") {
                found.push(path);
            }
        }
    }
    assert_only(&found, EXCEPTIONS, "write messages with proc::error_line");
}
