//! What a program that the daemon starts does not inherit from it.

use std::io::Error;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Keeps the daemon's descriptors and its signal mask from a program that it starts: UCX
/// opens sockets without O_CLOEXEC, and others would not notice the daemon's end while a
/// child has them; and the daemon itself reads its signals from a descriptor.
pub fn inherit_nothing(command: &mut Command) {
    // SAFETY: between fork and exec the function makes two system calls and allocates nothing.
    unsafe { command.pre_exec(let_go) };
}

fn let_go() -> std::io::Result<()> {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initializes the set; close_range touches no memory. (Since Linux
    // 5.11.)
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        match libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    }
}
