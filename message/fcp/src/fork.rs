//! Detects that this process is a forked child, at the cost of a load.

use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// Starts counting. Returns the number of forks between the first counting process and this one.
pub fn watch() -> u32 {
    static ONCE: Once = Once::new();
    // SAFETY: `in_child` only adds to an atomic, which is allowed in a forked child. The call fails
    // only without memory; then children are not detected.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
    FORKS.load(Relaxed)
}

/// Returns true if this process is a child of the one where [`watch`] returned `forks`.
#[inline]
pub fn happened_since(forks: u32) -> bool {
    FORKS.load(Relaxed) != forks
}
