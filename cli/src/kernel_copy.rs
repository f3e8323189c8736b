//! Tests whether the kernel copies between the memory of ordinary processes (process_vm_readv),
//! and finds settings that forbid it.

use std::fs;

use control::this_task;
use proc::process::Status;

/// Reports whether the kernel copies between ordinary processes, and the settings that may forbid
/// it: key, title, value.
pub fn kernels_copy() -> [(&'static str, &'static str, String); 3] {
    [
        ("cma", "process_vm_readv by kernel", cma()),
        ("yama", "Yama ptrace_scope", or_none("/proc/sys/kernel/yama/ptrace_scope")),
        ("seccomp", "seccomp", status_line("Seccomp", &["off", "strict", "filter"])),
    ]
}

/// Requests a copy within one process from the kernel; inside a space the gate would answer. A
/// child process makes the request, since a seccomp filter may kill the caller.
fn cma() -> String {
    if this_task().is_some() {
        return "not asked: answered in user space".into();
    }
    let mut status = 0;
    // SAFETY: the child makes system calls only; waitpid writes one int.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let result = copy_within(libc::getpid());
            libc::_exit(result.map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |()| 0));
        }
        if child < 0 || libc::waitpid(child, &raw mut status, 0) != child {
            return format!("unknown: {}", std::io::Error::last_os_error());
        }
    }
    match libc::WEXITSTATUS(status) {
        _ if libc::WIFSIGNALED(status) => "refused: seccomp kills the caller".into(),
        0 => "allowed".into(),
        errno => format!("refused: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

fn status_line(key: &str, names: &[&str]) -> String {
    let status = Status::read("/proc/self").ok();
    let number = status.and_then(|status| status.field(key)?.parse::<usize>().ok());
    number.and_then(|n| names.get(n)).map_or("unknown".into(), |name| (*name).to_string())
}

/// The text of a file of the kernel, or none.
fn or_none(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "none".into(), |text| text.trim().into())
}

/// Copies eight bytes within a process by process_vm_readv.
pub fn copy_within(pid: i32) -> std::io::Result<()> {
    let (from, mut to) = ([1u8; 8], [0u8; 8]);
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: 8 };
    // SAFETY: both vectors describe eight local bytes.
    match unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) } {
        8 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
