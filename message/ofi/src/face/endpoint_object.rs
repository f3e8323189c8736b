//! libfabric's object for an endpoint.

use std::sync::Arc;

use crate::abi;
use crate::engine::state::Core;

/// An endpoint.
#[repr(C)]
pub struct EndpointObject {
    /// libfabric's part of it.
    pub fid: abi::FidEp,
    pub core: Arc<Core>,
    /// The number in the domain.
    pub number: usize,
}

/// Returns our object.
///
/// # Safety
/// `endpoint` is an open endpoint of this provider.
#[inline]
pub unsafe fn of<'a>(endpoint: *mut abi::FidEp) -> &'a EndpointObject {
    // SAFETY: `endpoint::open` has made an `EndpointObject`, whose fid is its first field.
    unsafe { &*endpoint.cast::<EndpointObject>() }
}
