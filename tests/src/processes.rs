//! Processes as /proc shows them, and signals to them.

use std::fs;
use std::path::Path;

/// Reads a file of the kernel if it exists. It may contain names of other programs, which need not
/// be UTF-8.
pub fn kernel_text(path: impl AsRef<Path>) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// Returns `field` of `/proc/PID/status` if the process exists.
pub fn proc_status(pid: i32, field: &str) -> Option<String> {
    let status = kernel_text(format!("/proc/{pid}/status"))?;
    status.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name == field).then(|| value.trim().to_owned())
    })
}

/// Returns true if the process runs. A zombie does not.
pub fn is_alive(pid: i32) -> bool {
    proc_status(pid, "State")
        .is_some_and(|state| !state.starts_with('Z') && !state.starts_with('X'))
}

/// Returns true if the process is a placeholder, which keeps a program's file from being written to
/// while tasks run it. It is stopped by its tracer, and its end has no effect on a job.
pub fn is_placeholder(pid: i32) -> bool {
    proc_status(pid, "State").is_some_and(|state| state.starts_with('t'))
}

/// Sends a signal to one process, which may have ended already.
pub fn kill(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a PID");
    let _ = rustix::process::kill_process(pid, signal);
}
