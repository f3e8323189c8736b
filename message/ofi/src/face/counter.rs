//! Counters: the number of operations that have succeeded, and of those that have failed.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use libc::size_t;

use crate::abi;
use crate::engine::counts::Counts;
use crate::engine::state::Core;
use crate::face::domain_object::Domain;
use crate::face::members::{Pollable, Reader};
use crate::face::wait::WaitObject;

/// libfabric's object, with our part behind it.
#[repr(C)]
pub struct Counter {
    fid: abi::FidCntr,
    /// The numbers, which endpoints also have.
    pub counts: Arc<Counts>,
    pub core: Arc<Core>,
    seen: Arc<Seen>,
    wait: WaitObject,
}

/// The numbers that poll sets and wait sets have seen.
#[derive(Debug, Default)]
struct Seen {
    by_poll_set: [AtomicU64; 2],
    by_wait_set: [AtomicU64; 2],
}

impl Seen {
    fn by(&self, reader: Reader) -> &[AtomicU64; 2] {
        match reader {
            Reader::PollSet => &self.by_poll_set,
            Reader::WaitSet => &self.by_wait_set,
        }
    }

    fn differs(&self, reader: Reader, counts: &Counts) -> bool {
        self.by(reader).each_ref().map(|number| number.load(Relaxed)) != counts.both()
    }

    fn note(&self, reader: Reader, counts: &Counts) {
        for (seen, number) in self.by(reader).iter().zip(counts.both()) {
            seen.store(number, Relaxed);
        }
    }
}

impl Counter {
    fn has_changed(&self, reader: Reader) -> bool {
        let has_changed = self.seen.differs(reader, &self.counts);
        self.seen.note(reader, &self.counts);
        has_changed
    }

    /// Notes numbers that the program has set: they are no news.
    fn note_all(&self) {
        self.seen.note(Reader::PollSet, &self.counts);
        self.seen.note(Reader::WaitSet, &self.counts);
    }

    fn watched(&self) -> impl Fn() -> bool + Send + 'static {
        watched(&self.core, &self.counts, &self.seen)
    }
}

impl Pollable for Counter {
    /// Returns true if a number has changed since `reader` has seen it, or since the program has
    /// set it.
    fn poll(&self, reader: Reader) -> bool {
        self.core.progress_all();
        self.has_changed(reader)
    }

    fn try_wait(&self) -> bool {
        self.wait.arm();
        self.core.doorbell.ring();
        self.core.check_peers();
        !self.core.news.any() && !self.has_changed(Reader::WaitSet)
    }

    fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// Returns a function that returns true, without the lock, if a counter may have news: it has
/// changed, or arrived messages may change it.
fn watched(
    core: &Arc<Core>,
    counts: &Arc<Counts>,
    seen: &Arc<Seen>,
) -> impl Fn() -> bool + Send + 'static {
    let (core, counts, seen) = (core.clone(), counts.clone(), seen.clone());
    move || core.news.any() || seen.differs(Reader::WaitSet, &counts)
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
    // SAFETY: fi_cntr_open(3): an open domain of this provider, and attributes of the caller or
    // NULL.
    let (domain, attr) = unsafe { (&*domain.cast::<Domain>(), attr.as_ref()) };
    if attr.is_some_and(|attr| attr.flags & abi::peer::PEER != 0) {
        return -abi::EINVAL;
    }
    let (object, set) = attr
        .map_or((abi::WAIT_UNSPEC, std::ptr::null_mut()), |attr| (attr.wait_obj, attr.wait_set));
    let (core, counts, seen) = (domain.core.clone(), Arc::default(), Arc::default());
    // SAFETY: fi_cntr_open(3): an open wait set of this provider, if the attributes say
    // FI_WAIT_SET.
    let wait =
        unsafe { WaitObject::new(object, set.cast(), &core, watched(&core, &counts, &seen)) };
    let wait = match wait {
        Ok(wait) => wait,
        Err(error) => return -error,
    };
    let fid = abi::Fid { fclass: abi::CLASS_CNTR as size_t, context, ops: &FID };
    let fid = abi::FidCntr { fid, ops: &OPS };
    let made = Counter { fid, counts, core, seen, wait };
    let made = Box::into_raw(Box::new(made)).cast::<abi::FidCntr>();
    // SAFETY: the counter was just made, and its fid is its first field. `close` calls `leave`.
    unsafe { of(made).wait.enter(made.cast(), of(made)) };
    // SAFETY: fi_cntr_open(3) lets us write the counter there.
    unsafe { counter.write(made) };
    0
}

/// Returns our object.
///
/// # Safety
/// `counter` is an open counter of this provider.
pub unsafe fn of<'a>(counter: *mut abi::FidCntr) -> &'a Counter {
    // SAFETY: `open` has made a `Counter`, whose fid is its first field.
    unsafe { &*counter.cast::<Counter>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: `open` has made the counter with `Box::into_raw`, and fi_close(3) is called once.
    let counter = unsafe { Box::from_raw(fid.cast::<Counter>()) };
    counter.wait.leave(fid);
    0
}

unsafe extern "C" fn control(fid: *mut abi::Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: fi_control(3): an open counter of this provider, and a place for the result.
    unsafe {
        let counter = of(fid.cast());
        counter.wait.control(command, argument, &counter.core, counter.watched())
    }
}

unsafe extern "C" fn read(counter: *mut abi::FidCntr) -> u64 {
    // SAFETY: fi_cntr_read(3): an open counter of this provider.
    let counter = unsafe { of(counter) };
    counter.core.progress_all();
    counter.counts.done.load(Acquire)
}

unsafe extern "C" fn readerr(counter: *mut abi::FidCntr) -> u64 {
    // SAFETY: fi_cntr_readerr(3): an open counter of this provider.
    unsafe { of(counter) }.counts.failed.load(Acquire)
}

unsafe extern "C" fn add(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: fi_cntr_add(3): an open counter of this provider.
    let counter = unsafe { of(counter) };
    counter.counts.done.fetch_add(value, AcqRel);
    counter.note_all();
    0
}

unsafe extern "C" fn set(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: fi_cntr_set(3): an open counter of this provider.
    let counter = unsafe { of(counter) };
    counter.counts.done.store(value, Release);
    counter.note_all();
    0
}

unsafe extern "C" fn adderr(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: fi_cntr_adderr(3): an open counter of this provider.
    let counter = unsafe { of(counter) };
    counter.counts.failed.fetch_add(value, AcqRel);
    counter.note_all();
    0
}

unsafe extern "C" fn seterr(counter: *mut abi::FidCntr, value: u64) -> c_int {
    // SAFETY: fi_cntr_seterr(3): an open counter of this provider.
    let counter = unsafe { of(counter) };
    counter.counts.failed.store(value, Release);
    counter.note_all();
    0
}

unsafe extern "C" fn wait(counter: *mut abi::FidCntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: fi_cntr_wait(3): an open counter of this provider.
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
