//! Tells a forked child from its parent, at the cost of a load.

use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// Counts from now on. The number of forks that lie between the program's start and this
/// process.
pub fn watch() -> u32 {
    static ONCE: Once = Once::new();
    // SAFETY: the function only adds to a number, which is allowed in a forked child. It
    // fails for want of memory only; then children are not told apart.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
    FORKS.load(Relaxed)
}

/// Whether this process is another than that where [`watch`] returned `forks`.
#[inline]
pub fn happened_since(forks: u32) -> bool {
    FORKS.load(Relaxed) != forks
}
