//! pvm_start_pvmd: starts this host's daemon.

use std::ffi::{c_char, c_int};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::wire::Request;

use super::library::call;
use super::tracing::{self, traced};
use crate::task::daemon::socket_path;

/// See `pvm3.h`. The daemon is `nagaya pvmd`, of the `nagaya` that PATH finds; it says where it
/// listens once it does.
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
        let mut command = Command::new("nagaya");
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
