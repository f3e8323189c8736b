//! The carrier over UCX: a context and a worker behind safe calls. Besides this file only
//! `memory` calls UCP.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use slotmap::{DefaultKey, Key as _, SlotMap};
use sync::wait::Backoff;

use super::config::Config;
use super::inbox::{Failure, Inbox, Noted, Operation, Work, came, complete, failed, received};
use super::sockets::Sockets;
use super::ucp::*;
use crate::carrier::{
    Carrier, Data, EndpointId, Happened, Landing, OneSided, Reason, Sending, There, Way, key_of,
};
use crate::error::FabricError;
use crate::payload::Payload;
use crate::signals;

/// UCX's name for our only handler.
const MESSAGE: u32 = 0;
/// Maximum time to wait at the end for UCX to release its resources.
const END_MAX: Duration = Duration::from_secs(1);

/// A way to a peer.
pub(super) struct Endpoint {
    pub(super) ep: *mut ucp_ep,
    /// The error handler's argument, which must live until the endpoint is closed.
    failure: Box<Failure>,
    /// The keys of the peer's memory.
    pub(super) keys: Vec<*mut ucp_rkey>,
}

/// A context with one worker.
pub struct Worker {
    pub(super) ucp: &'static Ucp,
    pub(super) context: *mut ucp_context,
    worker: *mut ucp_worker,
    descriptor: RawFd,
    /// Boxed: callbacks have its address.
    inbox: Box<Inbox>,
    operations: SlotMap<DefaultKey, Box<Operation>>,
    pub(super) endpoints: SlotMap<DefaultKey, Endpoint>,
    /// Memory that peers may read and write.
    pub(super) registered: Vec<*mut ucp_mem>,
    is_one_sided: bool,
    sockets: Sockets,
}

/// Requests of a user of the carrier.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wants {
    /// UCX may use TCP.
    pub tcp: bool,
    /// Memory of peers is read and written.
    pub one_sided: bool,
}

// SAFETY: the worker's thread mode is serialized, and everything else belongs to it.
unsafe impl Send for Worker {}

impl Worker {
    /// A new one.
    pub fn new(wants: Wants) -> Result<Self, FabricError> {
        let (worker, sockets) = Sockets::new(|| Self::open(wants));
        let mut worker = worker?;
        worker.sockets = sockets;
        Ok(worker)
    }

    fn open(wants: Wants) -> Result<Self, FabricError> {
        let ucp = Ucp::get().map_err(FabricError::Missing)?;
        let check = |doing, status| match status {
            UCS_OK => Ok(()),
            status => Err(FabricError::Ucx { doing, why: ucp.reason(status) }),
        };
        let mut this = Self {
            ucp,
            context: null_mut(),
            worker: null_mut(),
            descriptor: -1,
            inbox: Box::default(),
            operations: SlotMap::new(),
            endpoints: SlotMap::new(),
            registered: Vec::new(),
            is_one_sided: wants.one_sided,
            sockets: Sockets::default(),
        };
        let config = Config::new(ucp, wants.tcp)?;
        let one_sided = if wants.one_sided { UCP_FEATURE_RMA } else { 0 };
        let params = ucp_params_t {
            field_mask: UCP_PARAM_FIELD_FEATURES,
            features: UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | one_sided,
            ..ucp_params_t::empty()
        };
        let worker_params = ucp_worker_params_t {
            field_mask: UCP_WORKER_PARAM_FIELD_THREAD_MODE,
            thread_mode: UCS_THREAD_MODE_SERIALIZED,
            ..ucp_worker_params_t::empty()
        };
        let handler = ucp_am_handler_param_t {
            field_mask: UCP_AM_HANDLER_PARAM_FIELD_ID
                | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                | UCP_AM_HANDLER_PARAM_FIELD_CB
                | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            id: MESSAGE,
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: Some(came),
            arg: std::ptr::from_ref::<Inbox>(&this.inbox).cast_mut().cast(),
        };
        signals::undisturbed(|| {
            // SAFETY: the masks of the structures name the fields that are set, and the pointers
            // point to fields of `this`. If an error occurs, `this` destroys the objects created
            // before it.
            unsafe {
                check(
                    "start",
                    (ucp.ucp_init_version)(1, 10, &params, config.config, &mut this.context),
                )?;
                check(
                    "make a worker",
                    (ucp.ucp_worker_create)(this.context, &worker_params, &mut this.worker),
                )?;
                check(
                    "receive active messages",
                    (ucp.ucp_worker_set_am_recv_handler)(this.worker, &handler),
                )?;
                check("wake a sleeper", (ucp.ucp_worker_get_efd)(this.worker, &mut this.descriptor))
            }
        })?;
        Ok(this)
    }

    /// Lets UCX make progress for a limited time, and drops its events.
    fn progress_until(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        let deadline = Instant::now() + END_MAX;
        let mut backoff = Backoff::default();
        while !done(self) && Instant::now() < deadline {
            if !self.progress() {
                backoff.pause();
            }
            while let Some(happened) = self.next() {
                if let Happened::Came { data: Data::There(there), .. } = happened {
                    self.refuse(there);
                }
            }
        }
        done(self)
    }

    fn note_complete(&self, key: DefaultKey, status: ucs_status_t) {
        self.inbox.borrow_mut().push_back(Noted::Complete(key, status));
    }

    fn begin(&mut self, work: Work) -> DefaultKey {
        let inbox = &raw const *self.inbox;
        self.operations.insert_with_key(|key| Box::new(Operation { inbox, key, work }))
    }

    /// Starts an operation on an endpoint. `start` gets the endpoint and the keys of its peer's
    /// memory.
    pub(super) fn operate(
        &mut self,
        endpoint: EndpointId,
        work: Work,
        start: impl FnOnce(
            &Self,
            *mut ucp_ep,
            &[*mut ucp_rkey],
            *const ucp_request_param_t,
        ) -> ucs_status_ptr_t,
    ) -> Sending {
        if !self.endpoints.contains_key(key_of(endpoint)) {
            return Sending::Failed("the connection is closed".into());
        }
        let key = self.begin(work);
        let mut param = self.parameters(key);
        param.cb = Completion { send: Some(complete) };
        let Endpoint { ep, keys, .. } = &self.endpoints[key_of(endpoint)];
        let started = Started::of(start(self, *ep, keys, &param));
        match started {
            Started::Pending => return Sending::Pending,
            Started::Done | Started::Failed(_) => self.operations.remove(key),
        };
        match started {
            Started::Failed(status) => Sending::Failed(self.ucp.reason(status).into()),
            _ => Sending::Done,
        }
    }

    fn parameters(&self, key: DefaultKey) -> ucp_request_param_t {
        ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
            user_data: std::ptr::from_ref::<Operation>(&self.operations[key]).cast_mut().cast(),
            ..ucp_request_param_t::empty()
        }
    }
}

impl Carrier for Worker {
    fn address(&self) -> Result<Vec<u8>, FabricError> {
        let mut attr = ucp_worker_attr_t {
            field_mask: UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
            address_flags: UCP_WORKER_ADDRESS_FLAG_NET_ONLY,
            ..ucp_worker_attr_t::empty()
        };
        // SAFETY: our worker and structure; the address has the length that comes with it,
        // and is released once.
        unsafe {
            let status = (self.ucp.ucp_worker_query)(self.worker, &mut attr);
            if status != UCS_OK {
                let why = self.ucp.reason(status);
                return Err(FabricError::Ucx { doing: "tell its address", why });
            }
            let bytes = std::slice::from_raw_parts(attr.address.cast::<u8>(), attr.address_length);
            let address = bytes.to_vec();
            (self.ucp.ucp_worker_release_address)(self.worker, attr.address);
            Ok(address)
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: UCX's, for as long as the worker lives.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        // SAFETY: our worker.
        match unsafe { (self.ucp.ucp_worker_arm)(self.worker) } {
            UCS_OK => Ok(true),
            UCS_ERR_BUSY => Ok(false),
            status => {
                Err(FabricError::Ucx { doing: "arm its descriptor", why: self.ucp.reason(status) })
            }
        }
    }

    fn progress(&mut self) -> bool {
        // SAFETY: `worker` is live until `Drop`. Callbacks only use the inbox, which is not
        // borrowed here.
        unsafe { (self.ucp.ucp_worker_progress)(self.worker) != 0 }
    }

    fn next(&mut self) -> Option<Happened> {
        loop {
            let noted = self.inbox.borrow_mut().pop_front()?;
            let (key, status) = match noted {
                Noted::Happened(happened) => return Some(happened),
                Noted::Failed(tag, status) => {
                    return Some(Happened::Failed(tag, self.ucp.reason(status).into()));
                }
                Noted::Complete(key, status) => (key, status),
            };
            let operation = self.operations.remove(key).expect("completes once");
            let is_ok = status == UCS_OK;
            match operation.work {
                Work::Send { tag, .. } if is_ok => return Some(Happened::Sent(tag, Ok(()))),
                Work::Send { tag, .. } => {
                    return Some(Happened::Sent(tag, Err(self.ucp.reason(status).into())));
                }
                Work::Receive { tag, landing } => {
                    return Some(Happened::Received(tag, is_ok.then_some(landing)));
                }
                Work::Close { failure, keys } => {
                    for key in keys {
                        // SAFETY: a key of an endpoint that is closed, destroyed once.
                        unsafe { (self.ucp.ucp_rkey_destroy)(key) };
                    }
                    return Some(Happened::Closed(failure.tag));
                }
                Work::Flush => {}
            }
        }
    }

    fn connect(&mut self, address: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        let failure = Box::new(Failure { inbox: &*self.inbox, tag });
        let params = ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
                | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
                | UCP_EP_PARAM_FIELD_ERR_HANDLER,
            address: address.as_ptr().cast(),
            err_mode: UCP_ERR_HANDLING_MODE_PEER,
            err_handler: ucp_err_handler_t {
                cb: Some(failed),
                arg: std::ptr::from_ref::<Failure>(&failure).cast_mut().cast(),
            },
            ..ucp_ep_params_t::empty()
        };
        let mut ep = null_mut();
        // SAFETY: our worker; the address is authenticated, and so one that UCX has made; the
        // handler's argument lives until the endpoint is closed.
        let create = || unsafe { (self.ucp.ucp_ep_create)(self.worker, &params, &mut ep) };
        let status = self.sockets.watch(create);
        if status != UCS_OK {
            return Err(self.ucp.reason(status).into());
        }
        let keys = Vec::new();
        Ok(self.endpoints.insert(Endpoint { ep, failure, keys }).data().as_ffi())
    }

    fn answer(&mut self, _: Way, address: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        self.connect(address, tag)
    }

    fn close(&mut self, endpoint: EndpointId) {
        if self.worker.is_null() {
            return; // left as it is
        }
        let key = key_of(endpoint);
        let Some(Endpoint { ep, failure, keys }) = self.endpoints.remove(key) else { return };
        let key = self.begin(Work::Close { failure, keys });
        let mut param = self.parameters(key);
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        param.cb = Completion { send: Some(complete) };
        // SAFETY: an endpoint that is closed once.
        let started = Started::of(unsafe { (self.ucp.ucp_ep_close_nbx)(ep, &param) });
        if !matches!(started, Started::Pending) {
            self.note_complete(key, UCS_OK);
        }
    }

    fn send(&mut self, endpoint: EndpointId, header: &[u8], payload: Payload, tag: u64) -> Sending {
        let (header, (start, bytes)) = (header.to_vec(), payload.extent());
        let (head, head_bytes) = (header.as_ptr(), header.len());
        let work = Work::Send { tag, _header: header, _payload: payload };
        self.operate(endpoint, work, |this, ep, _, param| {
            // SAFETY: an open endpoint; header and payload stay until the operation is complete.
            unsafe {
                let (head, start) = (head.cast(), start.cast());
                (this.ucp.ucp_am_send_nbx)(ep, MESSAGE, head, head_bytes, start, bytes, param)
            }
        })
    }

    fn receive(&mut self, there: There, mut landing: Landing, tag: u64) -> Option<Landing> {
        let (start, bytes) = landing.extent();
        assert_eq!(bytes, there.bytes, "UCX writes as much as was announced");
        let descriptor = descriptor_of(&there);
        if !there.announced {
            // UCX could copy the data, too, but 1.13 then leaks them, and 1.20 frees them wrongly.
            // SAFETY: UCX guarantees `bytes` bytes at the descriptor until it is released, and
            // `landing` is owned here.
            unsafe { start.copy_from_nonoverlapping(descriptor.cast(), bytes) };
            self.refuse(there);
            return Some(landing);
        }
        let key = self.begin(Work::Receive { tag, landing });
        let mut param = self.parameters(key);
        param.cb = Completion { recv_am: Some(received) };
        // SAFETY: a descriptor that came with a message and is used once; the landing stays
        // until the operation is complete.
        let started = Started::of(unsafe {
            let start = start.cast();
            (self.ucp.ucp_am_recv_data_nbx)(self.worker, descriptor, start, bytes, &param)
        });
        match started {
            Started::Pending => {}
            Started::Done => self.note_complete(key, UCS_OK),
            Started::Failed(status) => self.note_complete(key, status),
        }
        None
    }

    fn refuse(&mut self, there: There) {
        // SAFETY: a descriptor that came with a message and is used once.
        unsafe { (self.ucp.ucp_am_data_release)(self.worker, descriptor_of(&there)) };
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        self.is_one_sided.then_some(self as &mut dyn OneSided)
    }

    fn settle(&mut self) {
        let key = self.begin(Work::Flush);
        let mut param = self.parameters(key);
        param.cb = Completion { send: Some(complete) };
        // SAFETY: our worker.
        let started = Started::of(unsafe { (self.ucp.ucp_worker_flush_nbx)(self.worker, &param) });
        if !matches!(started, Started::Pending) {
            self.operations.remove(key);
        }
        if !self.progress_until(|this| !this.operations.contains_key(key)) {
            (self.worker, self.context) = (null_mut(), null_mut());
        }
    }

    fn tend(&mut self) {
        self.sockets.tend();
    }

    fn needs_tending(&self) -> bool {
        !self.endpoints.is_empty()
    }

    fn refused(&self) -> u64 {
        0
    }

    /// UCX's listening sockets cannot be closed.
    fn stop_listening(&mut self) {}
}

/// Returns UCX's descriptor of data, whose address is their name.
fn descriptor_of(there: &There) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(there.name as usize)
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.worker.is_null() {
            self.progress_until(|this| this.operations.is_empty());
        }
        // SAFETY: `Worker::new` created both, and they are destroyed once, the worker first. Memory
        // was registered with this context.
        unsafe {
            if !self.worker.is_null() {
                (self.ucp.ucp_worker_destroy)(self.worker);
                for memory in self.registered.drain(..) {
                    (self.ucp.ucp_mem_unmap)(self.context, memory);
                }
            }
            if !self.context.is_null() {
                (self.ucp.ucp_cleanup)(self.context);
            }
        }
    }
}
