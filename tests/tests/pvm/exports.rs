//! Our libpvm3 exports what stock PVM's does.

use std::collections::BTreeSet;

use nagaya_tests::{Cmd, program};

/// What of libpvm's own names programs use, besides those that begin with `pvm_`.
const INTERNAL: [&str; 7] = [
    "lpvmerr",
    "pvmctrc",
    "pvmdisplaymhfinfo",
    "pvmgetclock",
    "pvmmyctx",
    "pvmnametag",
    "pvmsleep",
];

fn exports(library: &str) -> BTreeSet<String> {
    let listing = Cmd::new("nm").args(["-D", "--defined-only", library]).run().ok();
    listing.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_string).collect()
}

#[test]
fn every_name_of_libpvm3_is_there_and_no_other_that_begins_like_one() {
    let stock = Cmd::new("gcc").arg("-print-file-name=libpvm3.so").run().ok();
    let (stock, ours) =
        (exports(stock.trim()), exports(&program::library("pvm3").display().to_string()));
    let names = |all: &BTreeSet<String>| -> BTreeSet<String> {
        all.iter().filter(|name| name.starts_with("pvm_")).cloned().collect()
    };
    assert_eq!(names(&ours), names(&stock));
    assert!(names(&stock).len() > 110);
    for name in INTERNAL {
        assert!(stock.contains(name) && ours.contains(name), "{name}");
    }
}
