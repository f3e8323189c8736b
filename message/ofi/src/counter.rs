//! Counters: how many operations are done, and how many have failed.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use libc::size_t;

use crate::abi;
use crate::domain::Domain;
use crate::state::Core;

/// Both numbers.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// One more is done, or has failed.
    pub fn count(&self, failed: bool) {
        if failed { &self.failed } else { &self.done }.fetch_add(1, AcqRel);
    }
}

/// libfabric's object.
#[repr(C)]
pub struct Counter {
    fid: abi::FidCntr,
    /// The numbers, which endpoints share.
    pub counts: Arc<Counts>,
    core: Arc<Core>,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, None, Some(control));

static OPS: abi::OpsCntr = abi::OpsCntr {
    size: size_of::<abi::OpsCntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
};

/// fi_cntr_open(3).
pub unsafe extern "C" fn open(
    domain: *mut abi::FidDomain,
    attr: *mut abi::CntrAttr,
    counter: *mut *mut abi::FidCntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's, if there is one, and an open domain of ours.
    let (domain, attr) = unsafe { (&*domain.cast::<Domain>(), attr.as_ref()) };
    if attr.is_some_and(|attr| attr.flags & abi::peer::PEER != 0) {
        return -abi::EINVAL;
    }
    let fid = abi::Fid { fclass: abi::CLASS_CNTR as size_t, context, ops: &FID };
    let fid = abi::FidCntr { fid, ops: &OPS };
    let made = Counter { fid, counts: Arc::default(), core: domain.core.clone() };
    // SAFETY: the caller waits for it there.
    unsafe { counter.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

/// # Safety
/// A counter of ours.
unsafe fn of<'a>(counter: *mut abi::FidCntr) -> &'a Counter {
    // SAFETY: its fid is its first member.
    unsafe { &*counter.cast::<Counter>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: made by `open`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<Counter>()) });
    0
}

unsafe extern "C" fn control(_: *mut abi::Fid, _: c_int, _: *mut c_void) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn read(counter: *mut abi::FidCntr) -> u64 {
    // SAFETY: libfabric's caller passes a counter.
    let counter = unsafe { of(counter) };
    counter.core.progress_all();
    counter.counts.done.load(Acquire)
}

unsafe extern "C" fn readerr(counter: *mut abi::FidCntr) -> u64 {
    // SAFETY: as above.
    unsafe { of(counter) }.counts.failed.load(Acquire)
}

unsafe extern "C" fn add(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { of(counter) }.counts.done.fetch_add(value, AcqRel);
    0
}

unsafe extern "C" fn set(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { of(counter) }.counts.done.store(value, Release);
    0
}

unsafe extern "C" fn adderr(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { of(counter) }.counts.failed.fetch_add(value, AcqRel);
    0
}

unsafe extern "C" fn seterr(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    unsafe { of(counter) }.counts.failed.store(value, Release);
    0
}

unsafe extern "C" fn wait(counter: *mut abi::FidCntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: as above.
    let counter = unsafe { of(counter) };
    let until = u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let failed = counter.counts.failed.load(Acquire);
    let result = counter.core.wait(until, || {
        counter.core.progress_all();
        if counter.counts.done.load(Acquire) >= threshold {
            return Some(0);
        }
        (counter.counts.failed.load(Acquire) != failed).then_some(-abi::EAVAIL)
    });
    result.unwrap_or(-abi::ETIMEDOUT)
}
