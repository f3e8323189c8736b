//! Domains: endpoints, queues, counters and address vectors belong to one.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use libc::size_t;

use crate::abi;
use crate::engine::address::Format;
use crate::engine::space::here;
use crate::engine::state::Core;
use crate::face::atomic;
use crate::face::av;
use crate::face::counter;
use crate::face::cq;
use crate::face::domain_object::Domain;
use crate::face::endpoint;
use crate::face::mr;
use crate::face::peer;
use crate::face::poll;

static FID: abi::OpsFid = abi::OpsFid::of(close, Some(bind), Some(control));

static OPS: abi::OpsDomain = abi::OpsDomain {
    size: size_of::<abi::OpsDomain>(),
    av_open: Some(av::open),
    cq_open: Some(cq::open),
    endpoint: Some(endpoint::open),
    scalable_ep: Some(no_scalable_endpoint),
    cntr_open: Some(counter::open),
    poll_open: Some(poll::open),
    stx_ctx: Some(no_shared_send),
    srx_ctx: Some(peer::open),
    query_atomic: Some(atomic::query),
    query_collective: None,
};

/// fi_domain(3).
pub unsafe extern "C" fn open(
    fabric: *mut abi::FidFabric,
    info: *mut abi::Info,
    domain: *mut *mut abi::FidDomain,
    context: *mut c_void,
) -> c_int {
    let Some(here) = here() else { return -abi::ENODATA };
    // SAFETY: fi_domain(3): NULL, or an answer of fi_getinfo(3), whose parts may be NULL.
    let attr = unsafe { info.as_ref().and_then(|info| info.domain_attr.as_ref()) };
    let is_serialized = attr.is_some_and(|attr| attr.threading == abi::THREAD_DOMAIN);
    // SAFETY: fi_domain(3): NULL, or an answer of fi_getinfo(3).
    let format = unsafe { info.as_ref() }.map_or(0, |info| info.addr_format);
    let Some(format) = Format::of(format) else { return -abi::EINVAL };
    let Some(core) = Core::new(here, is_serialized, format) else { return -abi::ENOMEM };
    let basic = attr.is_some_and(|attr| attr.mr_mode == abi::MR_BASIC as c_int);
    let fid = abi::Fid { fclass: abi::CLASS_DOMAIN as size_t, context, ops: &FID };
    let fid = abi::FidDomain { fid, ops: &OPS, mr: &mr::OPS };
    // SAFETY: fi_domain(3): an open fabric, whose version libfabric has written.
    let api_version = unsafe { (*fabric).api_version };
    let made = Domain { fid, core: Arc::new(core), basic, keys: AtomicU64::new(1), api_version };
    // SAFETY: fi_domain(3) lets us write the domain there.
    unsafe { domain.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: fi_close(3): an open domain of this provider, whose fid is its first field.
    let core = &unsafe { &*fid.cast::<Domain>() }.core;
    if !core.lock().endpoints.is_empty() {
        return -abi::EBUSY;
    }
    // SAFETY: `open` has made the domain with `Box::into_raw`, and fi_close(3) is called once.
    let domain = unsafe { Box::from_raw(fid.cast::<Domain>()) };
    // Peers may be about to ring its doorbell or to look up a key, so it is leaked.
    std::mem::forget(domain.core.clone());
    0
}

unsafe extern "C" fn bind(_: *mut abi::Fid, _: *mut abi::Fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn control(_: *mut abi::Fid, _: c_int, _: *mut c_void) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn no_scalable_endpoint(
    _: *mut abi::FidDomain,
    _: *mut abi::Info,
    _: *mut *mut abi::FidEp,
    _: *mut c_void,
) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn no_shared_send(
    _: *mut abi::FidDomain,
    _: *mut abi::TxAttr,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    -abi::ENOSYS
}
