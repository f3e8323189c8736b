//! The end of this process, and of the PEs of its node.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::Duration;

use sync::futex;

use crate::block::Block;
use crate::job::{self, Job};

/// Set in a control block's `exit` word if the PE is to end.
const EXIT: u32 = 1 << 8;
/// Longest time for the exit handlers of a PE that another one ends.
const EXIT_MAX: Duration = Duration::from_secs(2);

/// Number of calls of `shmem_init` without `shmem_finalize`.
pub static INITS: AtomicU32 = AtomicU32::new(0);

/// Ends all other PEs of this node with an exit status.
pub fn end_neighbours(job: &Job, status: c_int) {
    for peer in job.peers.iter().filter(|it| it.pe != job.me && !it.is_far()) {
        request_exit(peer.block, status);
    }
}

/// Requests a PE of this node to end with an exit status.
pub fn request_exit(block: &Block, status: c_int) {
    let word = &block.exit.0;
    word.store(EXIT | (status as u32 & 0xff), SeqCst);
    futex::wake(word);
}

/// Returns true if this process ends at once, or is requested to.
pub fn is_ending() -> bool {
    let is_ending =
        |block: &Block| block.is_ending.load(Acquire) != 0 || block.exit.0.load(Acquire) != 0;
    job::try_get().is_some_and(|job| is_ending(job.block()))
}

/// Ends this process with its exit handlers, so that its output is complete. They do not meet the
/// other PEs.
pub fn exit(status: c_int) -> ! {
    INITS.store(0, SeqCst);
    if let Some(job) = job::try_get() {
        job.block().is_ending.store(1, SeqCst);
        if let Some(far) = &job.far {
            far.part_from_launcher();
        }
    }
    // An exit handler, or a thread that holds a stream's lock, may wait for ever.
    let end = move || {
        std::thread::sleep(EXIT_MAX);
        // SAFETY: ends this process.
        unsafe { libc::_exit(status) };
    };
    let _ = std::thread::Builder::new().spawn(end);
    // SAFETY: ends this process.
    unsafe { libc::exit(status) }
}

/// Calls a function while all signals are blocked.
pub fn blocked<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: two local sets of signals.
    unsafe {
        let [mut all, mut before]: [libc::sigset_t; 2] = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let result = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        result
    }
}
