//! The library as C programs see it: the header compiles in C and C++, the library has
//! its calls and no others, and they do what it says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the library is: in `NAGAYA_BIN_DIR`, or where Cargo has put it.
fn libraries() -> PathBuf {
    let exe = std::env::current_exe().expect("our own path");
    let cargos = || exe.ancestors().nth(2).expect("target/…/deps").to_owned();
    let directory = std::env::var_os("NAGAYA_BIN_DIR").map_or_else(cargos, PathBuf::from);
    let there = directory.join("libfcp.so").exists();
    assert!(there, "no libfcp.so in {}: cargo build -p nagaya-libfcp first", directory.display());
    directory
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}

/// The calls that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("include/fcp.h")).expect("the header");
    let comment = |line: &&str| !line.starts_with(" *") && !line.starts_with("/*");
    let code: String = header.lines().filter(comment).collect::<Vec<_>>().join("\n");
    let before = code.split('(').map(|text| {
        text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
    });
    before.filter(|n| n.starts_with("FCP_") || n.starts_with("VCL_")).map(str::to_owned).collect()
}

#[test]
fn the_library_has_the_calls_of_the_header_and_no_others() {
    let library = libraries().join("libfcp.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let has: BTreeSet<_> =
        symbols.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
    assert_eq!(has, declared());
    let dynamic = run(Command::new("readelf").arg("-d").arg(library));
    assert!(dynamic.contains("soname: [libfcp.so.0]"), "{dynamic}");
}

#[test]
fn the_calls_do_what_the_header_says() {
    let directory = std::env::temp_dir().join(format!("fcp-c-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a new directory");
    let program = directory.join("contract");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contract.c");
    let include = root().join("include");
    run(Command::new("gcc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-I")
        .arg(&include)
        .arg(libraries().join("libfcp.so")));
    // Its soname is what the program asks for.
    std::os::unix::fs::symlink(libraries().join("libfcp.so"), directory.join("libfcp.so.0"))
        .expect("a link");
    run(Command::new(program).arg(&directory).env("LD_LIBRARY_PATH", &directory));
    run(Command::new("g++")
        .args(["-x", "c++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
        .arg(include.join("fcp.h")));
    std::fs::remove_dir_all(directory).expect("removed");
}
