//! `nagaya pvm exec`: runs a program with Nagaya's PVM libraries in front of all others.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nagaya_server::Failure;
use pvmd::libraries;

/// Replaces this process by the program. Returns only if that fails.
pub fn exec(program: &[OsString]) -> Result<i32, Failure> {
    let (name, arguments) = program.split_first().expect("clap wants a program");
    let failure = |message: String, status: i32| Failure { message, status };
    let directory = libraries::directory().ok_or_else(|| {
        let what = "libpvm3.so.3 is neither in ../lib/nagaya/pvm/lib nor in pvm/lib beside nagaya; \
                    run `make install`";
        failure(what.into(), 125)
    })?;
    let others = std::env::var(libraries::SEARCH_PATH).ok();
    let path = libraries::in_front(&directory, others.as_deref());
    let error = Command::new(name).args(arguments).env(libraries::SEARCH_PATH, path).exec();
    let status = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    Err(failure(format!("{}: {error}", name.to_string_lossy()), status))
}
