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

/// The `nagaya` of this library's installation or build tree; else the one that `PATH` finds.
fn command() -> PathBuf {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let own = pvm_start_pvmd as *const c_void;
    // SAFETY: an address in this library, and a structure of the size that dladdr fills.
    let found = unsafe { libc::dladdr(own, info.as_mut_ptr()) } != 0;
    // SAFETY: zeroed or filled; all fields are pointers.
    let info = unsafe { info.assume_init() };
    if !found || info.dli_fname.is_null() {
        return "nagaya".into();
    }
    // SAFETY: dladdr gives a string that lives as long as this library.
    let file = unsafe { CStr::from_ptr(info.dli_fname) };
    let file = Path::new(OsStr::from_bytes(file.to_bytes()));
    let directory = |path: &Path| path.parent().map(Path::to_path_buf);
    let installed = directory(file).map(|path| path.join("../../../../bin/nagaya"));
    let file = file.canonicalize().ok();
    let built = file.as_deref().and_then(directory).map(|path| path.join("nagaya"));
    let found = [installed, built].into_iter().flatten().find(|path| path.is_file());
    found.unwrap_or_else(|| "nagaya".into())
}

/// See `pvm3.h`. The daemon is `nagaya pvmd`, which prints where it listens once it does.
///
/// # Safety
/// `arguments` is null or has `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_start_pvmd(
    count: c_int,
    arguments: *const *const c_char,
    block: c_int,
) -> c_int {
    // SAFETY: as our caller says.
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
            // Answered when the hosts that were wanted at the start are there.
            library.ask(Request::Config)?;
        }
        Ok(0)
    })
}
