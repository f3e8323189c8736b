//! libfabric's binary interface, for providers of messages and remote memory: structures, tables of
//! calls and constants of `rdma/*.h`. Names are libfabric's, in Rust's spelling. Versions since 1.5
//! have only appended to these structures.
//!
//! `tests/abi.rs` compiles a C program that compares all of it with the installed headers.

#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_void};

pub use libc::{iovec, size_t, ssize_t};

/// `FI_VERSION`.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// `FI_ADDR_UNSPEC` and `FI_ADDR_NOTAVAIL`.
pub const ADDR_UNSPEC: u64 = u64::MAX;

/// Constants by libfabric's names, and a table of them for the test.
macro_rules! constants {
    ($(#[$doc:meta])* $table:ident: $type:ty { $($name:ident = $value:expr, $c:literal;)* }) => {
        $(pub const $name: $type = $value;)*
        $(#[$doc])*
        pub const $table: &[(&str, u64)] = &[$(($c, $name as u64)),*];
    };
}

constants! {
    /// Capabilities, flags of operations and mode bits.
    FLAGS: u64 {
        MSG = 1 << 1, "FI_MSG";
        RMA = 1 << 2, "FI_RMA";
        TAGGED = 1 << 3, "FI_TAGGED";
        ATOMIC = 1 << 4, "FI_ATOMIC";
        READ = 1 << 8, "FI_READ";
        WRITE = 1 << 9, "FI_WRITE";
        RECV = 1 << 10, "FI_RECV";
        SEND = 1 << 11, "FI_SEND";
        REMOTE_READ = 1 << 12, "FI_REMOTE_READ";
        REMOTE_WRITE = 1 << 13, "FI_REMOTE_WRITE";
        MULTI_RECV = 1 << 16, "FI_MULTI_RECV";
        REMOTE_CQ_DATA = 1 << 17, "FI_REMOTE_CQ_DATA";
        MORE = 1 << 18, "FI_MORE";
        PEEK = 1 << 19, "FI_PEEK";
        FENCE = 1 << 21, "FI_FENCE";
        COMPLETION = 1 << 24, "FI_COMPLETION";
        INJECT = 1 << 25, "FI_INJECT";
        INJECT_COMPLETE = 1 << 26, "FI_INJECT_COMPLETE";
        TRANSMIT_COMPLETE = 1 << 27, "FI_TRANSMIT_COMPLETE";
        DELIVERY_COMPLETE = 1 << 28, "FI_DELIVERY_COMPLETE";
        MATCH_COMPLETE = 1 << 31, "FI_MATCH_COMPLETE";
        LOCAL_COMM = 1 << 51, "FI_LOCAL_COMM";
        REMOTE_COMM = 1 << 52, "FI_REMOTE_COMM";
        PROV_ATTR_ONLY = 1 << 54, "FI_PROV_ATTR_ONLY";
        NUMERICHOST = 1 << 55, "FI_NUMERICHOST";
        RMA_EVENT = 1 << 56, "FI_RMA_EVENT";
        SOURCE = 1 << 57, "FI_SOURCE";
        DIRECTED_RECV = 1 << 59, "FI_DIRECTED_RECV";
        CLAIM = 1 << 59, "FI_CLAIM";
        DISCARD = 1 << 58, "FI_DISCARD";
        SYNC_ERR = 1 << 58, "FI_SYNC_ERR";
        SELECTIVE_COMPLETION = 1 << 59, "FI_SELECTIVE_COMPLETION";
        CONTEXT = 1 << 59, "FI_CONTEXT";
        ORDER_SAS = 1 << 8, "FI_ORDER_SAS";
        FETCH_ATOMIC = 1 << 58, "FI_FETCH_ATOMIC";
        COMPARE_ATOMIC = 1 << 59, "FI_COMPARE_ATOMIC";
    }
}

/// All orders between messages and remote memory operations: `FI_ORDER_STRICT`, without
/// `FI_ORDER_DATA`.
pub const ORDER_STRICT: u64 = 0x1ff;
/// `FI_ORDER_RMA_*` and `FI_ORDER_ATOMIC_*`.
pub const ORDER_EACH: u64 = 0xff << 32;

constants! {
    /// Values of enumerations.
    NUMBERS: u32 {
        ADDR_STR = 9, "FI_ADDR_STR";
        EP_RDM = 3, "FI_EP_RDM";
        EP_UNSPEC = 0, "FI_EP_UNSPEC";
        AV_UNSPEC = 0, "FI_AV_UNSPEC";
        AV_MAP = 1, "FI_AV_MAP";
        AV_TABLE = 2, "FI_AV_TABLE";
        PROGRESS_UNSPEC = 0, "FI_PROGRESS_UNSPEC";
        PROGRESS_AUTO = 1, "FI_PROGRESS_AUTO";
        PROGRESS_MANUAL = 2, "FI_PROGRESS_MANUAL";
        THREAD_UNSPEC = 0, "FI_THREAD_UNSPEC";
        THREAD_SAFE = 1, "FI_THREAD_SAFE";
        THREAD_DOMAIN = 3, "FI_THREAD_DOMAIN";
        RM_ENABLED = 2, "FI_RM_ENABLED";
        CLASS_FABRIC = 1, "FI_CLASS_FABRIC";
        CLASS_DOMAIN = 2, "FI_CLASS_DOMAIN";
        CLASS_EP = 3, "FI_CLASS_EP";
        CLASS_SRX_CTX = 6, "FI_CLASS_SRX_CTX";
        CLASS_AV = 11, "FI_CLASS_AV";
        CLASS_MR = 12, "FI_CLASS_MR";
        CLASS_EQ = 13, "FI_CLASS_EQ";
        CLASS_CQ = 14, "FI_CLASS_CQ";
        CLASS_CNTR = 15, "FI_CLASS_CNTR";
        CLASS_WAIT = 16, "FI_CLASS_WAIT";
        CLASS_POLL = 17, "FI_CLASS_POLL";
        WAIT_NONE = 0, "FI_WAIT_NONE";
        WAIT_UNSPEC = 1, "FI_WAIT_UNSPEC";
        WAIT_SET = 2, "FI_WAIT_SET";
        WAIT_FD = 3, "FI_WAIT_FD";
        WAIT_YIELD = 5, "FI_WAIT_YIELD";
        CQ_FORMAT_UNSPEC = 0, "FI_CQ_FORMAT_UNSPEC";
        CQ_FORMAT_CONTEXT = 1, "FI_CQ_FORMAT_CONTEXT";
        CQ_FORMAT_MSG = 2, "FI_CQ_FORMAT_MSG";
        CQ_FORMAT_DATA = 3, "FI_CQ_FORMAT_DATA";
        CQ_FORMAT_TAGGED = 4, "FI_CQ_FORMAT_TAGGED";
        CQ_COND_THRESHOLD = 1, "FI_CQ_COND_THRESHOLD";
        GETOPSFLAG = 2, "FI_GETOPSFLAG";
        SETOPSFLAG = 3, "FI_SETOPSFLAG";
        GETWAIT = 5, "FI_GETWAIT";
        ENABLE = 6, "FI_ENABLE";
        GETWAITOBJ = 16, "FI_GETWAITOBJ";
        OPT_ENDPOINT = 0, "FI_OPT_ENDPOINT";
        OPT_MIN_MULTI_RECV = 0, "FI_OPT_MIN_MULTI_RECV";
        MR_BASIC = 1, "FI_MR_BASIC";
        MR_SCALABLE = 2, "FI_MR_SCALABLE";
        MR_VIRT_ADDR = 1 << 4, "FI_MR_VIRT_ADDR";
        MR_ALLOCATED = 1 << 5, "FI_MR_ALLOCATED";
        MR_PROV_KEY = 1 << 6, "FI_MR_PROV_KEY";
        INT8 = 0, "FI_INT8";
        UINT8 = 1, "FI_UINT8";
        INT16 = 2, "FI_INT16";
        UINT16 = 3, "FI_UINT16";
        INT32 = 4, "FI_INT32";
        UINT32 = 5, "FI_UINT32";
        INT64 = 6, "FI_INT64";
        UINT64 = 7, "FI_UINT64";
        FLOAT = 8, "FI_FLOAT";
        DOUBLE = 9, "FI_DOUBLE";
        FLOAT_COMPLEX = 10, "FI_FLOAT_COMPLEX";
        DOUBLE_COMPLEX = 11, "FI_DOUBLE_COMPLEX";
        LONG_DOUBLE = 12, "FI_LONG_DOUBLE";
        LONG_DOUBLE_COMPLEX = 13, "FI_LONG_DOUBLE_COMPLEX";
        MIN = 0, "FI_MIN";
        MAX = 1, "FI_MAX";
        SUM = 2, "FI_SUM";
        PROD = 3, "FI_PROD";
        LOR = 4, "FI_LOR";
        LAND = 5, "FI_LAND";
        BOR = 6, "FI_BOR";
        BAND = 7, "FI_BAND";
        LXOR = 8, "FI_LXOR";
        BXOR = 9, "FI_BXOR";
        ATOMIC_READ = 10, "FI_ATOMIC_READ";
        ATOMIC_WRITE = 11, "FI_ATOMIC_WRITE";
        CSWAP = 12, "FI_CSWAP";
        CSWAP_NE = 13, "FI_CSWAP_NE";
        CSWAP_LE = 14, "FI_CSWAP_LE";
        CSWAP_LT = 15, "FI_CSWAP_LT";
        CSWAP_GE = 16, "FI_CSWAP_GE";
        CSWAP_GT = 17, "FI_CSWAP_GT";
        MSWAP = 18, "FI_MSWAP";
        LOG_WARN = 0, "FI_LOG_WARN";
        LOG_INFO = 2, "FI_LOG_INFO";
        LOG_CORE = 0, "FI_LOG_CORE";
        LOG_EP_CTRL = 3, "FI_LOG_EP_CTRL";
        LOG_AV = 5, "FI_LOG_AV";
    }
}

constants! {
    /// Errors. Calls return them negated.
    ERRORS: i32 {
        ENOENT = libc::ENOENT, "FI_ENOENT";
        EIO = libc::EIO, "FI_EIO";
        EAGAIN = libc::EAGAIN, "FI_EAGAIN";
        ENOMEM = libc::ENOMEM, "FI_ENOMEM";
        EACCES = libc::EACCES, "FI_EACCES";
        EFAULT = libc::EFAULT, "FI_EFAULT";
        EALREADY = libc::EALREADY, "FI_EALREADY";
        EBUSY = libc::EBUSY, "FI_EBUSY";
        EINVAL = libc::EINVAL, "FI_EINVAL";
        ENOSYS = libc::ENOSYS, "FI_ENOSYS";
        ENOMSG = libc::ENOMSG, "FI_ENOMSG";
        ENODATA = libc::ENODATA, "FI_ENODATA";
        EMSGSIZE = libc::EMSGSIZE, "FI_EMSGSIZE";
        EOPNOTSUPP = libc::EOPNOTSUPP, "FI_EOPNOTSUPP";
        EADDRINUSE = libc::EADDRINUSE, "FI_EADDRINUSE";
        EADDRNOTAVAIL = libc::EADDRNOTAVAIL, "FI_EADDRNOTAVAIL";
        ECONNRESET = libc::ECONNRESET, "FI_ECONNRESET";
        EINTR = libc::EINTR, "FI_EINTR";
        ETIMEDOUT = libc::ETIMEDOUT, "FI_ETIMEDOUT";
        ECANCELED = libc::ECANCELED, "FI_ECANCELED";
        ETOOSMALL = 257, "FI_ETOOSMALL";
        EOPBADSTATE = 258, "FI_EOPBADSTATE";
        EAVAIL = 259, "FI_EAVAIL";
        EBADFLAGS = 260, "FI_EBADFLAGS";
        ETRUNC = 265, "FI_ETRUNC";
        ENOKEY = 266, "FI_ENOKEY";
        ENOCQ = 263, "FI_ENOCQ";
        ENOAV = 267, "FI_ENOAV";
    }
}

/// Declares structures that C shares, and a table of their sizes and their fields' offsets for
/// the test.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident = $c:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            pub struct $name { $(pub $field: $type,)* }
        )*
        /// The name of each in C, its size, and its fields with their offsets.
        pub fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                $c,
                size_of::<$name>(),
                vec![$((stringify!($field), std::mem::offset_of!($name, $field))),*],
            )),*]
        }
    };
}

pub mod peer;

type Call<T> = Option<T>;
type Missing = Option<unsafe extern "C" fn()>;
type Close = unsafe extern "C" fn(*mut Fid) -> c_int;
type Bind = unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int;
type Control = unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int;
type Opened<A, T> = unsafe extern "C" fn(*mut FidDomain, *mut A, *mut *mut T, *mut c_void) -> c_int;
pub type Ep = *mut FidEp;
pub type Context = *mut c_void;
pub type Desc = *mut c_void;
pub type Descs = *mut *mut c_void;

structures! {
    Fid = "struct fid" { fclass: size_t, context: *mut c_void, ops: *const OpsFid, }
    OpsFid = "struct fi_ops" {
        size: size_t,
        close: Call<Close>,
        bind: Call<Bind>,
        control: Call<Control>,
        ops_open: Missing,
        tostr: Missing,
        ops_set: Missing,
    }
    Provider = "struct fi_provider" {
        version: u32,
        fi_version: u32,
        context: [*mut c_void; 4],
        name: *const c_char,
        getinfo: Call<unsafe extern "C" fn(
            u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info,
        ) -> c_int>,
        fabric: Call<unsafe extern "C" fn(
            *mut FabricAttr, *mut *mut FidFabric, *mut c_void,
        ) -> c_int>,
        cleanup: Call<unsafe extern "C" fn()>,
    }
    TxAttr = "struct fi_tx_attr" {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64,
        inject_size: size_t, size: size_t, iov_limit: size_t, rma_iov_limit: size_t, tclass: u32,
    }
    RxAttr = "struct fi_rx_attr" {
        caps: u64, mode: u64, op_flags: u64, msg_order: u64, comp_order: u64,
        total_buffered_recv: size_t, size: size_t, iov_limit: size_t,
    }
    EpAttr = "struct fi_ep_attr" {
        r#type: u32, protocol: u32, protocol_version: u32, max_msg_size: size_t,
        msg_prefix_size: size_t, max_order_raw_size: size_t, max_order_war_size: size_t,
        max_order_waw_size: size_t, mem_tag_format: u64, tx_ctx_cnt: size_t, rx_ctx_cnt: size_t,
        auth_key_size: size_t, auth_key: *mut u8,
    }
    DomainAttr = "struct fi_domain_attr" {
        domain: *mut FidDomain, name: *mut c_char, threading: u32, control_progress: u32,
        data_progress: u32, resource_mgmt: u32, av_type: u32, mr_mode: c_int,
        mr_key_size: size_t, cq_data_size: size_t, cq_cnt: size_t, ep_cnt: size_t,
        tx_ctx_cnt: size_t, rx_ctx_cnt: size_t, max_ep_tx_ctx: size_t, max_ep_rx_ctx: size_t,
        max_ep_stx_ctx: size_t, max_ep_srx_ctx: size_t, cntr_cnt: size_t, mr_iov_limit: size_t,
        caps: u64, mode: u64, auth_key: *mut u8, auth_key_size: size_t, max_err_data: size_t,
        mr_cnt: size_t, tclass: u32,
    }
    FabricAttr = "struct fi_fabric_attr" {
        fabric: *mut FidFabric, name: *mut c_char, prov_name: *mut c_char, prov_version: u32,
        api_version: u32,
    }
    Info = "struct fi_info" {
        next: *mut Info, caps: u64, mode: u64, addr_format: u32, src_addrlen: size_t,
        dest_addrlen: size_t, src_addr: *mut c_void, dest_addr: *mut c_void, handle: *mut Fid,
        tx_attr: *mut TxAttr, rx_attr: *mut RxAttr, ep_attr: *mut EpAttr,
        domain_attr: *mut DomainAttr, fabric_attr: *mut FabricAttr, nic: *mut c_void,
    }
    FidFabric = "struct fid_fabric" { fid: Fid, ops: *const OpsFabric, api_version: u32, }
    OpsFabric = "struct fi_ops_fabric" {
        size: size_t,
        domain: Call<unsafe extern "C" fn(
            *mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void,
        ) -> c_int>,
        passive_ep: Call<unsafe extern "C" fn(
            *mut FidFabric, *mut Info, *mut *mut c_void, *mut c_void,
        ) -> c_int>,
        eq_open: Call<unsafe extern "C" fn(
            *mut FidFabric, *mut EqAttr, *mut *mut FidEq, *mut c_void,
        ) -> c_int>,
        wait_open: Call<unsafe extern "C" fn(
            *mut FidFabric, *mut WaitAttr, *mut *mut FidWait,
        ) -> c_int>,
        trywait: Call<unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int>,
    }
    FidDomain = "struct fid_domain" { fid: Fid, ops: *const OpsDomain, mr: *const OpsMr, }
    OpsDomain = "struct fi_ops_domain" {
        size: size_t,
        av_open: Call<Opened<AvAttr, FidAv>>,
        cq_open: Call<Opened<CqAttr, FidCq>>,
        endpoint: Call<Opened<Info, FidEp>>,
        scalable_ep: Call<Opened<Info, FidEp>>,
        cntr_open: Call<Opened<CntrAttr, FidCntr>>,
        poll_open: Call<unsafe extern "C" fn(
            *mut FidDomain, *mut PollAttr, *mut *mut FidPoll,
        ) -> c_int>,
        stx_ctx: Call<Opened<TxAttr, c_void>>,
        srx_ctx: Call<Opened<RxAttr, FidEp>>,
        query_atomic: Call<unsafe extern "C" fn(
            *mut FidDomain, u32, u32, *mut AtomicAttr, u64,
        ) -> c_int>,
        query_collective: Missing,
    }
    OpsMr = "struct fi_ops_mr" {
        size: size_t,
        reg: Call<unsafe extern "C" fn(
            *mut Fid, *const c_void, size_t, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void,
        ) -> c_int>,
        regv: Call<unsafe extern "C" fn(
            *mut Fid, *const iovec, size_t, u64, u64, u64, u64, *mut *mut FidMr, *mut c_void,
        ) -> c_int>,
        regattr: Call<unsafe extern "C" fn(
            *mut Fid, *const MrAttr, u64, *mut *mut FidMr,
        ) -> c_int>,
    }
    MrAttr = "struct fi_mr_attr" {
        mr_iov: *const iovec, iov_count: size_t, access: u64, offset: u64, requested_key: u64,
        context: *mut c_void, auth_key_size: size_t, auth_key: *mut u8, iface: u32, device: u64,
    }
    FidMr = "struct fid_mr" { fid: Fid, mem_desc: *mut c_void, key: u64, }
    AvAttr = "struct fi_av_attr" {
        r#type: u32, rx_ctx_bits: c_int, count: size_t, ep_per_node: size_t, name: *const c_char,
        map_addr: *mut c_void, flags: u64,
    }
    FidAv = "struct fid_av" { fid: Fid, ops: *const OpsAv, }
    OpsAv = "struct fi_ops_av" {
        size: size_t,
        insert: Call<unsafe extern "C" fn(
            *mut FidAv, *const c_void, size_t, *mut u64, u64, *mut c_void,
        ) -> c_int>,
        insertsvc: Call<unsafe extern "C" fn(
            *mut FidAv, *const c_char, *const c_char, *mut u64, u64, *mut c_void,
        ) -> c_int>,
        insertsym: Call<unsafe extern "C" fn(
            *mut FidAv, *const c_char, size_t, *const c_char, size_t, *mut u64, u64, *mut c_void,
        ) -> c_int>,
        remove: Call<unsafe extern "C" fn(*mut FidAv, *mut u64, size_t, u64) -> c_int>,
        lookup: Call<unsafe extern "C" fn(*mut FidAv, u64, *mut c_void, *mut size_t) -> c_int>,
        straddr: Call<unsafe extern "C" fn(
            *mut FidAv, *const c_void, *mut c_char, *mut size_t,
        ) -> *const c_char>,
        av_set: Missing,
    }
    CqAttr = "struct fi_cq_attr" {
        size: size_t, flags: u64, format: u32, wait_obj: u32, signaling_vector: c_int,
        wait_cond: u32, wait_set: *mut c_void,
    }
    FidCq = "struct fid_cq" { fid: Fid, ops: *const OpsCq, }
    OpsCq = "struct fi_ops_cq" {
        size: size_t,
        read: Call<unsafe extern "C" fn(*mut FidCq, *mut c_void, size_t) -> ssize_t>,
        readfrom: Call<unsafe extern "C" fn(
            *mut FidCq, *mut c_void, size_t, *mut u64,
        ) -> ssize_t>,
        readerr: Call<unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> ssize_t>,
        sread: Call<unsafe extern "C" fn(
            *mut FidCq, *mut c_void, size_t, *const c_void, c_int,
        ) -> ssize_t>,
        sreadfrom: Call<unsafe extern "C" fn(
            *mut FidCq, *mut c_void, size_t, *mut u64, *const c_void, c_int,
        ) -> ssize_t>,
        signal: Call<unsafe extern "C" fn(*mut FidCq) -> c_int>,
        strerror: Call<unsafe extern "C" fn(
            *mut FidCq, c_int, *const c_void, *mut c_char, size_t,
        ) -> *const c_char>,
    }
    CqTaggedEntry = "struct fi_cq_tagged_entry" {
        op_context: *mut c_void, flags: u64, len: size_t, buf: *mut c_void, data: u64, tag: u64,
    }
    CqErrEntry = "struct fi_cq_err_entry" {
        op_context: *mut c_void, flags: u64, len: size_t, buf: *mut c_void, data: u64, tag: u64,
        olen: size_t, err: c_int, prov_errno: c_int, err_data: *mut c_void,
        err_data_size: size_t,
    }
    EqAttr = "struct fi_eq_attr" {
        size: size_t, flags: u64, wait_obj: u32, signaling_vector: c_int, wait_set: *mut c_void,
    }
    FidEq = "struct fid_eq" { fid: Fid, ops: *const OpsEq, }
    OpsEq = "struct fi_ops_eq" {
        size: size_t,
        read: Call<unsafe extern "C" fn(
            *mut FidEq, *mut u32, *mut c_void, size_t, u64,
        ) -> ssize_t>,
        readerr: Call<unsafe extern "C" fn(*mut FidEq, *mut c_void, u64) -> ssize_t>,
        write: Call<unsafe extern "C" fn(
            *mut FidEq, u32, *const c_void, size_t, u64,
        ) -> ssize_t>,
        sread: Call<unsafe extern "C" fn(
            *mut FidEq, *mut u32, *mut c_void, size_t, c_int, u64,
        ) -> ssize_t>,
        strerror: Call<unsafe extern "C" fn(
            *mut FidEq, c_int, *const c_void, *mut c_char, size_t,
        ) -> *const c_char>,
    }
    CntrAttr = "struct fi_cntr_attr" {
        events: u32, wait_obj: u32, wait_set: *mut c_void, flags: u64,
    }
    FidCntr = "struct fid_cntr" { fid: Fid, ops: *const OpsCntr, }
    OpsCntr = "struct fi_ops_cntr" {
        size: size_t,
        read: Call<unsafe extern "C" fn(*mut FidCntr) -> u64>,
        readerr: Call<unsafe extern "C" fn(*mut FidCntr) -> u64>,
        add: Call<unsafe extern "C" fn(*mut FidCntr, u64) -> c_int>,
        set: Call<unsafe extern "C" fn(*mut FidCntr, u64) -> c_int>,
        wait: Call<unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int>,
        adderr: Call<unsafe extern "C" fn(*mut FidCntr, u64) -> c_int>,
        seterr: Call<unsafe extern "C" fn(*mut FidCntr, u64) -> c_int>,
    }
    PollAttr = "struct fi_poll_attr" { flags: u64, }
    FidPoll = "struct fid_poll" { fid: Fid, ops: *const OpsPoll, }
    OpsPoll = "struct fi_ops_poll" {
        size: size_t,
        poll: Call<unsafe extern "C" fn(*mut FidPoll, *mut *mut c_void, c_int) -> c_int>,
        poll_add: Call<unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int>,
        poll_del: Call<unsafe extern "C" fn(*mut FidPoll, *mut Fid, u64) -> c_int>,
    }
    WaitAttr = "struct fi_wait_attr" { wait_obj: u32, flags: u64, }
    FidWait = "struct fid_wait" { fid: Fid, ops: *const OpsWait, }
    OpsWait = "struct fi_ops_wait" {
        size: size_t,
        wait: Call<unsafe extern "C" fn(*mut FidWait, c_int) -> c_int>,
    }
    FidEp = "struct fid_ep" {
        fid: Fid, ops: *const OpsEp, cm: *const OpsCm, msg: *const OpsMsg, rma: *const OpsRma,
        tagged: *const OpsTagged, atomic: *const OpsAtomic, collective: *const c_void,
    }
    OpsEp = "struct fi_ops_ep" {
        size: size_t,
        cancel: Call<unsafe extern "C" fn(*mut Fid, *mut c_void) -> ssize_t>,
        getopt: Call<unsafe extern "C" fn(
            *mut Fid, c_int, c_int, *mut c_void, *mut size_t,
        ) -> c_int>,
        setopt: Call<unsafe extern "C" fn(
            *mut Fid, c_int, c_int, *const c_void, size_t,
        ) -> c_int>,
        tx_ctx: Call<unsafe extern "C" fn(Ep, c_int, *mut TxAttr, *mut Ep, *mut c_void) -> c_int>,
        rx_ctx: Call<unsafe extern "C" fn(Ep, c_int, *mut RxAttr, *mut Ep, *mut c_void) -> c_int>,
        rx_size_left: Call<unsafe extern "C" fn(Ep) -> ssize_t>,
        tx_size_left: Call<unsafe extern "C" fn(Ep) -> ssize_t>,
    }
    OpsCm = "struct fi_ops_cm" {
        size: size_t,
        setname: Call<unsafe extern "C" fn(*mut Fid, *mut c_void, size_t) -> c_int>,
        getname: Call<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut size_t) -> c_int>,
        getpeer: Call<unsafe extern "C" fn(Ep, *mut c_void, *mut size_t) -> c_int>,
        connect: Call<unsafe extern "C" fn(Ep, *const c_void, *const c_void, size_t) -> c_int>,
        listen: Missing,
        accept: Call<unsafe extern "C" fn(Ep, *const c_void, size_t) -> c_int>,
        reject: Missing,
        shutdown: Call<unsafe extern "C" fn(Ep, u64) -> c_int>,
        join: Call<unsafe extern "C" fn(
            Ep, *const c_void, u64, *mut *mut c_void, *mut c_void,
        ) -> c_int>,
    }
    Msg = "struct fi_msg" {
        msg_iov: *const iovec, desc: *mut *mut c_void, iov_count: size_t, addr: u64,
        context: *mut c_void, data: u64,
    }
    MsgTagged = "struct fi_msg_tagged" {
        msg_iov: *const iovec, desc: *mut *mut c_void, iov_count: size_t, addr: u64, tag: u64,
        ignore: u64, context: *mut c_void, data: u64,
    }
    OpsMsg = "struct fi_ops_msg" {
        size: size_t,
        recv: Call<unsafe extern "C" fn(
            Ep, *mut c_void, size_t, Desc, u64, Context) -> ssize_t>,
        recvv: Call<unsafe extern "C" fn(
            Ep, *const iovec, Descs, size_t, u64, Context) -> ssize_t>,
        recvmsg: Call<unsafe extern "C" fn(Ep, *const Msg, u64) -> ssize_t>,
        send: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, u64, Context) -> ssize_t>,
        sendv: Call<unsafe extern "C" fn(
            Ep, *const iovec, Descs, size_t, u64, Context) -> ssize_t>,
        sendmsg: Call<unsafe extern "C" fn(Ep, *const Msg, u64) -> ssize_t>,
        inject: Call<unsafe extern "C" fn(Ep, *const c_void, size_t, u64) -> ssize_t>,
        senddata: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, u64, u64, Context) -> ssize_t>,
        injectdata: Call<unsafe extern "C" fn(Ep, *const c_void, size_t, u64, u64) -> ssize_t>,
    }
    OpsTagged = "struct fi_ops_tagged" {
        size: size_t,
        recv: Call<unsafe extern "C" fn(
            Ep, *mut c_void, size_t, Desc, u64, u64, u64, Context) -> ssize_t>,
        recvv: Call<unsafe extern "C" fn(
            Ep, *const iovec, Descs, size_t, u64, u64, u64, Context) -> ssize_t>,
        recvmsg: Call<unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> ssize_t>,
        send: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, u64, u64, Context) -> ssize_t>,
        sendv: Call<unsafe extern "C" fn(
            Ep, *const iovec, Descs, size_t, u64, u64, Context) -> ssize_t>,
        sendmsg: Call<unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> ssize_t>,
        inject: Call<unsafe extern "C" fn(Ep, *const c_void, size_t, u64, u64) -> ssize_t>,
        senddata: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, u64, u64, u64, Context) -> ssize_t>,
        injectdata: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, u64, u64, u64) -> ssize_t>,
    }
    RmaIov = "struct fi_rma_iov" { addr: u64, len: size_t, key: u64, }
    MsgRma = "struct fi_msg_rma" {
        msg_iov: *const iovec, desc: *mut *mut c_void, iov_count: size_t, addr: u64,
        rma_iov: *const RmaIov, rma_iov_count: size_t, context: *mut c_void, data: u64,
    }
    OpsRma = "struct fi_ops_rma" {
        size: size_t,
        read: Call<unsafe extern "C" fn(
            Ep, *mut c_void, size_t, Desc, u64, u64, u64, Context) -> ssize_t>,
        readv: Call<unsafe extern "C" fn(
            Ep, *const iovec, Descs, size_t, u64, u64, u64, Context) -> ssize_t>,
        readmsg: Call<unsafe extern "C" fn(Ep, *const MsgRma, u64) -> ssize_t>,
        write: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, u64, u64, u64, Context) -> ssize_t>,
        writev: Call<unsafe extern "C" fn(
            Ep, *const iovec, Descs, size_t, u64, u64, u64, Context) -> ssize_t>,
        writemsg: Call<unsafe extern "C" fn(Ep, *const MsgRma, u64) -> ssize_t>,
        inject: Call<unsafe extern "C" fn(Ep, *const c_void, size_t, u64, u64, u64) -> ssize_t>,
        writedata: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, u64, u64, u64, u64, Context) -> ssize_t>,
        injectdata: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, u64, u64, u64, u64) -> ssize_t>,
    }
    Ioc = "struct fi_ioc" { addr: *mut c_void, count: size_t, }
    RmaIoc = "struct fi_rma_ioc" { addr: u64, count: size_t, key: u64, }
    AtomicAttr = "struct fi_atomic_attr" { count: size_t, size: size_t, }
    MsgAtomic = "struct fi_msg_atomic" {
        msg_iov: *const Ioc, desc: *mut *mut c_void, iov_count: size_t, addr: u64,
        rma_iov: *const RmaIoc, rma_iov_count: size_t, datatype: u32, op: u32,
        context: *mut c_void, data: u64,
    }
    OpsAtomic = "struct fi_ops_atomic" {
        size: size_t,
        write: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, u64, u64, u64, u32, u32, Context) -> ssize_t>,
        writev: Call<unsafe extern "C" fn(
            Ep, *const Ioc, Descs, size_t, u64, u64, u64, u32, u32, Context) -> ssize_t>,
        writemsg: Call<unsafe extern "C" fn(Ep, *const MsgAtomic, u64) -> ssize_t>,
        inject: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, u64, u64, u64, u32, u32) -> ssize_t>,
        readwrite: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, *mut c_void, Desc, u64, u64, u64, u32, u32,
            Context) -> ssize_t>,
        readwritev: Call<unsafe extern "C" fn(
            Ep, *const Ioc, Descs, size_t, *mut Ioc, Descs, size_t, u64, u64, u64, u32, u32,
            Context) -> ssize_t>,
        readwritemsg: Call<unsafe extern "C" fn(
            Ep, *const MsgAtomic, *mut Ioc, Descs, size_t, u64) -> ssize_t>,
        compwrite: Call<unsafe extern "C" fn(
            Ep, *const c_void, size_t, Desc, *const c_void, Desc, *mut c_void, Desc, u64, u64,
            u64, u32, u32, Context) -> ssize_t>,
        compwritev: Call<unsafe extern "C" fn(
            Ep, *const Ioc, Descs, size_t, *const Ioc, Descs, size_t, *mut Ioc, Descs, size_t,
            u64, u64, u64, u32, u32, Context) -> ssize_t>,
        compwritemsg: Call<unsafe extern "C" fn(
            Ep, *const MsgAtomic, *const Ioc, Descs, size_t, *mut Ioc, Descs, size_t,
            u64) -> ssize_t>,
        writevalid: Call<unsafe extern "C" fn(Ep, u32, u32, *mut size_t) -> c_int>,
        readwritevalid: Call<unsafe extern "C" fn(Ep, u32, u32, *mut size_t) -> c_int>,
        compwritevalid: Call<unsafe extern "C" fn(Ep, u32, u32, *mut size_t) -> c_int>,
    }
}

impl OpsFid {
    /// The calls that all objects of libfabric have.
    pub const fn of(close: Close, bind: Call<Bind>, control: Call<Control>) -> Self {
        let size = size_of::<Self>();
        let (ops_open, tostr, ops_set) = (None, None, None);
        Self { size, close: Some(close), bind, control, ops_open, tostr, ops_set }
    }
}
