//! A position-independent CPython. Debian's and Ubuntu's `/usr/bin/python3` is not PIE; their
//! `libpython3` is, and a main function of one line makes a `python3` of it.

use std::path::PathBuf;

use crate::program::{build, made_once};
use crate::{Cmd, task};

/// The distribution's own interpreter: its pip and its `libpython3` belong together, whatever PATH
/// contains.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// A `python3` that is PIE.
pub fn interpreter() -> PathBuf {
    let config = |option: &str| {
        let command = Cmd::new("/usr/bin/python3-config").args([option, "--embed"]);
        command.run().ok()
    };
    let (includes, libraries) = (config("--includes"), config("--ldflags"));
    let mut flags = vec!["-fPIE", "-pie"];
    flags.extend(includes.split_whitespace());
    flags.extend(libraries.split_whitespace());
    build("gcc", "python3.c", &flags)
}

/// A directory with numpy and mpi4py from PyPI, for `PYTHONPATH`.
pub fn packages() -> PathBuf {
    let wanted = ["numpy", "mpi4py"];
    made_once("site", &(wanted, SYSTEM_PYTHON), |target| {
        let pip = Cmd::new(SYSTEM_PYTHON)
            .args(["-m", "pip", "install", "--quiet", "--target"])
            .arg(target)
            .args(wanted)
            .time_limit(std::time::Duration::from_secs(600));
        pip.run().ok();
    })
}

/// `python3 ARGS` with these packages, as a task.
pub fn python_task() -> Cmd {
    task(interpreter()).env("PYTHONPATH", packages())
}
