//! The place of a program's call of this library, for `nagaya dsm report`, which names the lines
//! that allocate.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

/// Maximum number of this library's own calls within one of the program's.
const DEPTH_MAX: usize = 32;

unsafe extern "C" {
    fn backtrace(frames: *mut *mut c_void, most: c_int) -> c_int;
}

/// Returns the address at which the program has called this library, or 0 if it is unknown.
pub fn of_this_call() -> usize {
    let mut frames = [std::ptr::null_mut(); DEPTH_MAX];
    // SAFETY: backtrace writes at most DEPTH_MAX pointers, for which there is room.
    let count = unsafe { backtrace(frames.as_mut_ptr(), DEPTH_MAX as c_int) };
    let own = object_of(of_this_call as fn() -> usize as *const c_void);
    let called = frames.iter().take(count as usize).find(|&&at| object_of(at) != own);
    // The address is that after the call.
    called.map_or(0, |at| at.addr() - 1)
}

/// Returns the start of the library or program that contains an address.
fn object_of(at: *const c_void) -> usize {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: writes to the structure, if it knows the address.
    match unsafe { libc::dladdr(at, info.as_mut_ptr()) } {
        0 => 0,
        // SAFETY: written.
        _ => unsafe { info.assume_init() }.dli_fbase.addr(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_of_a_program_is_outside_of_it() {
        let at = of_this_call();
        let own = object_of(of_this_call as fn() -> usize as *const c_void);
        assert!(own != 0 && at != 0, "the C library calls main, or the thread");
        assert_ne!(object_of(std::ptr::without_provenance(at)), own);
    }
}
