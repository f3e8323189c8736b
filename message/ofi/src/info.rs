//! fi_getinfo: what we can do, and whether that is what is asked for.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Once;

use crate::abi::peer::{AV_USER_ID, PEER};
use crate::space::here;
use crate::{abi, address, log, peer, provider, wire};

/// Of provider, fabric and domain.
pub const NAME: &CStr = c"nagaya";

/// All that an endpoint can do.
pub const CAPS: u64 = TX_CAPS | RX_CAPS | DOMAIN_CAPS;
const TX_CAPS: u64 =
    abi::MSG | abi::TAGGED | abi::RMA | abi::ATOMIC | abi::SEND | abi::READ | abi::WRITE;
const RX_CAPS: u64 = abi::MSG
    | abi::TAGGED
    | abi::RMA
    | abi::ATOMIC
    | abi::RECV
    | abi::REMOTE_READ
    | abi::REMOTE_WRITE
    | abi::MULTI_RECV
    | abi::SOURCE
    | abi::DIRECTED_RECV;
const DOMAIN_CAPS: u64 = abi::LOCAL_COMM | abi::REMOTE_COMM;

/// What it can do as a peer, for those who ask for it (`peer`): an owner has no use for more.
const PEER_CAPS: u64 = abi::MSG
    | abi::TAGGED
    | abi::SEND
    | abi::RECV
    | abi::DIRECTED_RECV
    | DOMAIN_CAPS
    | PEER
    | AV_USER_ID;

/// What of that must be asked for: all else is given unasked.
const ASKED: u64 =
    abi::MSG | abi::TAGGED | abi::RMA | abi::ATOMIC | abi::MULTI_RECV | abi::DIRECTED_RECV;

/// Flags that operations can have by default.
const TX_FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE;
const RX_FLAGS: u64 = abi::COMPLETION | abi::MULTI_RECV;

/// Everything is done in the order of the calls.
const ORDER: u64 = abi::ORDER_STRICT | abi::ORDER_EACH;

/// Operations that libfabric may count on having room for. There is no limit of ours.
const QUEUE: usize = 4096;
/// Parts of a buffer.
pub const IOV_MAX: usize = 4;
/// libfabric's `FI_TAG_GENERIC`: all bits of a tag are the caller's.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// Newer libfabrics have appended to the structures, and copy them by their size.
const ROOM: usize = 256;

/// libfabric frees it.
fn new<T>(value: T) -> *mut T {
    // SAFETY: zeroed, and large enough for the value.
    unsafe {
        let at = libc::calloc(1, size_of::<T>() + ROOM).cast::<T>();
        if !at.is_null() {
            at.write(value);
        }
        at
    }
}

fn copy(name: &CStr) -> *mut c_char {
    // SAFETY: a C string.
    unsafe { libc::strdup(name.as_ptr()) }
}

/// What has been asked for, as far as we have a choice.
struct Wanted {
    caps: u64,
    tx_flags: u64,
    rx_flags: u64,
    threading: u32,
    av_type: u32,
    mr_mode: c_int,
    control_progress: u32,
    data_progress: u32,
    /// As a peer: what is said of us may be said of all that are joined, so nothing is promised
    /// but what was asked of each.
    peer: bool,
    tx_order: u64,
    rx_order: u64,
}

/// Why not.
type No = &'static str;

/// Whether hints can be satisfied, and what follows from them.
///
/// # Safety
/// `hints` is NULL, or as fi_getinfo(3) wants it.
unsafe fn match_hints(version: u32, hints: *const abi::Info) -> Result<Wanted, No> {
    let mut wanted = Wanted {
        // Intel MPI 2021.18 takes what there is, and where it finds atomics it writes into windows
        // of MPI_Win_allocate_shared that it has registered with nobody: FI_ENOKEY here, with
        // libfabric's own `shm` lost data.
        caps: CAPS & !abi::ATOMIC,
        tx_flags: 0,
        rx_flags: 0,
        threading: abi::THREAD_SAFE,
        av_type: abi::AV_TABLE,
        mr_mode: if version < abi::version(1, 5) { abi::MR_SCALABLE as c_int } else { 0 },
        control_progress: abi::PROGRESS_AUTO,
        data_progress: abi::PROGRESS_MANUAL,
        peer: false,
        tx_order: ORDER,
        rx_order: ORDER,
    };
    // SAFETY: as the caller says; parts may be missing.
    let Some(hints) = (unsafe { hints.as_ref() }) else { return Ok(wanted) };
    wanted.peer = hints.caps & PEER != 0;
    let caps = if wanted.peer { PEER_CAPS } else { CAPS };
    if hints.caps & !caps != 0 {
        return Err("capabilities");
    }
    if wanted.peer {
        if !peer::is_known() {
            return Err("a peer of this libfabric");
        }
        (wanted.caps, wanted.tx_order, wanted.rx_order) = (PEER_CAPS, 0, 0);
    } else if hints.caps & ASKED != 0 {
        wanted.caps = hints.caps & ASKED | CAPS & !ASKED;
    }
    if ![0, address::FORMAT].contains(&hints.addr_format) {
        return Err("the format of addresses");
    }
    // SAFETY: as above.
    if let Some(ep) = unsafe { hints.ep_attr.as_ref() } {
        if ![abi::EP_UNSPEC, abi::EP_RDM].contains(&ep.r#type) {
            return Err("the type of the endpoint");
        }
        if ep.protocol != 0 && ep.protocol != address::FORMAT {
            return Err("the protocol");
        }
        let contexts = |count: usize| count > 1 && count != usize::MAX;
        if contexts(ep.tx_ctx_cnt) || contexts(ep.rx_ctx_cnt) || ep.auth_key_size != 0 {
            return Err("the endpoint's attributes");
        }
    }
    // SAFETY: as above.
    if let Some(tx) = unsafe { hints.tx_attr.as_ref() } {
        let fits = tx.caps & !CAPS == 0
            && tx.op_flags & !TX_FLAGS == 0
            && tx.msg_order & !ORDER == 0
            && tx.comp_order == 0
            && tx.inject_size <= wire::EAGER_MAX
            && tx.iov_limit <= IOV_MAX
            && tx.rma_iov_limit <= IOV_MAX;
        if !fits {
            return Err("the attributes for sending");
        }
        wanted.tx_flags = tx.op_flags;
        if wanted.peer {
            wanted.tx_order = tx.msg_order;
        }
    }
    // SAFETY: as above.
    if let Some(rx) = unsafe { hints.rx_attr.as_ref() } {
        let fits = rx.caps & !CAPS == 0
            && rx.op_flags & !RX_FLAGS == 0
            && rx.msg_order & !ORDER == 0
            && rx.comp_order == 0
            && rx.iov_limit <= IOV_MAX;
        if !fits {
            return Err("the attributes for receiving");
        }
        wanted.rx_flags = rx.op_flags;
        if wanted.peer {
            wanted.rx_order = rx.msg_order;
        }
    }
    // SAFETY: as above.
    if let Some(domain) = unsafe { hints.domain_attr.as_ref() } {
        // SAFETY: a C string, if there is one.
        if !domain.name.is_null() && unsafe { CStr::from_ptr(domain.name) } != NAME {
            return Err("the domain's name");
        }
        if domain.data_progress == abi::PROGRESS_AUTO {
            return Err("automatic progress");
        }
        let fits = domain.cq_data_size <= size_of::<u64>()
            && domain.mr_key_size <= size_of::<u64>()
            && domain.caps & !(caps & (DOMAIN_CAPS | PEER | AV_USER_ID)) == 0
            && domain.auth_key_size == 0;
        if !fits {
            return Err("the domain's attributes");
        }
        if domain.threading != abi::THREAD_UNSPEC {
            wanted.threading = domain.threading;
        }
        if domain.av_type != 0 {
            wanted.av_type = domain.av_type;
        }
        if domain.control_progress != abi::PROGRESS_UNSPEC {
            wanted.control_progress = domain.control_progress;
        }
        if domain.mr_mode == abi::MR_BASIC as c_int {
            wanted.mr_mode = domain.mr_mode;
        }
    }
    // SAFETY: as above.
    if let Some(fabric) = unsafe { hints.fabric_attr.as_ref() } {
        // SAFETY: a C string, if there is one.
        if !fabric.name.is_null() && unsafe { CStr::from_ptr(fabric.name) } != NAME {
            return Err("the fabric's name");
        }
    }
    Ok(wanted)
}

/// An answer; `None` without memory.
fn describe(version: u32, wanted: &Wanted) -> *mut abi::Info {
    let size = if wanted.peer { peer::QUEUE } else { QUEUE };
    let tx = new(abi::TxAttr {
        caps: wanted.caps & TX_CAPS,
        mode: 0,
        op_flags: wanted.tx_flags,
        msg_order: wanted.tx_order,
        comp_order: 0,
        inject_size: wire::EAGER_MAX,
        size,
        iov_limit: IOV_MAX,
        rma_iov_limit: IOV_MAX,
        tclass: 0,
    });
    let rx = new(abi::RxAttr {
        caps: wanted.caps & RX_CAPS,
        mode: 0,
        op_flags: wanted.rx_flags,
        msg_order: wanted.rx_order,
        comp_order: 0,
        total_buffered_recv: 0,
        size,
        iov_limit: IOV_MAX,
    });
    let ep = new(abi::EpAttr {
        r#type: abi::EP_RDM,
        protocol: address::FORMAT,
        protocol_version: 1,
        max_msg_size: usize::MAX >> 1,
        msg_prefix_size: 0,
        max_order_raw_size: usize::MAX >> 1,
        max_order_war_size: usize::MAX >> 1,
        max_order_waw_size: usize::MAX >> 1,
        mem_tag_format: TAG_FORMAT,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: ptr::null_mut(),
    });
    let domain = new(abi::DomainAttr {
        domain: ptr::null_mut(),
        name: copy(NAME),
        threading: wanted.threading,
        control_progress: wanted.control_progress,
        data_progress: wanted.data_progress,
        resource_mgmt: abi::RM_ENABLED,
        av_type: wanted.av_type,
        mr_mode: wanted.mr_mode,
        mr_key_size: size_of::<u64>(),
        cq_data_size: size_of::<u64>(),
        cq_cnt: 1 << 16,
        ep_cnt: 1 << 15,
        tx_ctx_cnt: 1 << 15,
        rx_ctx_cnt: 1 << 15,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: 1 << 16,
        mr_iov_limit: 1,
        caps: wanted.caps & (DOMAIN_CAPS | PEER | AV_USER_ID),
        mode: 0,
        auth_key: ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: 1 << 16,
        tclass: 0,
    });
    let fabric = new(abi::FabricAttr {
        fabric: ptr::null_mut(),
        name: copy(if wanted.peer { peer::FABRIC } else { NAME }),
        // libfabric writes these.
        prov_name: ptr::null_mut(),
        prov_version: provider::VERSION,
        api_version: version,
    });
    new(abi::Info {
        next: ptr::null_mut(),
        caps: wanted.caps,
        mode: 0,
        addr_format: address::FORMAT,
        src_addrlen: 0,
        dest_addrlen: 0,
        src_addr: ptr::null_mut(),
        dest_addr: ptr::null_mut(),
        handle: ptr::null_mut(),
        tx_attr: tx,
        rx_attr: rx,
        ep_attr: ep,
        domain_attr: domain,
        fabric_attr: fabric,
        nic: ptr::null_mut(),
    })
}

/// fi_getinfo(3). Where we cannot serve: -FI_ENODATA, and a line.
pub unsafe extern "C" fn getinfo(
    version: u32,
    _node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const abi::Info,
    info: *mut *mut abi::Info,
) -> c_int {
    if flags & abi::PROV_ATTR_ONLY == 0 && here().is_none() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::say(abi::LOG_INFO, abi::LOG_CORE, || {
                "not in a space of Nagaya's: start by `nagaya exec` or `nagaya run`".to_owned()
            });
        });
        return -abi::ENODATA;
    }
    // SAFETY: libfabric's caller keeps to fi_getinfo(3).
    match unsafe { match_hints(version, hints) } {
        Ok(wanted) => {
            let answer = describe(version, &wanted);
            if answer.is_null() {
                return -abi::ENOMEM;
            }
            // SAFETY: libfabric waits for it there.
            unsafe { info.write(answer) };
            0
        }
        Err(why) => {
            log::say(abi::LOG_INFO, abi::LOG_CORE, || {
                format!("cannot give what is asked for: {why}")
            });
            -abi::ENODATA
        }
    }
}
