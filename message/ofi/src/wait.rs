//! Wait sets: a thread sleeps until one of several completion queues and counters has news.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::size_t;

use crate::abi;
use crate::poll::Members;

/// libfabric's object.
#[repr(C)]
struct WaitSet {
    fid: abi::FidWait,
    members: Arc<Members>,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, None, None);

static OPS: abi::OpsWait = abi::OpsWait { size: size_of::<abi::OpsWait>(), wait: Some(wait) };

/// fi_wait_open(3). There is no descriptor for a whole set; each queue has its own (FI_WAIT_FD).
pub unsafe extern "C" fn open(
    _: *mut abi::FidFabric,
    attr: *mut abi::WaitAttr,
    set: *mut *mut abi::FidWait,
) -> c_int {
    // SAFETY: the caller's.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return -abi::EINVAL };
    if attr.flags != 0 {
        return -abi::EINVAL;
    }
    if ![abi::WAIT_UNSPEC, abi::WAIT_YIELD].contains(&attr.wait_obj) {
        return -abi::ENOSYS;
    }
    let context = std::ptr::null_mut();
    let fid = abi::Fid { fclass: abi::CLASS_WAIT as size_t, context, ops: &FID };
    let made = WaitSet { fid: abi::FidWait { fid, ops: &OPS }, members: Arc::default() };
    // SAFETY: the caller waits for it there.
    unsafe { set.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

/// What is in a wait set.
///
/// # Safety
/// An open wait set of ours.
pub unsafe fn members(set: *mut abi::FidWait) -> Arc<Members> {
    // SAFETY: its fid is its first member.
    unsafe { &*set.cast::<WaitSet>() }.members.clone()
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: an open wait set of ours.
    if !unsafe { members(fid.cast()) }.is_empty() {
        return -abi::EBUSY;
    }
    // SAFETY: made by `open`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<WaitSet>()) });
    0
}

/// fi_wait(3): waits until one of the set has news.
unsafe extern "C" fn wait(set: *mut abi::FidWait, timeout: c_int) -> c_int {
    // SAFETY: libfabric's caller keeps to fi_wait(3).
    let members = unsafe { members(set) };
    // Messages to other domains wake nobody in this one, but none sleeps for long.
    let Some(core) = members.core() else { return -abi::EINVAL };
    let until = u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let found = core.wait(until, || {
        let mut found = None;
        members.poll(|_| found = Some(0));
        found
    });
    found.unwrap_or(-abi::ETIMEDOUT)
}
