//! Arguments of libfabric's calls: lists, buffers, strings and addresses.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{iovec, ssize_t};

use crate::abi;
use crate::engine::address::{Format, SIZE, Target};

/// Returns the list of `count` items at `at`.
///
/// # Safety
/// `at` has `count` items, which do not change while the list is in use.
pub unsafe fn list<'a, T>(at: *const T, count: usize) -> &'a [T] {
    // SAFETY: this function's contract. An empty list may have any address.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, count) } }
}

/// Returns a buffer as a part.
pub fn part(buffer: *const c_void, length: usize) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: length }
}

/// Returns the result of a call: 0, or a negative error.
pub fn answer(result: Result<(), i32>) -> ssize_t {
    result.map_or_else(|error| -(error as ssize_t), |()| 0)
}

/// Returns a string of the program's, or `None` for NULL. Error: EINVAL, if it is not UTF-8.
///
/// # Safety
/// `at` is NULL or a C string that does not change while the string is in use.
pub unsafe fn text<'a>(at: *const c_char) -> Result<Option<&'a str>, c_int> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, so a C string by this function's contract.
    unsafe { CStr::from_ptr(at) }.to_str().map(Some).map_err(|_| abi::EINVAL)
}

/// Reads an address, and returns it with its number of bytes. Returns `None` for NULL, and if there
/// is no address in this format.
///
/// # Safety
/// `at` is NULL, or has a string or [`SIZE`] bytes, as the format says.
pub unsafe fn address(format: Format, at: *const c_void) -> Option<(Target, usize)> {
    if at.is_null() {
        return None;
    }
    match format {
        Format::Own => {
            // SAFETY: `SIZE` bytes, by this function's contract.
            let bytes = unsafe { &*at.cast::<[u8; SIZE]>() };
            Some((Target::parse(bytes)?, SIZE))
        }
        Format::String => {
            // SAFETY: a C string, by this function's contract.
            let text = unsafe { CStr::from_ptr(at.cast::<c_char>()) };
            Some((Target::parse_text(text.to_str().ok()?)?, text.count_bytes() + 1))
        }
    }
}

/// Copies a written address to a buffer of the program's, as far as it fits. Sets `length` to the
/// length of the address. Error: EINVAL, ETOOSMALL.
///
/// # Safety
/// `length` is NULL or may be written. `to` is NULL or has `*length` bytes.
pub unsafe fn copy_out(written: &[u8], to: *mut c_void, length: *mut usize) -> Result<(), i32> {
    if length.is_null() {
        return Err(abi::EINVAL);
    }
    // SAFETY: `length` may be written, and `to` has `room` bytes or is NULL, by this function's
    // contract. No more than `room` bytes are copied.
    unsafe {
        let room = length.replace(written.len());
        if !to.is_null() {
            let copied = room.min(written.len());
            std::ptr::copy_nonoverlapping(written.as_ptr(), to.cast::<u8>(), copied);
        } else if room != 0 {
            return Err(abi::EINVAL);
        }
        if room < written.len() { Err(abi::ETOOSMALL) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::name::Name;

    #[test]
    fn addresses_are_read_in_every_format() {
        let target = Target::Name(Name::new("localhost:9228").unwrap());
        for format in [Format::Own, Format::String] {
            let written = target.written(format);
            // SAFETY: written in this format.
            let read = unsafe { address(format, written.as_ptr().cast()) };
            assert_eq!(read, Some((target.clone(), written.len())), "{format:?}");
            // SAFETY: NULL is allowed.
            assert_eq!(unsafe { address(format, std::ptr::null()) }, None);
        }
    }

    #[test]
    fn addresses_are_copied_as_far_as_they_fit() {
        let mut to = [0u8; 4];
        let mut length = 4;
        let (place, none) = (to.as_mut_ptr().cast(), std::ptr::null_mut());
        // SAFETY: `length` is never more than the bytes of `to`.
        unsafe {
            assert_eq!(copy_out(b"abcdef", place, &mut length), Err(abi::ETOOSMALL));
            assert_eq!((length, &to), (6, b"abcd"));
            assert_eq!(copy_out(b"abcdef", none, &mut length), Err(abi::EINVAL));
            length = 0;
            assert_eq!(copy_out(b"abcdef", none, &mut length), Err(abi::ETOOSMALL));
            assert_eq!(copy_out(b"abc", place, std::ptr::null_mut()), Err(abi::EINVAL));
        }
    }
}
