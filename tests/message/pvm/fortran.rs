//! Programs in Fortran. Nagaya's libfpvm3 behaves as Debian's, over the same library and daemon.
//! Debian's over Nagaya's library behaves as over stock PVM's.

use std::path::{Path, PathBuf};

use nagaya_tests::pvm::{Machine, libfpvm3_dir};
use nagaya_tests::{Cmd, program, same_lines};

/// The program that makes every call, built with one header and one library.
fn built(header: &Path, library: &str) -> PathBuf {
    let include = format!("-I{}", header.display());
    // Calls of one subroutine differ in their arguments' types, as PVM wants it.
    let flags = ["-std=legacy", "-w", &include, library, "-lgpvm3", "-lpvm3"];
    program::build("gfortran", "pvm/fortran.f", &flags)
}

/// Returns the output of a program as a task.
fn printed(program: &Path, machine: impl FnOnce(&[&Path]) -> Machine) -> String {
    let machine = machine(&[program.parent().expect("a directory")]);
    machine.task(program).run().ok()
}

#[test]
fn a_program_prints_over_ours_what_it_prints_over_stock_pvm() {
    let program = built("/usr/include".as_ref(), "-lfpvm3");
    let stock = printed(&program, Machine::stock);
    assert!(stock.ends_with("halted\n"), "{stock}");
    same_lines("fortran", &printed(&program, Machine::ours), &stock);
    same_lines("fortran in a space", &printed(&program, Machine::in_space), &stock);
}

#[test]
fn every_call_does_what_debians_does() {
    let ours = libfpvm3_dir().join("libfpvm3.a").display().to_string();
    let ours = printed(&built(&program::include_dir().join("pvm3"), &ours), Machine::stock);
    let stock = printed(&built("/usr/include".as_ref(), "-lfpvm3"), Machine::stock);
    assert!(stock.ends_with("halted\n"), "{stock}");
    // A star marks defects there. pvmffreecontext makes the context the current one.
    // pvmfgetmboxinfo never returns the number of mailboxes or a failed search, and always finds
    // the first one.
    let shared = |text: &str| -> String {
        text.lines()
            .filter(|line| !line.starts_with('*'))
            .map(|line| line.to_owned() + "\n")
            .collect()
    };
    same_lines("libfpvm3", &shared(&ours), &shared(&stock));
    let better: Vec<_> = ours.lines().filter(|line| line.starts_with('*')).collect();
    let wanted = ["* freecontext 0", "* was in 0", "* fbox1 2 1", "* fbox2 2 1", "* fbox2 2 -32"];
    assert_eq!(better, wanted);
}

/// The subroutines that a library has.
fn subroutines(archive: &str) -> Vec<String> {
    let symbols = Cmd::new("nm").args(["--defined-only", archive]).run().ok();
    let mut names: Vec<_> = symbols
        .lines()
        .filter_map(|line| Some(line.split_once(" T ")?.1.strip_suffix('_')?.to_owned()))
        .collect();
    names.sort();
    names
}

#[test]
fn every_subroutine_of_debians_is_there_and_called() {
    let stock = subroutines("/usr/lib/x86_64-linux-gnu/libfpvm3.a");
    assert!(stock.len() > 60, "{stock:?}");
    let ours = libfpvm3_dir().join("libfpvm3.a").display().to_string();
    assert_eq!(subroutines(&ours), stock);
    let program = include_str!("../../programs/pvm/fortran.f").to_ascii_lowercase();
    for name in stock {
        assert!(program.contains(&name), "{name} is not tested");
    }
}
