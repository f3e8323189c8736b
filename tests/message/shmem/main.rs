//! OpenSHMEM: the programs of `programs/shmem/` under each launcher. The commands `oshcc` and
//! `oshrun` of the build directory compile and start them.

mod chaos;
mod chapters;
mod collectives;
mod errors;
mod header;
mod launchers;
mod wrappers;

use std::path::PathBuf;

use nagaya_tests::{Cmd, program};

/// A program of `programs/shmem/`, compiled by `oshcc`, or by `oshc++` if its name ends in `.cc`.
fn compiled(source: &str, flags: &[&str]) -> PathBuf {
    let name = if source.ends_with(".cc") { "oshc++" } else { "oshcc" };
    let compiler = program::shmem_tool(name);
    let flags = [&["-pthread", "-Wextra", "-Wno-unused-parameter", "-Werror"], flags].concat();
    program::build(compiler.to_str().expect("UTF-8"), &format!("shmem/{source}"), &flags)
}

/// The program with `n` PEs on this machine.
fn oshrun(n: usize, program: &PathBuf) -> Cmd {
    Cmd::new(program::shmem_tool("oshrun")).args(["-n", &n.to_string()]).arg(program)
}
