//! Threads of the library. They block all signals, which the program's own threads handle.

use std::mem::MaybeUninit;

/// Starts a thread. Returns `None` if the system allows no more.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Option<()> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are locals, and `sigfillset` fills the first before it is read. The new
    // thread inherits the mask.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    // SAFETY: the first `pthread_sigmask` has written the set.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    thread.ok().map(drop)
}
