//! fi_getinfo: what we can do, and whether that is what is asked for.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Once;

use crate::abi;
use crate::abi::peer::{AV_USER_ID, PEER};
use crate::engine::address;
use crate::engine::address::{Format, Target};
use crate::engine::log;
use crate::engine::resolve;
use crate::engine::space::here;
use crate::face::peer;
use crate::protocol::parts::PARTS;
use crate::protocol::wire;

/// Version of the provider, in libfabric's form.
pub const VERSION: u32 = abi::version(0, 1);

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
    | abi::DIRECTED_RECV
    | abi::RMA_EVENT;
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
/// Bytes of the longest message.
const LENGTH_MAX: usize = usize::MAX >> 1;
/// Parts of a buffer.
pub const IOV_MAX: usize = PARTS;
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
    tx_size: usize,
    rx_size: usize,
    format: Format,
    from: Target,
    to: Target,
}

/// Why not.
type No = &'static str;

/// Node, service and flags of fi_getinfo(3).
struct Question<'a> {
    node: Option<&'a str>,
    service: Option<&'a str>,
    flags: u64,
}

/// Of whom an answer is to tell, as source and as destination: node and service, which come before
/// hints. Otherwise why not.
///
/// # Safety
/// `hints` is NULL, or as fi_getinfo(3) wants it.
unsafe fn addresses(
    question: &Question<'_>,
    format: Format,
    hints: *const abi::Info,
) -> Result<(Target, Target), String> {
    let hinted = |at: *mut c_void, bytes: usize, what: &str| {
        if at.is_null() {
            return Ok(Target::Unnamed);
        }
        let fits = format == Format::String || bytes >= address::SIZE;
        // SAFETY: as the caller says.
        let read = fits.then(|| unsafe { format.read(at) }).flatten();
        read.map(|(target, _)| target).ok_or_else(|| format!("the {what} address of the hints"))
    };
    // SAFETY: as the caller says.
    let (from, to) = match unsafe { hints.as_ref() } {
        None => (Ok(Target::Unnamed), Ok(Target::Unnamed)),
        Some(hints) => (
            hinted(hints.src_addr, hints.src_addrlen, "source"),
            hinted(hints.dest_addr, hints.dest_addrlen, "destination"),
        ),
    };
    let Question { node, service, flags } = *question;
    if node.is_none() && service.is_none() {
        return Ok((from?, to?));
    }
    let named = resolve::resolve(node, service, flags & abi::NUMERICHOST != 0)?;
    match flags & abi::SOURCE {
        0 => Ok((from?, named)),
        _ => Ok((named, to?)),
    }
}

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
        av_type: abi::AV_UNSPEC,
        mr_mode: if version < abi::version(1, 5) { abi::MR_SCALABLE as c_int } else { 0 },
        control_progress: abi::PROGRESS_AUTO,
        data_progress: abi::PROGRESS_MANUAL,
        peer: false,
        tx_order: ORDER,
        rx_order: ORDER,
        tx_size: QUEUE,
        rx_size: QUEUE,
        format: Format::Own,
        from: Target::Unnamed,
        to: Target::Unnamed,
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
        (wanted.tx_size, wanted.rx_size) = (peer::QUEUE, peer::QUEUE);
        wanted.av_type = abi::AV_TABLE;
    } else if hints.caps & ASKED != 0 {
        wanted.caps = hints.caps & ASKED | CAPS & !ASKED;
    }
    wanted.format = Format::of(hints.addr_format).ok_or("the format of addresses")?;
    // SAFETY: as above.
    if let Some(ep) = unsafe { hints.ep_attr.as_ref() } {
        if ![abi::EP_UNSPEC, abi::EP_RDM].contains(&ep.r#type) {
            return Err("the type of the endpoint");
        }
        if ep.protocol != 0 && ep.protocol != address::FORMAT {
            return Err("the protocol");
        }
        // Contexts that endpoints share are a peer's owner's.
        let contexts = |count: usize| count > 1 && (count != usize::MAX || !wanted.peer);
        let is_longer = |bytes: usize| bytes > LENGTH_MAX;
        if contexts(ep.tx_ctx_cnt)
            || contexts(ep.rx_ctx_cnt)
            || ep.auth_key_size != 0
            || is_longer(ep.max_msg_size)
            || is_longer(ep.max_order_raw_size)
            || is_longer(ep.max_order_war_size)
            || is_longer(ep.max_order_waw_size)
        {
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
        wanted.tx_size = wanted.tx_size.max(tx.size);
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
        wanted.rx_size = wanted.rx_size.max(rx.size);
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
        if [abi::MR_BASIC as c_int, abi::MR_SCALABLE as c_int].contains(&domain.mr_mode) {
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

/// An address for libfabric, and its length. A destination that nobody has named is none.
fn written(target: &Target, wanted: &Wanted) -> (*mut c_void, usize) {
    let is_source = ptr::eq(target, &raw const wanted.from);
    if *target == Target::Unnamed && !is_source {
        return (ptr::null_mut(), 0);
    }
    let bytes = target.written(wanted.format);
    // SAFETY: as much memory as there are bytes; libfabric frees it.
    unsafe {
        let at = libc::malloc(bytes.len());
        if at.is_null() {
            return (at, 0);
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), bytes.len());
        (at, bytes.len())
    }
}

/// An answer; `None` without memory.
fn describe(version: u32, wanted: &Wanted) -> *mut abi::Info {
    let (from, to) = (written(&wanted.from, wanted), written(&wanted.to, wanted));
    let tx = new(abi::TxAttr {
        caps: wanted.caps & TX_CAPS,
        mode: 0,
        op_flags: wanted.tx_flags,
        msg_order: wanted.tx_order,
        comp_order: 0,
        inject_size: wire::EAGER_MAX,
        size: wanted.tx_size,
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
        size: wanted.rx_size,
        iov_limit: IOV_MAX,
    });
    let ep = new(abi::EpAttr {
        r#type: abi::EP_RDM,
        protocol: address::FORMAT,
        protocol_version: 1,
        max_msg_size: LENGTH_MAX,
        msg_prefix_size: 0,
        max_order_raw_size: LENGTH_MAX,
        max_order_war_size: LENGTH_MAX,
        max_order_waw_size: LENGTH_MAX,
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
        prov_version: VERSION,
        api_version: version,
    });
    new(abi::Info {
        next: ptr::null_mut(),
        caps: wanted.caps,
        mode: 0,
        addr_format: wanted.format.number(),
        src_addrlen: from.1,
        dest_addrlen: to.1,
        src_addr: from.0,
        dest_addr: to.0,
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
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const abi::Info,
    info: *mut *mut abi::Info,
) -> c_int {
    let is_source = flags & abi::SOURCE != 0;
    if info.is_null() || is_source && node.is_null() && service.is_null() {
        return -abi::EINVAL;
    }
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
    let found = unsafe { find(version, node, service, flags, hints) };
    match found {
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

/// What fi_getinfo(3) asks for. Otherwise why we cannot give it.
///
/// # Safety
/// As that wants it.
unsafe fn find(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const abi::Info,
) -> Result<Wanted, String> {
    // SAFETY: a C string, if there is one.
    let text = |at: *const c_char| (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_str());
    let (Ok(node), Ok(service)) = (text(node).transpose(), text(service).transpose()) else {
        return Err("node or service are no text".to_owned());
    };
    // SAFETY: as the caller says.
    unsafe {
        let mut wanted = match_hints(version, hints)?;
        if flags & abi::PROV_ATTR_ONLY == 0 {
            let question = Question { node, service, flags };
            (wanted.from, wanted.to) = addresses(&question, wanted.format, hints)?;
        }
        Ok(wanted)
    }
}
