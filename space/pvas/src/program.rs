//! A program in a task's slot: loading it, and releasing the slot if it did not start.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use control::Control;
use nagaya_gate::abi::Task;
use nagaya_layout::Seed;
use nagaya_loader::{LoadError, LoadErrorKind, Program, TaskInfo};

use crate::owner;

/// Loads a program into the empty segment of a slot.
///
/// # Safety
/// The caller has taken slot `id`, and its segment is empty.
pub(crate) unsafe fn load_into(
    control: &Control,
    id: u32,
    program: &Program,
    environment: &[CString],
    segment_size: u64,
    stack_limit: Option<u64>,
    sigmask: u64,
) -> Result<*mut Task, LoadError> {
    let segment = control.layout().segment(id).expect("the slot exists");
    let segment = segment.limited(segment_size).expect("the caller has checked the size");
    let stack_limit = stack_limit.unwrap_or_else(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Stack);
        limit.current.unwrap_or(u64::MAX)
    });
    let seed = match control.space().fixed_addresses {
        0 => nagaya_loader::random_seed().map_err(|errno| {
            LoadError::new(&program.executable.path, LoadErrorKind::System("getrandom", errno))
        })?,
        _ => Seed::default(),
    };
    let info = TaskInfo {
        id,
        pid: 0,
        environment,
        stack_limit,
        sigmask,
        seed,
        export_mapped: control.slot(id).export_mapped.load(Ordering::Acquire) == 1,
    };
    // SAFETY: by this function's contract slot `id` is taken and `segment` is empty.
    unsafe { nagaya_loader::load(owner::gate(*control), segment, program, &info) }
}

/// Releases a slot whose program did not start.
///
/// # Safety
/// No process runs in the segment.
pub(crate) unsafe fn abandon(control: &Control, id: u32) {
    // SAFETY: by this function's contract no process runs in the segment.
    unsafe { owner::clear_unstarted(*control, id) };
    owner::release_slot(*control, id);
}

/// Returns the name that the kernel shows for a program: the last component of its path.
pub(crate) fn comm(path: &Path) -> CString {
    let name = path.file_name().unwrap_or(OsStr::new("task"));
    CString::new(name.as_bytes()).unwrap_or_default()
}
