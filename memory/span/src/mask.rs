//! The signal mask of a thread: in the frame of the signal that caught its call, and at its shadow.

use crate::call::{self, Call};
use crate::edges::RESTART;
use crate::here::Here;
use crate::request::Request;
use crate::signal::OURS;
use crate::slot::Slot;

/// Returns the program's signal mask in a frame: the thread resumes with it.
///
/// # Safety
/// `frame` points to a signal frame.
pub unsafe fn of(frame: *const libc::ucontext_t) -> u64 {
    // SAFETY: `frame` is valid by this function's contract; the kernel's masks have 8 bytes.
    unsafe { (&raw const (*frame).uc_sigmask).cast::<u64>().read() & !OURS }
}

/// Sets the mask of the thread's shadow, if it has one. Returns 0, or [`RESTART`] if a signal comes
/// first.
pub fn report(here: &Here, slot: &Slot, before: u64, after: u64) -> i64 {
    if here.node == 0 || before == after {
        return 0;
    }
    let call = Call { number: call::MASK, arguments: [after, 0, 0, 0, 0, 0] };
    let result = here.table.request(slot, Request::Call(call));
    if slot.has(Slot::SIGNAL) { RESTART } else { result }
}

/// Makes rt_sigprocmask(2) by changing the mask in the frame.
///
/// # Safety
/// `frame` is that of the SIGSYS that caught the call; `a` are the program's arguments.
pub unsafe fn set(here: &Here, slot: &Slot, frame: *mut libc::ucontext_t, a: [u64; 6]) -> i64 {
    if a[3] != 8 {
        return -i64::from(libc::EINVAL);
    }
    // SAFETY: the frame is the kernel's. A bad address of the program is a fault in a call, which
    // `signals::bad_address` turns into EFAULT.
    unsafe {
        let (before, new) = (of(frame), a[1] as *const u64);
        let mut after = before;
        if !new.is_null() {
            let new = new.read_unaligned() & !OURS;
            after = match a[0] as i32 {
                libc::SIG_BLOCK => before | new,
                libc::SIG_UNBLOCK => before & !new,
                libc::SIG_SETMASK => new,
                _ => return -i64::from(libc::EINVAL),
            };
        }
        let error = report(here, slot, before, after);
        if error != 0 {
            return error;
        }
        (&raw mut (*frame).uc_sigmask).cast::<u64>().write(after);
        if a[2] != 0 {
            (a[2] as *mut u64).write_unaligned(before);
        }
    }
    0
}
