//! Memory regions (fi_mr(3)): libfabric's objects for entries of the domain's table.

use std::ffi::{c_int, c_void};

use libc::{iovec, size_t};

use crate::abi;
use crate::face::counter;
use crate::face::domain_object::Domain;

/// A registered region.
#[repr(C)]
struct Region {
    fid: abi::FidMr,
    domain: *const Domain,
    /// The region is in the table, where other tasks find it.
    is_listed: bool,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, Some(bind), Some(control));

/// The domain's calls for regions.
pub static OPS: abi::OpsMr = abi::OpsMr {
    size: size_of::<abi::OpsMr>(),
    reg: Some(reg),
    regv: Some(regv),
    regattr: Some(regattr),
};

unsafe extern "C" fn reg(
    fid: *mut abi::Fid,
    buffer: *const c_void,
    length: size_t,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    region: *mut *mut abi::FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: fi_mr_reg(3): an open domain of this provider, whose fid is its first field.
    // libfabric requires that the domain stays open until its regions are closed.
    let domain = unsafe { &*fid.cast::<Domain>() };
    let start = domain.core.here.task.for_others(buffer as u64);
    let key = if domain.basic { domain.next_key() } else { key };
    // Peers name addresses (FI_MR_BASIC), or offsets in the region.
    let base = if domain.basic { start.wrapping_sub(buffer as u64) } else { start };
    let serial = domain.next_key();
    let access = if access == 0 { u64::MAX } else { access };
    let words = [start, length as u64, base, access];
    let is_listed = access & (abi::REMOTE_READ | abi::REMOTE_WRITE) != 0;
    if is_listed {
        let _one = domain.core.register();
        if !domain.core.regions.add(serial, key, words) {
            return -abi::EINVAL; // libfabric: the key is in use
        }
    }
    let fid = abi::Fid { fclass: abi::CLASS_MR as size_t, context, ops: &FID };
    let fid = abi::FidMr { fid, mem_desc: std::ptr::null_mut(), key };
    let made = Box::new(Region { fid, domain, is_listed });
    // SAFETY: fi_mr_reg(3) lets us write the region there.
    unsafe { region.write(Box::into_raw(made).cast()) };
    0
}

unsafe extern "C" fn regv(
    fid: *mut abi::Fid,
    parts: *const iovec,
    count: size_t,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    region: *mut *mut abi::FidMr,
    context: *mut c_void,
) -> c_int {
    if count != 1 {
        return -abi::EINVAL;
    }
    // SAFETY: fi_mr_regv(3): a list of `count` parts, which is 1.
    unsafe {
        let part = &*parts;
        reg(fid, part.iov_base, part.iov_len, access, offset, key, flags, region, context)
    }
}

unsafe extern "C" fn regattr(
    fid: *mut abi::Fid,
    attr: *const abi::MrAttr,
    flags: u64,
    region: *mut *mut abi::FidMr,
) -> c_int {
    // SAFETY: fi_mr_regattr(3): a structure that the caller has filled in, with a list of parts.
    unsafe {
        let attr = &*attr;
        let (access, key) = (attr.access, attr.requested_key);
        let (parts, count) = (attr.mr_iov, attr.iov_count);
        regv(fid, parts, count, access, attr.offset, key, flags, region, attr.context)
    }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: `reg` has made the region with `Box::into_raw`, and fi_close(3) is called once.
    let region = unsafe { Box::from_raw(fid.cast::<Region>()) };
    // SAFETY: libfabric requires that the domain stays open until its regions are closed.
    let core = unsafe { &(*region.domain).core };
    if region.is_listed {
        let _one = core.register();
        core.regions.remove(region.fid.key);
    }
    0
}

/// fi_mr_bind(3): binds a counter of remote accesses (FI_RMA_EVENT). Endpoints need no binding.
unsafe extern "C" fn bind(fid: *mut abi::Fid, other: *mut abi::Fid, flags: u64) -> c_int {
    if other.is_null() {
        return -abi::EINVAL;
    }
    // SAFETY: fi_mr_bind(3): an open region of this provider, and an open object of the same
    // domain.
    let (region, class) = unsafe { (&*fid.cast::<Region>(), (*other).fclass as u32) };
    match class {
        abi::CLASS_EP => return 0,
        abi::CLASS_CNTR if flags & !(abi::REMOTE_READ | abi::REMOTE_WRITE) == 0 => {}
        _ => return -abi::EINVAL,
    }
    // SAFETY: its class says that it is a counter. The domain stays open until its regions are
    // closed.
    let (counter, core) = unsafe { (counter::of(other.cast()), &(*region.domain).core) };
    let _one = core.register();
    for (flag, was_read) in [(abi::REMOTE_WRITE, false), (abi::REMOTE_READ, true)] {
        if flags & flag != 0 && region.is_listed {
            core.regions.count(region.fid.key, &counter.counts, was_read);
        }
    }
    0
}

unsafe extern "C" fn control(_: *mut abi::Fid, _: c_int, _: *mut c_void) -> c_int {
    0
}
