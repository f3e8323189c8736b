//! Our libpvm3 and libgpvm3 export what stock PVM's do.

use std::collections::BTreeSet;

use nagaya_tests::pvm::Machine;
use nagaya_tests::{Cmd, program, tool};

/// The names of libpvm that programs use, besides those that begin with `pvm_`.
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

/// The functions of the group server's clients.
const OF_THE_SERVER: [&str; 2] = ["gs_getgstid", "pvmgs_tmout"];

#[test]
fn every_call_of_libgpvm3_is_there_and_the_group_servers_clients_end_with_a_line() {
    let stock = Cmd::new("gcc").arg("-print-file-name=libgpvm3.so").run().ok();
    let (stock, ours) =
        (exports(stock.trim()), exports(&program::library("gpvm3").display().to_string()));
    let calls = |all: &BTreeSet<String>| -> BTreeSet<String> {
        let is_call = |name: &str| name.starts_with("pvm_") || name.starts_with("Pvm");
        // That one prints the server's tables into the daemon's log; no header declares it.
        all.iter().filter(|name| is_call(name) && *name != "pvm_gsdump").cloned().collect()
    };
    assert_eq!(calls(&ours), calls(&stock));
    assert_eq!(calls(&stock).len(), 17);
    for name in OF_THE_SERVER {
        assert!(stock.contains(name) && ours.contains(name), "{name}");
    }
    let machine = Machine::ours(&[]);
    for (client, line) in [
        ("pvm_gstat", "pvm_gstat: no groups server\n"),
        // It does not look.
        ("pvmgroups", "libpvm [t40002]: pvm_send(): Bad parameter\n"),
    ] {
        let said = machine.task(tool(client)).run();
        assert!(said.stderr.ends_with(line), "{client}: {said:?}");
    }
}
