//! fi_getinfo(3): the properties of this provider, if they are those that the program asks for.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Once;

use crate::abi;
use crate::abi::peer::{AV_USER_ID, PEER};
use crate::engine::address;
use crate::engine::address::Target;
use crate::engine::log;
use crate::engine::resolve;
use crate::engine::space::here;
use crate::face::args::text;
use crate::face::hints::{DOMAIN_CAPS, Hints, IOV_MAX, LENGTH_MAX, NAME, RX_CAPS, TX_CAPS, Wanted};
use crate::face::peer;
use crate::protocol::wire;

/// Version of the provider, in libfabric's form.
pub const VERSION: u32 = abi::version(0, 1);

/// libfabric's `FI_TAG_GENERIC`: all bits of a tag are the caller's.
const TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// Number of bytes behind each structure. Later versions of libfabric have appended fields, and
/// copy structures by their size.
const ROOM_BYTES: usize = 256;

/// Allocates a structure, which libfabric frees. Returns NULL without memory.
fn new<T>(value: T) -> *mut T {
    // SAFETY: calloc(3) returns NULL or zeroed memory for a `T` and more, aligned for all types of
    // C.
    unsafe {
        let at = libc::calloc(1, size_of::<T>() + ROOM_BYTES).cast::<T>();
        if !at.is_null() {
            at.write(value);
        }
        at
    }
}

/// Allocates a copy of a string, which libfabric frees.
fn copy(name: &CStr) -> *mut c_char {
    // SAFETY: a C string.
    unsafe { libc::strdup(name.as_ptr()) }
}

/// Allocates an address, which libfabric frees. Returns it with its length.
fn address_for(target: &Target, wanted: &Wanted) -> (*mut c_void, usize) {
    let bytes = target.written(wanted.format);
    // SAFETY: malloc(3) returns NULL or memory for `bytes`, which is new and so does not overlap.
    unsafe {
        let at = libc::malloc(bytes.len());
        if at.is_null() {
            return (at, 0);
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), bytes.len());
        (at, bytes.len())
    }
}

fn send_attributes(wanted: &Wanted) -> *mut abi::TxAttr {
    new(abi::TxAttr {
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
    })
}

fn receive_attributes(wanted: &Wanted) -> *mut abi::RxAttr {
    new(abi::RxAttr {
        caps: wanted.caps & RX_CAPS,
        mode: 0,
        op_flags: wanted.rx_flags,
        msg_order: wanted.rx_order,
        comp_order: 0,
        total_buffered_recv: 0,
        size: wanted.rx_size,
        iov_limit: IOV_MAX,
    })
}

fn endpoint_attributes() -> *mut abi::EpAttr {
    new(abi::EpAttr {
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
    })
}

fn domain_attributes(wanted: &Wanted) -> *mut abi::DomainAttr {
    new(abi::DomainAttr {
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
    })
}

fn fabric_attributes(version: u32, wanted: &Wanted) -> *mut abi::FabricAttr {
    new(abi::FabricAttr {
        fabric: ptr::null_mut(),
        name: copy(if wanted.peer { peer::FABRIC } else { NAME }),
        // libfabric writes these.
        prov_name: ptr::null_mut(),
        prov_version: VERSION,
        api_version: version,
    })
}

/// Makes the answer of fi_getinfo(3). Returns NULL without memory.
fn describe(version: u32, wanted: &Wanted) -> *mut abi::Info {
    let from = address_for(&wanted.from, wanted);
    let to = match wanted.to {
        Target::Unnamed => (ptr::null_mut(), 0),
        ref to => address_for(to, wanted),
    };
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
        tx_attr: send_attributes(wanted),
        rx_attr: receive_attributes(wanted),
        ep_attr: endpoint_attributes(),
        domain_attr: domain_attributes(wanted),
        fabric_attr: fabric_attributes(version, wanted),
        nic: ptr::null_mut(),
    })
}

/// Finds the properties that a program asks for. The addresses of node and service come before
/// those of the hints. Otherwise returns the property that is missing.
fn find(
    version: u32,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: Option<Hints<'_>>,
) -> Result<Wanted, String> {
    let mut wanted = Wanted::new(version);
    if let Some(hints) = &hints {
        wanted.apply(hints)?;
    }
    if flags & abi::PROV_ATTR_ONLY != 0 {
        return Ok(wanted);
    }
    let named = match node.is_some() || service.is_some() {
        true => Some(resolve::resolve(node, service, flags & abi::NUMERICHOST != 0)?),
        false => None,
    };
    let is_source = flags & abi::SOURCE != 0;
    if let Some(hints) = hints {
        wanted.apply_addresses(hints, named.is_some().then_some(is_source))?;
    }
    match named {
        Some(named) if is_source => wanted.from = named,
        Some(named) => wanted.to = named,
        None => {}
    }
    Ok(wanted)
}

/// fi_getinfo(3). If the provider lacks a property, it returns -FI_ENODATA and logs a line.
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
            log::write(abi::LOG_INFO, abi::LOG_CORE, || {
                "this process is not in a space, or protected in it: start it by `nagaya exec` or \
                 `nagaya run`, without --protect"
                    .to_owned()
            });
        });
        return -abi::ENODATA;
    }
    // SAFETY: fi_getinfo(3): node and service are NULL or C strings, and hints are NULL or a
    // structure that its caller has filled in. They do not change during the call.
    let (node, service, hints) = unsafe { (text(node), text(service), Hints::read(hints)) };
    let found = match (node, service) {
        (Ok(node), Ok(service)) => find(version, node, service, flags, hints),
        _ => Err("node or service are not UTF-8".to_owned()),
    };
    match found {
        Ok(wanted) => {
            let answer = describe(version, &wanted);
            if answer.is_null() {
                return -abi::ENOMEM;
            }
            // SAFETY: not NULL, and fi_getinfo(3) lets us write the answer there.
            unsafe { info.write(answer) };
            0
        }
        Err(missing) => {
            log::write(abi::LOG_INFO, abi::LOG_CORE, || format!("this provider lacks: {missing}"));
            -abi::ENODATA
        }
    }
}
