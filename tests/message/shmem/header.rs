//! `shmem.h` declares what the library exports, and nothing else, under both prefixes.

use std::collections::BTreeSet;

use nagaya_tests::{Cmd, program, tool};

/// Deprecated functions without the prefix.
const PLAIN: [&str; 7] =
    ["start_pes", "_my_pe", "_num_pes", "shmalloc", "shfree", "shrealloc", "shmemalign"];

/// The functions that a header declares, by the compiler's list of prototypes.
fn declared(header: &str) -> BTreeSet<String> {
    let source = format!("#include <{header}>\n");
    let include = format!("-I{}", program::include_dir().display());
    let list = Cmd::new(tool("gcc"))
        .args(["-x", "c", &include, "-fsyntax-only", "-aux-info", "/dev/stdout", "-"])
        .stdin(source)
        .run()
        .ok();
    let is_ours = |line: &&str| line.contains(&format!("/{header}:"));
    let name = |line: &str| {
        let (before, _) = line.split_once("*/")?.1.split_once(" (")?;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    };
    list.lines().filter(is_ours).filter_map(name).collect()
}

fn exported() -> BTreeSet<String> {
    let library = program::library("nagaya_shmem");
    let listing = Cmd::new("nm").args(["-D", "--defined-only"]).arg(library).run().ok();
    listing.lines().filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect()
}

#[test]
fn the_library_exports_the_functions_of_the_header_and_no_others() {
    let (declared, exported) = (declared("shmem.h"), exported());
    assert!(declared.len() > 3000, "only {} functions were found", declared.len());
    let missing: Vec<&String> = declared.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    let stray: Vec<&String> = exported.difference(&declared).collect();
    assert!(stray.is_empty(), "not declared: {stray:?}");
}

#[test]
fn each_function_has_a_name_for_profiling_libraries() {
    let declared = declared("shmem.h");
    let (profiled, public): (BTreeSet<_>, BTreeSet<_>) =
        declared.into_iter().partition(|name| name.starts_with("pshmem_") || is_plain_p(name));
    let wanted: BTreeSet<String> = public.iter().map(|name| format!("p{name}")).collect();
    assert_eq!(profiled, wanted);
}

/// Returns true for `pstart_pes` and its like.
fn is_plain_p(name: &str) -> bool {
    name.strip_prefix('p').is_some_and(|rest| PLAIN.contains(&rest))
}
