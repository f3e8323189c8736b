//! A child of a program under `nagaya span` that executes `/proc/self/exe`.
//!
//! Such a child is an ordinary process, for which the kernel's link leads to nagaya: nagaya is
//! executed where the program is meant. It then executes the program's file, which it finds through
//! the origin, an ancestor of it.

use std::ffi::{CString, c_char};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use proc::process::Stat;
use span::node::AGENT;

/// An argument with which nagaya executes itself by this name: for nodes and servers.
const OURS: [&str; 3] = ["--control", "--part", "--socket"];
/// Ancestors that are looked at.
const ANCESTORS: usize = 64;

/// Executes the program that is meant, with these arguments, if there is one. Returns if not.
///
/// # Safety
/// The arguments of `main`, before anything else runs.
pub unsafe fn execute(arguments: *const *const c_char) {
    if !is_by_link() || std::env::args_os().any(|argument| OURS.iter().any(|it| argument == *it)) {
        return;
    }
    let Some(path) = program() else { return };
    // A path that others can read is better than a descriptor's, as long as it is the same file.
    let named = fs::read_link(&path).ok().filter(|named| is_same(named, &path));
    let path = named.unwrap_or(path);
    let Ok(path) = CString::new(path.into_os_string().into_encoded_bytes()) else { return };
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: strings that end with null, each of which lives as long as the process.
    unsafe { libc::execve(path.as_ptr(), arguments, environ) };
}

/// Returns true if nagaya was executed by the name of such a link.
fn is_by_link() -> bool {
    // SAFETY: a string that the kernel has put there, or null.
    let name = unsafe {
        let name = libc::getauxval(libc::AT_EXECFN) as *const c_char;
        if name.is_null() {
            return false;
        }
        std::ffi::CStr::from_ptr(name).to_bytes()
    };
    name.starts_with(b"/proc/") && name.ends_with(b"/exe")
}

/// The file of the program whose origin is the nearest ancestor that is nagaya.
fn program() -> Option<PathBuf> {
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..ANCESTORS {
        let link = PathBuf::from(format!("/proc/{process}/exe"));
        // Children between have the same link, and no agent.
        if !is_same(&link, Path::new("/proc/self/exe")) {
            return None;
        }
        if let Some(path) = agent_s_file(process) {
            return Some(path);
        }
        process = parent(process)?;
    }
    None
}

/// The program's file, if this process is an origin.
fn agent_s_file(process: u32) -> Option<PathBuf> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    threads.flatten().find_map(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        let number = name.trim_end().strip_prefix(AGENT)?.strip_prefix(':')?;
        Some(thread.path().join("fd").join(number.parse::<u32>().ok()?.to_string()))
    })
}

fn parent(process: u32) -> Option<u32> {
    Stat::read(&format!("/proc/{process}")).ok()?.field(4)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|it| (it.dev(), it.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}
