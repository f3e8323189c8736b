//! What UCX's callbacks note: they decide nothing, and touch nothing else.
//!
//! UCX calls back from inside its own calls. What happened is put into an [`Inbox`], which the
//! worker reads afterwards. What UCX may still read or write (headers, payloads, places to
//! receive into) lives in an [`Operation`] until UCX says that it is complete.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;

use slotmap::DefaultKey;

use crate::payload::Payload;
use crate::ucp::*;

/// What has happened.
pub enum Happened {
    /// An active message has come.
    Came {
        /// All of its header.
        header: Vec<u8>,
        /// What comes with it.
        data: Data,
    },
    /// A send is complete: what `send` was given, and whether it failed.
    Sent(u64, ucs_status_t),
    /// A receipt is complete: what `receive` was given, and the landing if it did not fail.
    Received(u64, Option<Landing>),
    /// An endpoint has failed: what `connect` was given.
    Failed(u64, ucs_status_t),
    /// An endpoint is closed: what `connect` was given.
    Closed(u64),
    /// All is out.
    Flushed,
}

/// The data of an active message.
pub enum Data {
    /// Here they are.
    Here(Vec<u8>),
    /// UCX has them, or can get them: see `Worker::receive`.
    There(There),
}

/// Data that UCX has for us, to be received or refused.
pub struct There {
    /// UCX's name for them.
    pub descriptor: *mut c_void,
    /// Length.
    pub bytes: usize,
    /// Whether they are still with the sender.
    pub announced: bool,
}

/// Where data go.
#[derive(Debug)]
pub enum Landing {
    /// Memory of our own.
    Bytes(Vec<u8>),
    /// Memory of the user's, who says that so many bytes may be written there.
    Place(NonNull<u8>, usize),
}

impl Landing {
    /// Where it begins, and its length in bytes.
    pub fn extent(&mut self) -> (*mut u8, usize) {
        match self {
            Self::Bytes(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            Self::Place(start, bytes) => (start.as_ptr(), *bytes),
        }
    }
}

// SAFETY: memory that no thread is bound to.
unsafe impl Send for Landing {}

/// Which endpoint has failed: the error handler's argument.
pub struct Failure {
    /// The worker's.
    pub inbox: *const Inbox,
    /// What `connect` was given.
    pub tag: u64,
}

/// What has happened and was not handled yet.
pub type Inbox = RefCell<VecDeque<Noted>>;

/// What callbacks note.
pub enum Noted {
    /// For the worker's user.
    Happened(Happened),
    /// An operation is complete.
    Complete(DefaultKey, ucs_status_t),
}

/// What UCX is busy with, and the memory that it uses for it.
pub struct Operation {
    /// The worker's.
    pub inbox: *const Inbox,
    /// The worker's name for it.
    pub key: DefaultKey,
    /// What it is.
    pub work: Work,
}

/// Kinds of operations. The tags are what the calls were given.
#[allow(missing_docs)]
pub enum Work {
    Send { tag: u64, _header: Vec<u8>, _payload: Payload },
    Receive { tag: u64, landing: Landing },
    Close { failure: Box<Failure> },
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
        // SAFETY: UCX says that so many bytes are there, until we return.
        _ => unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) }.to_vec(),
    };
    // SAFETY: UCX's, while we are called.
    let attr = unsafe { (*param).recv_attr };
    let header = copy(header, header_bytes);
    let announced = attr & UCP_AM_RECV_ATTR_FLAG_RNDV != 0;
    let stays = announced || attr & UCP_AM_RECV_ATTR_FLAG_DATA != 0;
    let (data, status) = match stays {
        true => (Data::There(There { descriptor: data, bytes, announced }), UCS_INPROGRESS),
        false => (Data::Here(copy(data, bytes)), UCS_OK),
    };
    // SAFETY: the handler's argument, which lives as long as the worker.
    let inbox = unsafe { &*inbox.cast::<Inbox>() };
    inbox.borrow_mut().push_back(Noted::Happened(Happened::Came { header, data }));
    status
}

/// An endpoint has failed.
pub extern "C" fn failed(failure: *mut c_void, _: *mut ucp_ep, status: ucs_status_t) {
    // SAFETY: the handler's argument, which lives until the endpoint is closed.
    let failure = unsafe { &*failure.cast::<Failure>() };
    // SAFETY: the worker's, which lives longer.
    let inbox = unsafe { &*failure.inbox };
    inbox.borrow_mut().push_back(Noted::Happened(Happened::Failed(failure.tag, status)));
}

/// A send, a flush or a close is complete.
pub extern "C" fn complete(request: *mut c_void, status: ucs_status_t, operation: *mut c_void) {
    // SAFETY: the operation is ours until we have noted that it is complete; its inbox lives as
    // long as the worker.
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
