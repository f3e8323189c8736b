//! Event queues. Endpoints without connections have no events, so the queues stay empty.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

use libc::{size_t, ssize_t};

use crate::abi;

static FID: abi::OpsFid = abi::OpsFid::of(close, None, Some(control));

static OPS: abi::OpsEq = abi::OpsEq {
    size: size_of::<abi::OpsEq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};

/// fi_eq_open(3).
pub unsafe extern "C" fn open(
    _: *mut abi::FidFabric,
    _: *mut abi::EqAttr,
    queue: *mut *mut abi::FidEq,
    context: *mut c_void,
) -> c_int {
    let fid = abi::Fid { fclass: abi::CLASS_EQ as size_t, context, ops: &FID };
    // SAFETY: fi_eq_open(3) lets us write the queue there.
    unsafe { queue.write(Box::into_raw(Box::new(abi::FidEq { fid, ops: &OPS }))) };
    0
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: `open` has made the queue with `Box::into_raw`, and fi_close(3) is called once.
    drop(unsafe { Box::from_raw(fid.cast::<abi::FidEq>()) });
    0
}

unsafe extern "C" fn control(_: *mut abi::Fid, _: c_int, _: *mut c_void) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn read(
    _: *mut abi::FidEq,
    _: *mut u32,
    _: *mut c_void,
    _: size_t,
    _: u64,
) -> ssize_t {
    -(abi::EAGAIN as ssize_t)
}

unsafe extern "C" fn readerr(_: *mut abi::FidEq, _: *mut c_void, _: u64) -> ssize_t {
    -(abi::EAGAIN as ssize_t)
}

unsafe extern "C" fn write(
    _: *mut abi::FidEq,
    _: u32,
    _: *const c_void,
    _: size_t,
    _: u64,
) -> ssize_t {
    -(abi::ENOSYS as ssize_t)
}

unsafe extern "C" fn sread(
    _: *mut abi::FidEq,
    _: *mut u32,
    _: *mut c_void,
    _: size_t,
    timeout: c_int,
    _: u64,
) -> ssize_t {
    // No event ever comes. A call without a time limit returns, too, instead of a hang.
    std::thread::sleep(Duration::from_millis(timeout.try_into().unwrap_or(100)));
    -(abi::EAGAIN as ssize_t)
}

unsafe extern "C" fn strerror(
    _: *mut abi::FidEq,
    error: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: size_t,
) -> *const c_char {
    // SAFETY: strerror(3) accepts all numbers.
    let text = unsafe { libc::strerror(error) };
    if text.is_null() { ptr::null() } else { text }
}
