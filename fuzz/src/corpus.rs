//! The kept inputs: `corpus/TARGET/` has seeds and inputs that reach more code, `findings/TARGET/`
//! has inputs that once failed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::target::Target;

/// Returns the directory of this crate.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory of a target's corpus.
pub fn directory(target: &Target) -> PathBuf {
    root().join("corpus").join(target.name)
}

/// Returns the names of files in a directory of this crate, in order, and their contents.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("a directory entry").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        (name, bytes)
    };
    paths.into_iter().map(read).collect()
}

/// Returns the corpus of a target.
pub fn kept(target: &Target) -> Vec<(String, Vec<u8>)> {
    files(&directory(target))
}

/// Returns the inputs with which a target once failed.
pub fn findings(target: &Target) -> Vec<(String, Vec<u8>)> {
    files(&root().join("findings").join(target.name))
}

/// Writes the seeds of a target into its corpus. Returns their number.
///
/// # Errors
/// A file cannot be written.
pub fn write_seeds(target: &Target) -> std::io::Result<usize> {
    let directory = directory(target);
    fs::create_dir_all(&directory)?;
    let seeds = (target.seeds)();
    for (name, bytes) in &seeds {
        fs::write(directory.join(format!("seed-{name}")), bytes)?;
    }
    Ok(seeds.len())
}
