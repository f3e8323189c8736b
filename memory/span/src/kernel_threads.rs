//! The kernel's side of a thread: its thread area, the interception of its system calls, its exit.

use crate::raw;

/// `PR_SET_SYSCALL_USER_DISPATCH` (Linux 5.11).
pub const DISPATCH: i32 = 59;
const DISPATCH_ON: u64 = 1;
/// Codes of arch_prctl(2).
const SET_FS: u64 = 0x1002;
const GET_FS: u64 = 0x1003;

/// Makes the kernel send SIGSYS for each system call of this thread, except for those that Nagaya's
/// own code makes.
///
/// # Safety
/// [`trap::catch`](crate::trap::catch) has set the handler for SIGSYS.
pub unsafe fn dispatch() {
    let ours = raw::ours();
    let arguments = [DISPATCH as u64, DISPATCH_ON, ours.start, ours.end - ours.start, 0, 0];
    // SAFETY: prctl(2) reads no memory; the handler exists by this function's contract.
    unsafe { raw::call(libc::SYS_prctl as u64, arguments) };
}

/// Sets the thread area of this thread.
///
/// # Safety
/// The thread does not use its present thread area any more.
pub unsafe fn set_thread_area(area: u64) {
    // SAFETY: nothing uses the old thread area, by this function's contract.
    unsafe { raw::call(libc::SYS_arch_prctl as u64, [SET_FS, area, 0, 0, 0, 0]) };
}

/// Returns the thread area of this thread.
pub fn thread_area() -> u64 {
    let mut area = 0u64;
    let arguments = [GET_FS, std::ptr::from_mut(&mut area) as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes `area`, which lives until the call returns.
    unsafe { raw::call(libc::SYS_arch_prctl as u64, arguments) };
    area
}

/// Ends this kernel thread.
pub fn over() -> ! {
    loop {
        // SAFETY: exit(2) takes no pointers.
        unsafe { raw::call(libc::SYS_exit as u64, [0; 6]) };
    }
}
