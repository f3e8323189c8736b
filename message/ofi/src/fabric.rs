//! The fabric: libfabric's name for the space.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::size_t;

use crate::{abi, cq, domain, eq, wait};

static FID: abi::OpsFid = abi::OpsFid::of(close, None, None);

static OPS: abi::OpsFabric = abi::OpsFabric {
    size: size_of::<abi::OpsFabric>(),
    domain: Some(domain::open),
    passive_ep: Some(no_passive_endpoint),
    eq_open: Some(eq::open),
    wait_open: Some(wait::open),
    trywait: Some(cq::trywait),
};

/// fi_fabric(3).
pub unsafe extern "C" fn open(
    _attr: *mut abi::FabricAttr,
    fabric: *mut *mut abi::FidFabric,
    context: *mut c_void,
) -> c_int {
    let fid = abi::Fid { fclass: abi::CLASS_FABRIC as size_t, context, ops: &FID };
    // libfabric writes the version.
    let made = Box::new(abi::FidFabric { fid, ops: &OPS, api_version: 0 });
    // SAFETY: libfabric waits for it there.
    unsafe { fabric.write(Box::into_raw(made)) };
    0
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: made by `open`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<abi::FidFabric>()) });
    0
}

unsafe extern "C" fn no_passive_endpoint(
    _: *mut abi::FidFabric,
    _: *mut abi::Info,
    endpoint: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller looks there.
    unsafe { endpoint.write(ptr::null_mut()) };
    -abi::ENOSYS
}
