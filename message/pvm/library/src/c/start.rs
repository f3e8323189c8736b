//! pvm_start_pvmd: starts this host's daemon.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io::{BufRead, BufReader};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::wire::Request;

use super::library::call;
use super::tracing::{self, traced};
use crate::task::daemon::socket_path;

/// Returns the `nagaya` of this library's installation or build tree, or else the name that is
/// searched in `PATH`.
fn command() -> PathBuf {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let own = pvm_start_pvmd as *const c_void;
    // SAFETY: `own` is an address in this library, and `info` is a `Dl_info` that dladdr may write.
    let found = unsafe { libc::dladdr(own, info.as_mut_ptr()) } != 0;
    // SAFETY: `info` is zeroed or filled by dladdr; zero is valid for all its fields.
    let info = unsafe { info.assume_init() };
    if !found || info.dli_fname.is_null() {
        return "nagaya".into();
    }
    // SAFETY: `dli_fname` is a string that lives as long as this library is loaded.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    let directory = |path: &Path| path.parent().map(Path::to_path_buf);
    let installed = directory(file).map(|path| path.join("../../../../bin/nagaya"));
    let file = file.canonicalize().ok();
    let built = file.as_deref().and_then(directory).map(|path| path.join("nagaya"));
    let found = [installed, built].into_iter().flatten().find(|path| path.is_file());
    found.unwrap_or_else(|| "nagaya".into())
}

/// See `pvm3.h`. The daemon is `nagaya pvmd`, which prints its socket's path once it listens.
///
/// # Safety
/// `arguments` is null or has `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_start_pvmd(
    count: c_int,
    arguments: *const *const c_char,
    block: c_int,
) -> c_int {
    // SAFETY: `arguments` is null or has `count` strings, required of the caller.
    let given = unsafe { tracing::texts(arguments, count) };
    let called = traced("pvm_start_pvmd", Event::START_PVMD)
        .with(|record| record.int(Id::BF, block).strings(Id::AS, &given));
    call(called, |library| {
        let path = socket_path().map_err(|_| Error::SysErr)?;
        if UnixStream::connect(&path).is_ok() {
            return Err(Error::DupHost.into());
        }
        let mut command = Command::new(command());
        command.arg("pvmd").args(&given);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|_| Error::CantStart)?;
        let output = child.stdout.take().ok_or(Error::SysErr)?;
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        if read.is_err() || line.trim().is_empty() {
            let _ = child.wait();
            return Err(Error::CantStart.into());
        }
        library.enroll()?;
        if block != 0 {
            // The answer arrives once the hosts of the host file have joined.
            library.ask(Request::Config)?;
        }
        Ok(0)
    })
}
