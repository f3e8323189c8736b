//! `/proc/self/exe`: the program's file, for every call that takes a path.
//!
//! The kernel's link names Nagaya, which cannot be changed while Nagaya's code is mapped. So a
//! call that follows this link gets the path of a descriptor of the program's file instead. It is
//! in the agent's descriptor table, where the program has none. That also works for renamed or
//! deleted files. readlink returns the path with which the program began.

use libc::c_char;

use crate::call::Call;
use crate::raw;
use crate::request_table::RequestTable;

/// Longest of the link's names that is looked at.
const NAME_BYTES: usize = 64;

/// The program's file; nothing on other nodes than the origin.
#[derive(Debug, Default)]
pub struct Exe {
    /// Its path when the program began.
    pub path: Vec<u8>,
    /// A path through which it can be opened; ends with a zero byte.
    pub link: Vec<u8>,
    /// Its path, with a zero byte at its end.
    pub name: Vec<u8>,
}

impl Exe {
    /// Of the descriptor `file`, in the table of thread `agent` of this process.
    pub fn new(path: Vec<u8>, agent: i32, file: i32) -> Self {
        let link = format!("/proc/self/task/{agent}/fd/{file}\0").into_bytes();
        let name = [&path[..], b"\0"].concat();
        Self { path, link, name }
    }
}

/// Returns the index of the argument that is a path whose last component is followed if it is a
/// link, or `None`.
fn path_argument(call: &Call) -> Option<usize> {
    let a = &call.arguments;
    let unless = |flags: u64, flag: i32, at| (flags & flag as u64 == 0).then_some(at);
    match call.number as i64 {
        libc::SYS_stat
        | libc::SYS_access
        | libc::SYS_execve
        | libc::SYS_statfs
        | libc::SYS_truncate
        | libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_getxattr
        | libc::SYS_setxattr
        | libc::SYS_listxattr
        | libc::SYS_removexattr => Some(0),
        libc::SYS_open => unless(a[1], libc::O_NOFOLLOW, 0),
        libc::SYS_openat => unless(a[2], libc::O_NOFOLLOW, 1),
        libc::SYS_openat2 if a[2] != 0 => {
            // SAFETY: the program's structure, which begins with flags; a bad address is a fault
            // in a call: EFAULT.
            let flags = unsafe { (a[2] as *const u64).read_unaligned() };
            unless(flags, libc::O_NOFOLLOW, 1)
        }
        libc::SYS_faccessat | libc::SYS_fchmodat | libc::SYS_futimesat => Some(1),
        libc::SYS_newfstatat => unless(a[3], libc::AT_SYMLINK_NOFOLLOW, 1),
        libc::SYS_statx => unless(a[2], libc::AT_SYMLINK_NOFOLLOW, 1),
        libc::SYS_faccessat2 | libc::SYS_utimensat => unless(a[3], libc::AT_SYMLINK_NOFOLLOW, 1),
        libc::SYS_fchownat | libc::SYS_execveat => unless(a[4], libc::AT_SYMLINK_NOFOLLOW, 1),
        libc::SYS_linkat if a[4] & libc::AT_SYMLINK_FOLLOW as u64 != 0 => Some(1),
        libc::SYS_name_to_handle_at if a[4] & libc::AT_SYMLINK_FOLLOW as u64 != 0 => Some(1),
        libc::SYS_inotify_add_watch => unless(a[2], libc::IN_DONT_FOLLOW as i32, 1),
        _ => None,
    }
}

/// Returns true if [`redirect`] may change the call, depending on its arguments.
pub fn may_redirect(number: u64) -> bool {
    let by_flag = [libc::SYS_openat2, libc::SYS_linkat, libc::SYS_name_to_handle_at];
    by_flag.contains(&(number as i64)) || redirected_path(number).is_some()
}

/// Returns the index of the argument whose path may make [`redirect`] change the call, or `None`
/// if that is another argument, too, or no path.
pub fn redirected_path(number: u64) -> Option<usize> {
    path_argument(&Call { number, arguments: [0; 6] })
}

/// The call as the kernel is to have it: with the program's file where it names the link.
///
/// # Safety
/// Arguments are as the program gave them; at the origin.
pub unsafe fn redirect(exe: &Exe, table: &RequestTable, call: Call) -> Call {
    let Some(at) = path_argument(&call) else { return call };
    let mut call = call;
    // SAFETY: a string of the program's, or a bad address, which is a fault in a call: EFAULT.
    if unsafe { is_link(table, call.arguments[at]) } {
        let executes = [libc::SYS_execve, libc::SYS_execveat].contains(&(call.number as i64));
        let by_name = executes && is_same_file(&exe.name, &exe.link);
        let path = if by_name { &exe.name } else { &exe.link };
        call.arguments[at] = path.as_ptr() as u64;
    }
    call
}

/// readlink and readlinkat of the link; none, if they are of another.
///
/// # Safety
/// Arguments are as the program gave them; at the origin.
pub unsafe fn read_link(exe: &Exe, table: &RequestTable, call: &Call) -> Option<i64> {
    let a = call.arguments;
    let [name, to, room] = match call.number as i64 {
        libc::SYS_readlink => [a[0], a[1], a[2]],
        _ => [a[1], a[2], a[3]],
    };
    // SAFETY: a string of the program's.
    if !unsafe { is_link(table, name) } {
        return None;
    }
    if room as i32 <= 0 {
        return Some(-i64::from(libc::EINVAL));
    }
    let bytes = exe.path.len().min(room as usize);
    // SAFETY: the program's buffer of `room` bytes.
    unsafe { std::ptr::copy_nonoverlapping(exe.path.as_ptr(), to as *mut u8, bytes) };
    Some(bytes as i64)
}

/// Returns true if a path is a name of this process's link.
///
/// # Safety
/// `path` must be a string, or null.
unsafe fn is_link(table: &RequestTable, path: u64) -> bool {
    let path = path as *const u8;
    let mut bytes = [0; NAME_BYTES];
    if path.is_null() {
        return false;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: not beyond the string's end, which stops this.
        *byte = unsafe { path.add(at).read() };
        // Most paths differ here.
        if *byte == 0 || at < 6 && *byte != b"/proc/"[at] {
            break;
        }
    }
    let Some(end) = bytes.iter().position(|&byte| byte == 0) else { return false };
    is_name(&bytes[..end], |id| table.slot_of_tid(id).is_some())
}

/// Returns true if these bytes are a name of the link of a process whose IDs `is_own` accepts.
fn is_name(path: &[u8], is_own: impl Fn(i32) -> bool) -> bool {
    let Some(path) = path.strip_prefix(b"/proc/") else { return false };
    let id = |part: Option<&[u8]>| {
        let number = part.and_then(|part| std::str::from_utf8(part).ok()?.parse().ok());
        number.is_some_and(&is_own)
    };
    let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
    let first = parts.next();
    let is_process = match first {
        Some(b"self" | b"thread-self") => true,
        number => id(number),
    };
    is_process
        && match parts.next() {
            Some(b"exe") => parts.next().is_none(),
            Some(b"task") => {
                id(parts.next()) && parts.next() == Some(b"exe") && parts.next().is_none()
            }
            _ => false,
        }
}

/// Returns true if two paths, each with a zero byte at its end, lead to one file.
fn is_same_file(one: &[u8], other: &[u8]) -> bool {
    let identity = |path: &[u8]| {
        // SAFETY: numbers, which the kernel writes.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let path = path.as_ptr().cast::<c_char>() as u64;
        let arguments = [path, std::ptr::from_mut(&mut stat) as u64, 0, 0, 0, 0];
        // SAFETY: a local string, and room for the answer.
        let result = unsafe { raw::call(libc::SYS_stat as u64, arguments) };
        (result == 0).then_some((stat.st_dev, stat.st_ino))
    };
    identity(one).is_some_and(|it| identity(other) == Some(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_the_link_are_known() {
        let is_own = |id| id == 12 || id == 13;
        for name in [
            "/proc/self/exe",
            "/proc/thread-self/exe",
            "/proc/12/exe",
            "/proc/self/task/13/exe",
            "/proc/12//task/13/exe",
        ] {
            assert!(is_name(name.as_bytes(), is_own), "{name}");
        }
        for name in [
            "/proc/self",
            "/proc/self/exe/x",
            "/proc/14/exe",
            "/proc/self/task/14/exe",
            "/proc/self/task/exe",
            "/proc/-1/exe",
            "proc/self/exe",
            "/proc/self/cwd",
            "",
        ] {
            assert!(!is_name(name.as_bytes(), is_own), "{name}");
        }
    }
}
