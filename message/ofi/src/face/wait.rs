//! Wait objects of completion queues and counters, and wait sets. By a wait set, a thread sleeps
//! until one of several queues and counters has news.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use libc::size_t;

use crate::abi;
use crate::engine::state::Core;
use crate::face::descriptor::{Descriptor, Watcher};
use crate::face::members::{Members, Pollable, Reader};

/// The queues and counters of a wait set, and the set's descriptor (FI_WAIT_FD).
#[derive(Debug)]
pub struct Waiters {
    members: Members,
    object: u32,
    descriptor: Option<Arc<Descriptor>>,
}

/// The wait object of a queue or counter.
#[derive(Debug)]
pub struct WaitObject {
    /// The kind of wait object (FI_WAIT_UNSPEC etc.).
    object: u32,
    /// Its own descriptor, from the first FI_GETWAIT on.
    own: OnceLock<(Arc<Descriptor>, Watcher)>,
    /// The wait set that it belongs to, and the thread that watches for the set's descriptor.
    set: Option<(Arc<Waiters>, Option<Watcher>)>,
}

impl WaitObject {
    /// Makes the wait object that the attributes of a queue or counter ask for. `has_news` returns
    /// true, without a lock, if the queue or counter may have news. Error: EINVAL, ENOSYS, ENOMEM.
    ///
    /// # Safety
    /// `set` is NULL or an open wait set of this provider.
    pub unsafe fn new(
        object: u32,
        set: *mut abi::FidWait,
        core: &Arc<Core>,
        has_news: impl Fn() -> bool + Send + 'static,
    ) -> Result<Self, c_int> {
        let set = match object {
            abi::WAIT_NONE | abi::WAIT_UNSPEC | abi::WAIT_FD | abi::WAIT_YIELD => None,
            abi::WAIT_SET if set.is_null() => return Err(abi::EINVAL),
            abi::WAIT_SET => {
                // SAFETY: not NULL, so an open wait set by this function's contract.
                let waiters = unsafe { of(set) }.waiters.clone();
                let watcher = match &waiters.descriptor {
                    Some(descriptor) => Some(
                        descriptor
                            .watch(core, |core| &core.doorbell, has_news)
                            .ok_or(abi::ENOMEM)?,
                    ),
                    None => None,
                };
                Some((waiters, watcher))
            }
            _ => return Err(abi::ENOSYS),
        };
        Ok(Self { object, own: OnceLock::new(), set })
    }

    /// Adds the queue or counter to its wait set, if it has one.
    ///
    /// # Safety
    /// `fid` and `object` are an open queue or counter, which calls `leave` before it is freed.
    pub unsafe fn enter(&self, fid: *mut abi::Fid, object: &dyn Pollable) {
        if let Some((waiters, _)) = &self.set {
            // SAFETY: the object stays until `leave`, by this function's contract.
            let added = unsafe { waiters.members.add(fid, object) };
            added.expect("a new queue or counter is in no set");
        }
    }

    /// Takes the queue or counter out of its wait set.
    pub fn leave(&self, fid: *mut abi::Fid) {
        if let Some((waiters, _)) = &self.set {
            waiters.members.remove(fid);
        }
    }

    /// Answers fi_control(3): FI_GETWAIT and FI_GETWAITOBJ. `has_news` as for `new`.
    ///
    /// # Safety
    /// `argument` may be written with the result of the command.
    pub unsafe fn control(
        &self,
        command: c_int,
        argument: *mut c_void,
        core: &Arc<Core>,
        has_news: impl Fn() -> bool + Send + 'static,
    ) -> c_int {
        let descriptor = match command as u32 {
            abi::GETWAIT => match &self.set {
                Some((waiters, _)) => waiters.descriptor.as_ref(),
                None => self.own(core, has_news),
            },
            _ => None,
        };
        // SAFETY: this function's contract.
        unsafe { answer(command, argument, self.object, descriptor) }
    }

    fn own(
        &self,
        core: &Arc<Core>,
        has_news: impl Fn() -> bool + Send + 'static,
    ) -> Option<&Arc<Descriptor>> {
        if self.object != abi::WAIT_FD && self.object != abi::WAIT_UNSPEC {
            return None;
        }
        if self.own.get().is_none() {
            let descriptor = Descriptor::new()?;
            let watcher = descriptor.watch(core, |core| &core.doorbell, has_news)?;
            // fi_poll(3) asks callers to serialize FI_GETWAIT; a second thread's is dropped.
            let _ = self.own.set((descriptor, watcher));
        }
        self.own.get().map(|(descriptor, _)| descriptor)
    }

    /// Arms its own descriptor, if it has one.
    pub fn arm(&self) {
        if let Some((descriptor, _)) = self.own.get() {
            descriptor.arm();
        }
    }
}

/// Answers FI_GETWAIT and FI_GETWAITOBJ.
///
/// # Safety
/// `argument` is NULL or may be written with the result of the command.
unsafe fn answer(
    command: c_int,
    argument: *mut c_void,
    object: u32,
    descriptor: Option<&Arc<Descriptor>>,
) -> c_int {
    if argument.is_null() {
        return -abi::EINVAL;
    }
    match (command as u32, descriptor) {
        (abi::GETWAIT, None) => return -abi::ENODATA,
        // SAFETY: fi_poll(3): the result of FI_GETWAIT is an `int` for a descriptor.
        (abi::GETWAIT, Some(descriptor)) => unsafe {
            argument.cast::<c_int>().write(descriptor.number());
        },
        // SAFETY: fi_poll(3): the result of FI_GETWAITOBJ is an `enum fi_wait_obj`.
        (abi::GETWAITOBJ, _) => unsafe { argument.cast::<u32>().write(object) },
        _ => return -abi::ENOSYS,
    }
    0
}

/// libfabric's object, with our part behind it.
#[repr(C)]
struct WaitSet {
    fid: abi::FidWait,
    waiters: Arc<Waiters>,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, None, Some(control));

static OPS: abi::OpsWait = abi::OpsWait { size: size_of::<abi::OpsWait>(), wait: Some(wait) };

/// fi_wait_open(3).
pub unsafe extern "C" fn open(
    _: *mut abi::FidFabric,
    attr: *mut abi::WaitAttr,
    set: *mut *mut abi::FidWait,
) -> c_int {
    // SAFETY: fi_wait_open(3): NULL, or attributes that the caller has filled in.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return -abi::EINVAL };
    if attr.flags != 0 {
        return -abi::EINVAL;
    }
    let object = attr.wait_obj;
    let descriptor = match object {
        abi::WAIT_UNSPEC | abi::WAIT_YIELD => None,
        abi::WAIT_FD => match Descriptor::new() {
            None => return -abi::ENOMEM,
            made => made,
        },
        _ => return -abi::ENOSYS,
    };
    let context = std::ptr::null_mut();
    let fid = abi::Fid { fclass: abi::CLASS_WAIT as size_t, context, ops: &FID };
    let waiters = Arc::new(Waiters { members: Members::default(), object, descriptor });
    let made = WaitSet { fid: abi::FidWait { fid, ops: &OPS }, waiters };
    // SAFETY: fi_wait_open(3) lets us write the set there.
    unsafe { set.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

/// Returns our object.
///
/// # Safety
/// `set` is an open wait set of this provider.
unsafe fn of<'a>(set: *mut abi::FidWait) -> &'a WaitSet {
    // SAFETY: `open` has made a `WaitSet`, whose fid is its first field.
    unsafe { &*set.cast::<WaitSet>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: fi_close(3): an open wait set of this provider.
    if !unsafe { of(fid.cast()) }.waiters.members.is_empty() {
        return -abi::EBUSY;
    }
    // SAFETY: `open` has made the set with `Box::into_raw`, and fi_close(3) is called once.
    drop(unsafe { Box::from_raw(fid.cast::<WaitSet>()) });
    0
}

unsafe extern "C" fn control(fid: *mut abi::Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: fi_control(3): an open wait set of this provider, and a place for the result.
    unsafe {
        let waiters = &of(fid.cast()).waiters;
        answer(command, argument, waiters.object, waiters.descriptor.as_ref())
    }
}

/// fi_trywait(3) of a wait set: arms its descriptor. Returns true if a thread may sleep.
///
/// # Safety
/// `set` is an open wait set of this provider.
pub unsafe fn try_wait(set: *mut abi::FidWait) -> bool {
    // SAFETY: this function's contract.
    let waiters = unsafe { &of(set).waiters };
    if let Some(descriptor) = &waiters.descriptor {
        descriptor.arm();
    }
    waiters.members.is_quiet()
}

/// fi_wait(3): waits until a member of the set has news.
unsafe extern "C" fn wait(set: *mut abi::FidWait, timeout: c_int) -> c_int {
    // SAFETY: fi_wait(3): an open wait set of this provider.
    let waiters = unsafe { of(set) }.waiters.clone();
    // Messages to members of other domains do not wake this thread, but no sleep is long.
    let Some(core) = waiters.members.core() else { return -abi::EINVAL };
    let until = u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let found = core.wait(until, || {
        let mut found = None;
        waiters.members.poll(Reader::WaitSet, |_| found = Some(0));
        found
    });
    found.unwrap_or(-abi::ETIMEDOUT)
}
