//! Compiles a C driver of `tests/c/`, which includes files of the gate, for the host.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The compiled driver: undefined behaviour ends it.
pub fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let driver = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    command.args(["-fsanitize=undefined", "-fno-sanitize-recover=all", "-o"]);
    succeed(command.arg(&driver).arg(&source));
    driver
}

/// Returns the output of the command.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let Output { status, stdout, stderr } = output;
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}
