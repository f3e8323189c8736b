//! Reset of descriptors and signals in the programs that the daemon starts.

use std::io::Error;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes `command` start without the daemon's descriptors and signal mask. UCX opens sockets
/// without O_CLOEXEC, and other hosts would not notice the daemon's end while a child holds
/// them. The daemon blocks signals, since it reads them from a descriptor.
pub fn inherit_nothing(command: &mut Command) {
    // SAFETY: `let_go` runs between fork and exec. It only sets the signal mask and descriptor
    // flags, and allocates nothing.
    unsafe { command.pre_exec(let_go) };
}

fn let_go() -> std::io::Result<()> {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initializes `none` before `pthread_sigmask` reads it. `close_range`
    // touches no memory. (CLOSE_RANGE_CLOEXEC needs Linux 5.11.)
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        match libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    }
}
