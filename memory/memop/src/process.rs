//! The state of a process and its threads, from `/proc`.

use std::fs;
use std::io::Error;

use proc::process::Status;
use rustix::io::{Errno, Result};
use rustix::process::Pid;

/// Returns the threads of a process, beginning with the first one.
pub fn threads(pid: Pid) -> Result<Vec<i32>> {
    let listed = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).map_err(gone)?;
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// The state and the tracer of a thread.
pub struct State {
    /// The state of proc_pid_status(5): `R`, `S`, `D`, `T`, `t`.
    pub kind: char,
    /// ID of the tracing thread, or 0.
    pub tracer: i32,
}

impl State {
    /// Returns the state of a thread that lives and still has memory.
    pub fn of(tid: i32) -> Option<Self> {
        let status = Status::read(&format!("/proc/{tid}")).ok()?;
        status.field("VmSize")?;
        let kind = status.field("State")?.chars().next().filter(|kind| !['Z', 'X'].contains(kind));
        Some(State { kind: kind?, tracer: status.field("TracerPid")?.parse().ok()? })
    }
}

/// Converts an error of a file in `/proc`: the process does not exist, or is another user's.
pub fn gone(error: Error) -> Errno {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Errno::SRCH,
        Some(Errno::ACCESS) => Errno::PERM,
        error => error.unwrap_or(Errno::SRCH),
    }
}
