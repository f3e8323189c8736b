//! Threads of the library's own: they take none of the program's signals.

use std::mem::MaybeUninit;

/// Starts a thread. Nothing if the system has none left.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Option<()> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are ours; the first is filled before it is read. A thread begins with
    // the mask of who starts it.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    // SAFETY: the set was written by the call above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    thread.ok().map(drop)
}
