//! Counters: how many operations are done, and how many have failed.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use libc::size_t;
use pvas::hold::Identity;

use crate::domain::Domain;
use crate::poll::Members;
use crate::space::Here;
use crate::state::Core;
use crate::{abi, wait};

/// Both numbers.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// Those of another task at this address. `None`: they cannot be there. The caller holds the
    /// task while it uses them.
    pub fn of<'a>(here: &Here, whom: Identity, at: u64) -> Option<&'a Self> {
        let segment = here.task.control.layout().segment(whom.id)?;
        let end = at.checked_add(size_of::<Self>() as u64)?;
        let is_there = at >= segment.start() && end <= segment.end();
        let is_aligned = at.is_multiple_of(align_of::<Self>() as u64);
        // SAFETY: it lies in the segment of a held task, which said so in `shared`, and never takes
        // it back.
        (is_there && is_aligned).then(|| unsafe { &*(at as *const Self) })
    }

    /// Their address for other tasks, as long as ours lives: they may be about to count.
    pub fn shared(counts: &Arc<Self>) -> u64 {
        Arc::into_raw(counts.clone()) as u64
    }

    /// Both numbers.
    fn both(&self) -> [u64; 2] {
        [self.done.load(Acquire), self.failed.load(Acquire)]
    }

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
    pub core: Arc<Core>,
    /// The numbers when the counter was last polled or set.
    polled: [AtomicU64; 2],
    /// The wait set that it is in.
    waiters: Option<Arc<Members>>,
}

impl Counter {
    /// Makes progress. Whether a number has changed since the last call, or since the program has
    /// set it.
    pub fn poll(&self) -> bool {
        self.core.progress_all();
        let now = self.counts.both();
        let before = self.polled.each_ref().map(|number| number.load(Relaxed));
        self.set_polled();
        now != before
    }

    fn set_polled(&self) {
        for (polled, number) in self.polled.iter().zip(self.counts.both()) {
            polled.store(number, Relaxed);
        }
    }
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
    let waiters = match attr {
        Some(attr) if attr.wait_obj == abi::WAIT_SET => match attr.wait_set.is_null() {
            true => return -abi::EINVAL,
            // SAFETY: the caller's, if it says that there is one.
            false => Some(unsafe { wait::members(attr.wait_set.cast()) }),
        },
        _ => None,
    };
    let fid = abi::Fid { fclass: abi::CLASS_CNTR as size_t, context, ops: &FID };
    let fid = abi::FidCntr { fid, ops: &OPS };
    let made = Counter {
        fid,
        counts: Arc::default(),
        core: domain.core.clone(),
        polled: Default::default(),
        waiters: waiters.clone(),
    };
    let made = Box::into_raw(Box::new(made)).cast::<abi::FidCntr>();
    if let Some(waiters) = waiters {
        // SAFETY: just made; its fid is its first member.
        let added = unsafe { waiters.add(made.cast()) };
        added.expect("a new counter is in no set");
    }
    // SAFETY: the caller waits for it there.
    unsafe { counter.write(made) };
    0
}

/// # Safety
/// A counter of ours.
pub unsafe fn of<'a>(counter: *mut abi::FidCntr) -> &'a Counter {
    // SAFETY: its fid is its first member.
    unsafe { &*counter.cast::<Counter>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: made by `open`, and closed once.
    let counter = unsafe { Box::from_raw(fid.cast::<Counter>()) };
    if let Some(waiters) = &counter.waiters {
        waiters.remove(fid);
    }
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
    let counter = unsafe { of(counter) };
    counter.counts.done.fetch_add(value, AcqRel);
    counter.set_polled();
    0
}

unsafe extern "C" fn set(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    let counter = unsafe { of(counter) };
    counter.counts.done.store(value, Release);
    counter.set_polled();
    0
}

unsafe extern "C" fn adderr(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    let counter = unsafe { of(counter) };
    counter.counts.failed.fetch_add(value, AcqRel);
    counter.set_polled();
    0
}

unsafe extern "C" fn seterr(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: as above.
    let counter = unsafe { of(counter) };
    counter.counts.failed.store(value, Release);
    counter.set_polled();
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
