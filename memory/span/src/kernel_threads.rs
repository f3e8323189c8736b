//! The kernel's side of a thread: its thread area, the interception of its system calls, its exit.

use std::arch::asm;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::raw;

/// `PR_SET_SYSCALL_USER_DISPATCH` (Linux 5.11).
pub const DISPATCH: i32 = 59;
const DISPATCH_ON: u64 = 1;
/// The processor sets the thread area without a system call.
static HAS_FSGSBASE: AtomicBool = AtomicBool::new(false);
/// Codes of arch_prctl(2).
const SET_FS: u64 = 0x1002;
const GET_FS: u64 = 0x1003;

/// Makes the kernel send SIGSYS for each system call of this thread, except for those that Nagaya's
/// own code makes. With a `selector`, no call is caught while that is 0.
///
/// # Safety
/// [`trap::catch`](crate::trap::catch) has set the handler for SIGSYS. The selector is 0 or 1, and
/// lives as long as the thread.
pub unsafe fn dispatch(selector: Option<&AtomicU8>) {
    let ours = raw::ours();
    let selector = selector.map_or(0, |selector| selector.as_ptr() as u64);
    let arguments = [DISPATCH as u64, DISPATCH_ON, ours.start, ours.end - ours.start, selector, 0];
    // SAFETY: the kernel reads the selector, which lives long enough by this function's contract;
    // so does the handler.
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

/// Sets the thread area of this thread, and returns the last one.
///
/// # Safety
/// As for [`set_thread_area`].
pub unsafe fn swap_thread_area(area: u64) -> u64 {
    if !HAS_FSGSBASE.load(Ordering::Relaxed) {
        let before = thread_area();
        // SAFETY: this function has the same contract.
        unsafe { set_thread_area(area) };
        return before;
    }
    let before: u64;
    // SAFETY: the kernel allows both instructions; nothing uses the old area, by this function's
    // contract.
    unsafe {
        asm!(
            "rdfsbase {before}",
            "wrfsbase {area}",
            before = out(reg) before,
            area = in(reg) area,
            options(nostack, preserves_flags),
        );
    }
    before
}

/// By the agent: looks for the instructions of [`swap_thread_area`], which Linux 5.9 allows.
pub fn find_instructions() {
    /// `HWCAP2_FSGSBASE`.
    const FSGSBASE: u64 = 1 << 1;
    // SAFETY: glibc reads a variable that it set when this process began.
    let features = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    HAS_FSGSBASE.store(features & FSGSBASE != 0, Ordering::Relaxed);
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
