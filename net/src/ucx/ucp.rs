//! The used part of UCX's UCP interface, declared by hand and loaded at run time. So a program on
//! one node neither links nor loads UCX.
//!
//! Structures carry a mask of their valid fields, and so may only grow. Those of UCX 1.10, the
//! first version with `ucp_am_send_nbx`, serve all later ones. UCX does not read fields beyond
//! those in the mask. Structures that UCX fills have the length of UCX 1.13 here, and UCX fills
//! them by mask, too. A test compiles a C program against UCX's headers and compares every offset,
//! size and constant.

#![allow(non_camel_case_types)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use crate::declare::{constants, functions, opaque, structures};
use crate::signals;

/// File name of the library. It contains the ABI version.
const LIBRARY: &str = "libucp.so.0";

/// A packed C enumeration: one byte, negative for errors.
pub type ucs_status_t = i8;
/// Nothing, an error (the last hundred addresses), or a request.
pub type ucs_status_ptr_t = *mut c_void;

opaque! { ucp_address ucp_config ucp_context ucp_ep ucp_mem ucp_rkey ucp_worker }

constants! {
    UCS_OK: ucs_status_t = 0;
    UCS_INPROGRESS: ucs_status_t = 1;
    UCS_ERR_BUSY: ucs_status_t = -15;
    UCS_ERR_CANCELED: ucs_status_t = -16;
    UCS_ERR_ENDPOINT_TIMEOUT: ucs_status_t = -80;
    UCS_ERR_LAST: ucs_status_t = -100;
    UCS_THREAD_MODE_SERIALIZED: c_int = 1;
    UCP_PARAM_FIELD_FEATURES: u64 = 1 << 0;
    UCP_FEATURE_RMA: u64 = 1 << 1;
    UCP_FEATURE_WAKEUP: u64 = 1 << 4;
    UCP_FEATURE_AM: u64 = 1 << 6;
    UCP_WORKER_PARAM_FIELD_THREAD_MODE: u64 = 1 << 0;
    UCP_WORKER_ATTR_FIELD_ADDRESS: u64 = 1 << 1;
    UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS: u64 = 1 << 2;
    UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER: u64 = 1 << 3;
    UCP_WORKER_ADDRESS_FLAG_NET_ONLY: u32 = 1 << 0;
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS: u64 = 1 << 0;
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE: u64 = 1 << 1;
    UCP_EP_PARAM_FIELD_ERR_HANDLER: u64 = 1 << 2;
    UCP_ERR_HANDLING_MODE_PEER: c_int = 1;
    UCP_EP_CLOSE_FLAG_FORCE: u32 = 1 << 0;
    UCP_AM_HANDLER_PARAM_FIELD_ID: u64 = 1 << 0;
    UCP_AM_HANDLER_PARAM_FIELD_FLAGS: u64 = 1 << 1;
    UCP_AM_HANDLER_PARAM_FIELD_CB: u64 = 1 << 2;
    UCP_AM_HANDLER_PARAM_FIELD_ARG: u64 = 1 << 3;
    UCP_AM_FLAG_WHOLE_MSG: u32 = 1 << 0;
    UCP_AM_SEND_FLAG_EAGER: u32 = 1 << 1;
    UCP_AM_RECV_ATTR_FLAG_DATA: u64 = 1 << 16;
    UCP_AM_RECV_ATTR_FLAG_RNDV: u64 = 1 << 17;
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS: u64 = 1 << 0;
    UCP_MEM_MAP_PARAM_FIELD_LENGTH: u64 = 1 << 1;
    UCP_OP_ATTR_FIELD_CALLBACK: u32 = 1 << 1;
    UCP_OP_ATTR_FIELD_USER_DATA: u32 = 1 << 2;
    UCP_OP_ATTR_FIELD_FLAGS: u32 = 1 << 4;
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL: u32 = 1 << 16;
}

structures! {
    /// Parameters of a context.
    pub struct ucp_params_t {
        field_mask: u64,
        features: u64,
        request_size: usize,
        request_init: *const c_void,
        request_cleanup: *const c_void,
        tag_sender_mask: u64,
        mt_workers_shared: c_int,
        estimated_num_eps: usize,
        estimated_num_ppn: usize,
        name: *const c_char,
    }
    /// Parameters of a worker.
    pub struct ucp_worker_params_t {
        field_mask: u64,
        thread_mode: c_int,
        cpu_mask: [u64; 16],
        events: c_uint,
        user_data: *mut c_void,
        event_fd: c_int,
        flags: u64,
        name: *const c_char,
        am_alignment: usize,
        client_id: u64,
    }
    /// Attributes of a worker.
    pub struct ucp_worker_attr_t {
        field_mask: u64,
        thread_mode: c_int,
        address_flags: u32,
        address: *mut ucp_address,
        address_length: usize,
        max_am_header: usize,
        name: [u8; 32],
        max_debug_string: usize,
    }
    /// Callback for the failure of an endpoint.
    pub struct ucp_err_handler_t {
        cb: Option<extern "C" fn(arg: *mut c_void, ep: *mut ucp_ep, status: ucs_status_t)>,
        arg: *mut c_void,
    }
    /// A socket's address.
    pub struct ucs_sock_addr_t {
        addr: *const c_void,
        addrlen: u32,
    }
    /// Parameters of an endpoint.
    pub struct ucp_ep_params_t {
        field_mask: u64,
        address: *const ucp_address,
        err_mode: c_int,
        err_handler: ucp_err_handler_t,
        user_data: *mut c_void,
        flags: c_uint,
        sockaddr: ucs_sock_addr_t,
        conn_request: *mut c_void,
        name: *const c_char,
        local_sockaddr: ucs_sock_addr_t,
    }
    /// Parameters of an active-message handler.
    pub struct ucp_am_handler_param_t {
        field_mask: u64,
        id: c_uint,
        flags: u32,
        cb: Option<ucp_am_recv_callback_t>,
        arg: *mut c_void,
    }
    /// Parameters of an active-message handler.
    pub struct ucp_am_recv_param_t {
        recv_attr: u64,
        reply_ep: *mut ucp_ep,
    }
    /// Parameters of a registration of memory.
    pub struct ucp_mem_map_params_t {
        field_mask: u64,
        address: *mut c_void,
        length: usize,
        flags: c_uint,
        prot: c_uint,
        memory_type: c_int,
    }
    /// Parameters of an operation.
    pub struct ucp_request_param_t {
        op_attr_mask: u32,
        flags: u32,
        request: *mut c_void,
        cb: Completion,
        datatype: u64,
        user_data: *mut c_void,
        reply_buffer: *mut c_void,
        memory_type: c_int,
        recv_info: *mut c_void,
        memh: *mut ucp_mem,
    }
}

/// Callback for the completion of an operation: a union in C.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Completion {
    /// Of a send, a write, a read, a flush or a close.
    pub send: Option<ucp_send_nbx_callback_t>,
    /// Of the receipt of an active message's data.
    pub recv_am: Option<ucp_am_recv_data_nbx_callback_t>,
}

/// Called for each active message.
pub type ucp_am_recv_callback_t = extern "C" fn(
    arg: *mut c_void,
    header: *const c_void,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const ucp_am_recv_param_t,
) -> ucs_status_t;
/// Called when a send is complete.
pub type ucp_send_nbx_callback_t =
    extern "C" fn(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void);
/// Called when the data of an active message have been received.
pub type ucp_am_recv_data_nbx_callback_t = extern "C" fn(
    request: *mut c_void,
    status: ucs_status_t,
    length: usize,
    user_data: *mut c_void,
);

functions! {
    /// UCP's functions, as ucp.h describes them.
    pub struct Ucp {
        ucp_get_version: fn(major: *mut c_uint, minor: *mut c_uint, release: *mut c_uint);
        ucs_status_string: fn(status: ucs_status_t) -> *const c_char;
        ucp_config_read: fn(env_prefix: *const c_char, filename: *const c_char,
            config: *mut *mut ucp_config) -> ucs_status_t;
        ucp_config_modify: fn(config: *mut ucp_config, name: *const c_char, value: *const c_char)
            -> ucs_status_t;
        ucp_config_release: fn(config: *mut ucp_config);
        ucp_init_version: fn(major: c_uint, minor: c_uint, params: *const ucp_params_t,
            config: *const ucp_config, context: *mut *mut ucp_context) -> ucs_status_t;
        ucp_cleanup: fn(context: *mut ucp_context);
        ucp_worker_create: fn(context: *mut ucp_context, params: *const ucp_worker_params_t,
            worker: *mut *mut ucp_worker) -> ucs_status_t;
        ucp_worker_destroy: fn(worker: *mut ucp_worker);
        ucp_worker_query: fn(worker: *mut ucp_worker, attr: *mut ucp_worker_attr_t) -> ucs_status_t;
        ucp_worker_release_address: fn(worker: *mut ucp_worker, address: *mut ucp_address);
        ucp_worker_progress: fn(worker: *mut ucp_worker) -> c_uint;
        ucp_worker_flush_nbx: fn(worker: *mut ucp_worker, param: *const ucp_request_param_t)
            -> ucs_status_ptr_t;
        ucp_worker_get_efd: fn(worker: *mut ucp_worker, fd: *mut c_int) -> ucs_status_t;
        ucp_worker_arm: fn(worker: *mut ucp_worker) -> ucs_status_t;
        ucp_worker_set_am_recv_handler: fn(worker: *mut ucp_worker,
            param: *const ucp_am_handler_param_t) -> ucs_status_t;
        ucp_ep_create: fn(worker: *mut ucp_worker, params: *const ucp_ep_params_t,
            ep: *mut *mut ucp_ep) -> ucs_status_t;
        ucp_ep_close_nbx: fn(ep: *mut ucp_ep, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        ucp_am_send_nbx: fn(ep: *mut ucp_ep, id: c_uint, header: *const c_void, header_length: usize,
            buffer: *const c_void, count: usize, param: *const ucp_request_param_t)
            -> ucs_status_ptr_t;
        ucp_am_recv_data_nbx: fn(worker: *mut ucp_worker, data_desc: *mut c_void,
            buffer: *mut c_void, count: usize, param: *const ucp_request_param_t)
            -> ucs_status_ptr_t;
        ucp_am_data_release: fn(worker: *mut ucp_worker, data: *mut c_void);
        ucp_request_free: fn(request: *mut c_void);
        ucp_mem_map: fn(context: *mut ucp_context, params: *const ucp_mem_map_params_t,
            memh: *mut *mut ucp_mem) -> ucs_status_t;
        ucp_mem_unmap: fn(context: *mut ucp_context, memh: *mut ucp_mem) -> ucs_status_t;
        ucp_rkey_pack: fn(context: *mut ucp_context, memh: *mut ucp_mem, buffer: *mut *mut c_void,
            size: *mut usize) -> ucs_status_t;
        ucp_rkey_buffer_release: fn(buffer: *mut c_void);
        ucp_ep_rkey_unpack: fn(ep: *mut ucp_ep, buffer: *const c_void, rkey: *mut *mut ucp_rkey)
            -> ucs_status_t;
        ucp_rkey_destroy: fn(rkey: *mut ucp_rkey);
        ucp_put_nbx: fn(ep: *mut ucp_ep, buffer: *const c_void, count: usize, remote_addr: u64,
            rkey: *mut ucp_rkey, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        ucp_get_nbx: fn(ep: *mut ucp_ep, buffer: *mut c_void, count: usize, remote_addr: u64,
            rkey: *mut ucp_rkey, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        ucp_ep_flush_nbx: fn(ep: *mut ucp_ep, param: *const ucp_request_param_t)
            -> ucs_status_ptr_t;
    }
}

/// The result of a call that may have started an operation.
pub enum Started {
    /// It is done, and its callback will not be called.
    Done,
    /// Its callback will be called.
    Pending,
    /// It failed, and its callback will not be called.
    Failed(ucs_status_t),
}

impl Started {
    /// Of a status pointer.
    pub fn of(pointer: ucs_status_ptr_t) -> Self {
        let bits = pointer as isize;
        match bits {
            0 => Self::Done,
            _ if (UCS_ERR_LAST as isize..0).contains(&bits) => Self::Failed(bits as ucs_status_t),
            _ => Self::Pending,
        }
    }
}

impl Ucp {
    /// UCP, loaded at the first call. The error is one line.
    pub fn get() -> Result<&'static Self, &'static str> {
        static UCP: OnceLock<Result<Ucp, String>> = OnceLock::new();
        UCP.get_or_init(Self::load).as_ref().map_err(String::as_str)
    }

    fn load() -> Result<Self, String> {
        let library = signals::undisturbed(|| {
            // SAFETY: UCX's constructors read its environment variables and install handlers
            // for fatal signals, which `undisturbed` takes out again.
            unsafe { libloading::Library::new(LIBRARY) }
        });
        let library = library.map_err(|error| {
            format!(
                "UCX, which carries messages between nodes, is missing here: {error}; install \
                 it (Debian, Ubuntu: libucx0; Fedora, RHEL: ucx)"
            )
        })?;
        let ucp = Self::of(&library).map_err(|error| {
            format!("this {LIBRARY} is too old: {error}; install UCX 1.10 or newer")
        });
        // It has threads and exit handlers: it stays.
        std::mem::forget(library);
        ucp
    }

    /// Describes a status, in UCX's words where those are right.
    pub fn reason(&self, status: ucs_status_t) -> &'static str {
        // UCX 1.13 reports every failure of a TCP connection as a timeout, the end of the peer's
        // process above all.
        if status == UCS_ERR_ENDPOINT_TIMEOUT {
            return "the connection broke: its process has ended, or its host or network failed";
        }
        // SAFETY: a string that UCX has for each status, or for any other.
        let text = unsafe { CStr::from_ptr((self.ucs_status_string)(status)) };
        text.to_str().unwrap_or("unknown error")
    }

    /// Major and minor.
    pub fn version(&self) -> (u32, u32) {
        let [mut major, mut minor, mut release] = [0; 3];
        // SAFETY: the arguments are three local numbers.
        unsafe { (self.ucp_get_version)(&mut major, &mut minor, &mut release) };
        (major, minor)
    }
}
