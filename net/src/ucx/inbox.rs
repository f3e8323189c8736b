//! UCX's callbacks. They only record events, decide nothing, and touch nothing else.
//!
//! UCX calls back from inside its own functions. A callback puts its event into an [`Inbox`],
//! which the worker reads afterwards. Memory that UCX may still read or write (headers, payloads,
//! receive buffers) belongs to an [`Operation`] until UCX reports its completion.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;

use slotmap::DefaultKey;

use super::ucp::*;
use crate::carrier::{Data, Happened, Landing, There, Way};
use crate::payload::Payload;

/// Identifies an endpoint that has failed: the error handler's argument.
pub struct Failure {
    /// The worker's.
    pub inbox: *const Inbox,
    /// The tag of `connect`.
    pub tag: u64,
}

/// Events that are not handled yet.
pub type Inbox = RefCell<VecDeque<Noted>>;

/// A record of a callback.
pub enum Noted {
    /// For the worker's user.
    Happened(Happened),
    /// An endpoint has failed: the tag of `connect`.
    Failed(u64, ucs_status_t),
    /// An operation is complete.
    Complete(DefaultKey, ucs_status_t),
}

/// An operation of UCX in flight, and the memory that it uses.
pub struct Operation {
    /// The worker's.
    pub inbox: *const Inbox,
    /// The worker's name for it.
    pub key: DefaultKey,
    /// Its kind.
    pub work: Work,
}

/// Kinds of operations. The tags are what the calls were given.
#[allow(missing_docs)]
pub enum Work {
    Send { tag: u64, _header: Vec<u8>, _payload: Payload },
    Receive { tag: u64, landing: Landing },
    Close { failure: Box<Failure>, keys: Vec<*mut ucp_rkey> },
    Flush,
}

/// An active message has come.
pub extern "C" fn came(
    inbox: *mut c_void,
    header: *const c_void,
    header_bytes: usize,
    data: *mut c_void,
    bytes: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t {
    let copy = |start: *const c_void, bytes: usize| match bytes {
        0 => Vec::new(),
        // SAFETY: UCX guarantees `bytes` bytes at `start` until this callback returns.
        _ => unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) }.to_vec(),
    };
    // SAFETY: UCX guarantees `param` until this callback returns.
    let attr = unsafe { (*param).recv_attr };
    let header = copy(header, header_bytes);
    let announced = attr & UCP_AM_RECV_ATTR_FLAG_RNDV != 0;
    let stays = announced || attr & UCP_AM_RECV_ATTR_FLAG_DATA != 0;
    let (data, status) = match stays {
        true => (
            Data::There(There { name: data.expose_provenance() as u64, bytes, announced }),
            UCS_INPROGRESS,
        ),
        false => (Data::Here(copy(data, bytes)), UCS_OK),
    };
    // SAFETY: the handler's argument, which lives as long as the worker.
    let inbox = unsafe { &*inbox.cast::<Inbox>() };
    inbox.borrow_mut().push_back(Noted::Happened(Happened::Came { header, data, way: Way(0) }));
    status
}

/// An endpoint has failed.
pub extern "C" fn failed(failure: *mut c_void, _: *mut ucp_ep, status: ucs_status_t) {
    // SAFETY: the handler's argument, which lives until the endpoint is closed.
    let failure = unsafe { &*failure.cast::<Failure>() };
    // SAFETY: the worker's, which lives longer.
    let inbox = unsafe { &*failure.inbox };
    inbox.borrow_mut().push_back(Noted::Failed(failure.tag, status));
}

/// A send, a write, a read, a flush or a close is complete.
pub extern "C" fn complete(request: *mut c_void, status: ucs_status_t, operation: *mut c_void) {
    // SAFETY: the operation belongs to this callback until it has recorded the completion; its
    // inbox lives as long as the worker.
    let (inbox, key) = unsafe {
        let operation = &*operation.cast::<Operation>();
        (&*operation.inbox, operation.key)
    };
    inbox.borrow_mut().push_back(Noted::Complete(key, status));
    let ucp = Ucp::get().expect("it calls us");
    // SAFETY: a request of UCX's, freed once.
    unsafe { (ucp.ucp_request_free)(request) };
}

/// Data have been received.
pub extern "C" fn received(
    request: *mut c_void,
    status: ucs_status_t,
    _: usize,
    operation: *mut c_void,
) {
    complete(request, status, operation);
}
