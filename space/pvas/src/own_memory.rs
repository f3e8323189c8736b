//! The owner's own memory: its program, libraries and heap. A fork of a task copies the mm that it
//! shares with the owner. This memory has as many mappings as a small program, and no child of a
//! task needs it. So an owner that forks no children itself can exclude it.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use nagaya_layout::REGION_END;

/// The memory that [`keep_from_forks`] has excluded.
static EXCLUDED: Mutex<Vec<Range<u64>>> = Mutex::new(Vec::new());

/// Excludes the present memory of this process from forks, but for the memory of spaces. A child by
/// fork(2) of the process itself would have no program any more: only processes that start others
/// by posix_spawn(3) or vfork(2) may call this. Without /proc it does nothing.
pub fn keep_from_forks() {
    let mut excluded = EXCLUDED.lock().expect("never panics");
    let own = proc::maps::own().unwrap_or_default();
    // A child needs the vdso. The kernel finds the command line, which ps(1) shows, on the stack.
    let is_needed = |path: &str| path == "[stack]" || path.starts_with("[v");
    let own = own.into_iter().filter(|it| !it.is_shared && !is_needed(&it.path));
    *excluded = own.map(|it| it.addresses).filter(|it| it.start >= REGION_END).collect();
    mark(&excluded, libc::MADV_DONTFORK);
}

/// While this lives, a fork copies the excluded memory, too.
pub(crate) struct Forkable(MutexGuard<'static, Vec<Range<u64>>>);

impl Forkable {
    /// Admits the memory.
    pub fn begin() -> Self {
        let excluded = EXCLUDED.lock().expect("never panics");
        mark(&excluded, libc::MADV_DOFORK);
        Self(excluded)
    }
}

impl Drop for Forkable {
    fn drop(&mut self) {
        mark(&self.0, libc::MADV_DONTFORK);
    }
}

fn mark(ranges: &[Range<u64>], advice: i32) {
    for range in ranges {
        let bytes = (range.end - range.start) as usize;
        // SAFETY: the advice changes no byte of this process's memory, and concerns only children
        // by fork, which the callers account for. Memory that is no longer mapped gives ENOMEM.
        unsafe { libc::madvise(range.start as *mut libc::c_void, bytes, advice) };
    }
}
