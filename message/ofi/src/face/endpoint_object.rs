//! libfabric's object for an endpoint.

use std::sync::Arc;

use crate::abi;
use crate::engine::state::Core;

/// An endpoint.
#[repr(C)]
pub struct EndpointObject {
    /// libfabric's part.
    pub fid: abi::FidEp,
    pub core: Arc<Core>,
    /// Its number among the domain's.
    pub number: usize,
}

/// # Safety
/// An open endpoint of ours.
#[inline]
pub unsafe fn of<'a>(endpoint: *mut abi::FidEp) -> &'a EndpointObject {
    // SAFETY: its fid is its first member.
    unsafe { &*endpoint.cast::<EndpointObject>() }
}
