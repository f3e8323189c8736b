//! The fabric: libfabric's object for the space.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::size_t;

use crate::abi;
use crate::face::counter;
use crate::face::cq;
use crate::face::domain;
use crate::face::eq;
use crate::face::members::Pollable;
use crate::face::wait;

static FID: abi::OpsFid = abi::OpsFid::of(close, None, None);

static OPS: abi::OpsFabric = abi::OpsFabric {
    size: size_of::<abi::OpsFabric>(),
    domain: Some(domain::open),
    passive_ep: Some(no_passive_endpoint),
    eq_open: Some(eq::open),
    wait_open: Some(wait::open),
    trywait: Some(trywait),
};

/// fi_trywait(3).
unsafe extern "C" fn trywait(
    _: *mut abi::FidFabric,
    fids: *mut *mut abi::Fid,
    count: c_int,
) -> c_int {
    for n in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: fi_trywait(3): an array of `count` objects.
        let fid = unsafe { *fids.add(n) };
        // SAFETY: fi_trywait(3): an open object of this provider, of the class that it names.
        let may_sleep = unsafe {
            match (*fid).fclass as u32 {
                abi::CLASS_CQ => cq::of(fid.cast()).try_wait(),
                abi::CLASS_CNTR => counter::of(fid.cast()).try_wait(),
                abi::CLASS_WAIT => wait::try_wait(fid.cast()),
                // Event queues stay empty.
                _ => true,
            }
        };
        if !may_sleep {
            return -abi::EAGAIN;
        }
    }
    0
}

/// fi_fabric(3).
pub unsafe extern "C" fn open(
    _attr: *mut abi::FabricAttr,
    fabric: *mut *mut abi::FidFabric,
    context: *mut c_void,
) -> c_int {
    let fid = abi::Fid { fclass: abi::CLASS_FABRIC as size_t, context, ops: &FID };
    // libfabric writes the version.
    let made = Box::new(abi::FidFabric { fid, ops: &OPS, api_version: 0 });
    // SAFETY: fi_fabric(3) lets us write the fabric there.
    unsafe { fabric.write(Box::into_raw(made)) };
    0
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: `open` has made the fabric with `Box::into_raw`, and fi_close(3) is called once.
    drop(unsafe { Box::from_raw(fid.cast::<abi::FidFabric>()) });
    0
}

unsafe extern "C" fn no_passive_endpoint(
    _: *mut abi::FidFabric,
    _: *mut abi::Info,
    endpoint: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: fi_passive_ep(3) lets us write the endpoint there.
    unsafe { endpoint.write(ptr::null_mut()) };
    -abi::ENOSYS
}
