//! Compiles the programs of `tests/programs/`, once for each source and set of flags.
//!
//! The name of a build's directory contains a hash of its inputs, so no build is stale. A lock
//! file separates test executables that run at once.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::command::Cmd;
use crate::directories::{bin_dir, scratch_dir};

/// The directory of the programs' sources.
pub fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The repository's `include/`.
pub fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include")
}

/// A C program.
pub fn c(source: &str) -> PathBuf {
    build("gcc", source, &["-pthread"])
}

/// A C program, with flags.
pub fn c_with(source: &str, flags: &[&str]) -> PathBuf {
    build("gcc", source, flags)
}

/// A C program linked with `libpvas.so` as it lies in [`bin_dir`].
pub fn c_pvas(source: &str) -> PathBuf {
    c_with_libraries(source, &["pvas"])
}

/// A C program linked with libraries of Nagaya's.
pub fn c_with_libraries(source: &str, names: &[&str]) -> PathBuf {
    let flags = library_flags(names);
    let mut all = vec!["-pthread"];
    all.extend(flags.iter().map(String::as_str));
    build("gcc", source, &all)
}

/// Returns the compiler flags for these libraries of Nagaya.
pub fn library_flags(names: &[&str]) -> Vec<String> {
    let libraries = libraries();
    let mut flags = vec![
        format!("-I{}", include_dir().display()),
        format!("-L{}", libraries.display()),
        format!("-Wl,-rpath,{}", libraries.display()),
    ];
    flags.extend(names.iter().map(|name| format!("-l{name}")));
    flags
}

/// A program of PVM, linked with stock PVM's libraries: which run is for `LD_LIBRARY_PATH` to
/// say.
pub fn c_pvm(source: &str, flags: &[&str]) -> PathBuf {
    let include = format!("-I{}", include_dir().join("pvm3").display());
    let mut all = vec!["-pthread", &include, "-lgpvm3", "-lpvm3"];
    all.extend(flags);
    build("gcc", source, &all)
}

/// Returns a directory in which Nagaya's libraries have the names for the linker and the dynamic
/// linker; cargo gives them only the first.
pub fn libraries() -> PathBuf {
    let names = ["pvas", "pvas_delegate", "xpmem", "fcp", "jia", "memop"];
    let mut libraries = names.map(|name| (name, library(name))).to_vec();
    libraries.push(("nagaya-shmem", library("nagaya_shmem")));
    linked("lib", &libraries, 0)
}

/// The same for PVM's libraries.
pub fn pvm_libraries() -> PathBuf {
    let libraries = ["pvm3", "gpvm3"].map(|name| (name, library(name)));
    linked("pvm-lib", &libraries, 3)
}

/// A library of Nagaya's, as cargo has built it.
///
/// # Panics
/// If it is missing.
pub fn library(name: &str) -> PathBuf {
    let file = bin_dir().join(format!("lib{name}.so"));
    assert!(
        file.exists(),
        "{} is missing: run `cargo build --workspace` first, or set NAGAYA_BIN_DIR",
        file.display()
    );
    file
}

/// A directory with links to libraries, as the linker names them and with a version.
fn linked(directory: &str, libraries: &[(&str, PathBuf)], version: u32) -> PathBuf {
    made_once(directory, &libraries, |path| {
        fs::create_dir(path).expect("make a directory");
        for (name, file) in libraries {
            for link in [format!("lib{name}.so"), format!("lib{name}.so.{version}")] {
                std::os::unix::fs::symlink(file, path.join(link)).expect("make a link");
            }
        }
    })
}

/// A command of OpenSHMEM in the build directory: `oshcc`, `oshc++` or `oshrun`.
///
/// # Panics
/// If it is missing.
pub fn shmem_tool(name: &str) -> PathBuf {
    let tool = bin_dir().join("shmem/bin").join(name);
    assert!(tool.exists(), "{} is missing: build the workspace first", tool.display());
    tool
}

/// The smallest program there is: `_start` calls exit(0). Static PIE, no libc.
pub fn tiny() -> PathBuf {
    c_with("exit_at_once.c", &["-static-pie", "-nostdlib", "-fno-stack-protector"])
}

/// Compiles `programs/SOURCE` and returns the executable, named as the source is without
/// its ending.
pub fn build(compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let path = source_dir().join(source);
    let name = path.file_stem().expect("a source has a name").to_owned();
    made_once(&name.to_string_lossy(), &key(compiler, &path, flags), |output| {
        let command = Cmd::new(compiler)
            .args(["-g", "-O1", "-Wall", "-o"])
            .arg(output)
            .arg(&path)
            .args(flags);
        command.run().ok();
    })
}

/// Returns a hash of the inputs of a build.
fn key(compiler: &str, source: &Path, flags: &[&str]) -> u64 {
    let read =
        |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut hasher = DefaultHasher::new();
    compiler.hash(&mut hasher);
    flags.hash(&mut hasher);
    read(source).hash(&mut hasher);
    for header in [
        "check.h",
        "meet.h",
        "mpi_check.h",
        "span/check.h",
        "pvm/say.h",
        "shmem/generic.c",
        "../../examples/dsm/program.h",
    ] {
        read(&source_dir().join(header)).hash(&mut hasher);
    }
    for header in [
        "pvas.h",
        "pvas.hpp",
        "pvas_delegate.h",
        "pvas_delegate_mpi.h",
        "pvas_delegate_mpi_serve.h",
        "pvas_delegate_ucx.h",
        "pvas_delegate_ucx_serve.h",
        "xpmem.h",
        "fcp.h",
        "jia.h",
        "nagaya_dsm.h",
        "shmem.h",
        "nagaya_shmem_generic.h",
        "nagaya_shmem_overloads.h",
        "pvm3/pvm3.h",
        "pvm3/fpvm3.h",
    ] {
        read(&include_dir().join(header)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Makes a file or directory with `make`, unless this test, another, or an earlier run has made
/// it. `key` contains its inputs.
pub fn made_once(name: &str, key: &impl std::hash::Hash, make: impl FnOnce(&Path)) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let dir = scratch_dir().join(format!("{name}-{:016x}", hasher.finish()));
    let made = dir.join(name);

    fs::create_dir_all(&dir).expect("make a directory");
    let lock = File::create(dir.join("lock")).expect("make a lock file");
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("lock");
    if !made.exists() {
        let unfinished = dir.join(format!("{name}.unfinished"));
        let _ = fs::remove_dir_all(&unfinished);
        let _ = fs::remove_file(&unfinished);
        make(&unfinished);
        fs::rename(&unfinished, &made).expect("name what was made");
    }
    made
}
