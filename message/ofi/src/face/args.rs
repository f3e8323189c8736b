//! Arguments of libfabric's calls: lists and buffers.

use std::ffi::c_void;

use libc::{iovec, ssize_t};

/// Returns the list of `count` items at `at`.
///
/// # Safety
/// The program has passed a list of `count` items, which stays during the call.
pub unsafe fn list<'a, T>(at: *const T, count: usize) -> &'a [T] {
    // SAFETY: as the caller says.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, count) } }
}

/// Returns a buffer as a part.
pub fn part(buffer: *const c_void, length: usize) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: length }
}

/// Returns the answer of a call: 0, or a negative error.
pub fn answer(result: Result<(), i32>) -> ssize_t {
    result.map_or_else(|error| -(error as ssize_t), |()| 0)
}
