//! Poll sets: several completion queues and counters, of which one call tells which have news.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

use libc::size_t;

use crate::state::Core;
use crate::{abi, counter, cq};

/// Who is told of changes of a counter. Each is told of every change, whatever the other has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    PollSet,
    WaitSet,
}

/// Queues and counters of a program's, which it takes out before it closes them.
#[derive(Debug, Default)]
pub struct Members(Mutex<Vec<Member>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member(*mut abi::Fid);

// SAFETY: what it points to may be used by any thread.
unsafe impl Send for Member {}

impl Members {
    fn list(&self) -> MutexGuard<'_, Vec<Member>> {
        self.0.lock().expect("no panic while held")
    }

    /// Adds one. Error: EINVAL, if it is neither queue nor counter; EALREADY.
    ///
    /// # Safety
    /// It is null, or an object of ours that stays until it is taken out.
    pub unsafe fn add(&self, fid: *mut abi::Fid) -> Result<(), c_int> {
        // SAFETY: as the caller says.
        let class = unsafe { fid.as_ref() }.map(|fid| fid.fclass as u32);
        if ![Some(abi::CLASS_CQ), Some(abi::CLASS_CNTR)].contains(&class) {
            return Err(abi::EINVAL);
        }
        let mut list = self.list();
        if list.contains(&Member(fid)) {
            return Err(abi::EALREADY);
        }
        list.push(Member(fid));
        Ok(())
    }

    /// Takes one out.
    pub fn remove(&self, fid: *mut abi::Fid) {
        self.list().retain(|member| member.0 != fid);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Makes progress, and tells `reader` of those that have news.
    pub fn poll(&self, reader: Reader, mut tell: impl FnMut(&abi::Fid)) {
        for &Member(fid) in self.list().iter() {
            // SAFETY: `add` was promised that it stays, and saw its class.
            let (fid, has_news) = unsafe {
                let has_news = match (*fid).fclass as u32 {
                    abi::CLASS_CQ => cq::of(fid.cast()).poll(),
                    _ => counter::of(fid.cast()).poll(reader),
                };
                (&*fid, has_news)
            };
            if has_news {
                tell(fid);
            }
        }
    }

    /// Wakes the threads that watch them. Returns whether none has news.
    pub fn is_quiet(&self) -> bool {
        let mut is_quiet = true;
        for &Member(fid) in self.list().iter() {
            // SAFETY: `add` was promised that it stays, and saw its class.
            is_quiet &= unsafe {
                match (*fid).fclass as u32 {
                    abi::CLASS_CQ => cq::of(fid.cast()).try_wait(),
                    _ => counter::of(fid.cast()).try_wait(),
                }
            };
        }
        is_quiet
    }

    /// The domain of one of them.
    pub fn core(&self) -> Option<Arc<Core>> {
        let &Member(fid) = self.list().first()?;
        // SAFETY: as above.
        Some(unsafe {
            match (*fid).fclass as u32 {
                abi::CLASS_CQ => cq::of(fid.cast()).core.clone(),
                _ => counter::of(fid.cast()).core.clone(),
            }
        })
    }
}

/// libfabric's object.
#[repr(C)]
struct PollSet {
    fid: abi::FidPoll,
    members: Members,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, None, None);

static OPS: abi::OpsPoll = abi::OpsPoll {
    size: size_of::<abi::OpsPoll>(),
    poll: Some(poll),
    poll_add: Some(add),
    poll_del: Some(remove),
};

/// fi_poll_open(3).
pub unsafe extern "C" fn open(
    _: *mut abi::FidDomain,
    attr: *mut abi::PollAttr,
    set: *mut *mut abi::FidPoll,
) -> c_int {
    // SAFETY: the caller's, if there is one.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.flags != 0) {
        return -abi::EINVAL;
    }
    let context = std::ptr::null_mut();
    let fid = abi::Fid { fclass: abi::CLASS_POLL as size_t, context, ops: &FID };
    let made = PollSet { fid: abi::FidPoll { fid, ops: &OPS }, members: Members::default() };
    // SAFETY: the caller waits for it there.
    unsafe { set.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

/// # Safety
/// An open poll set of ours.
unsafe fn of<'a>(set: *mut abi::FidPoll) -> &'a PollSet {
    // SAFETY: its fid is its first member.
    unsafe { &*set.cast::<PollSet>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: made by `open`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<PollSet>()) });
    0
}

unsafe extern "C" fn add(set: *mut abi::FidPoll, fid: *mut abi::Fid, _flags: u64) -> c_int {
    // SAFETY: libfabric's caller keeps to fi_poll(3).
    unsafe { of(set).members.add(fid) }.map_or_else(|error| -error, |()| 0)
}

unsafe extern "C" fn remove(set: *mut abi::FidPoll, fid: *mut abi::Fid, _flags: u64) -> c_int {
    // SAFETY: as above.
    unsafe { of(set) }.members.remove(fid);
    0
}

/// fi_poll(3).
unsafe extern "C" fn poll(
    set: *mut abi::FidPoll,
    contexts: *mut *mut c_void,
    count: c_int,
) -> c_int {
    if contexts.is_null() && count > 0 {
        return -abi::EINVAL;
    }
    let mut told = 0;
    // SAFETY: as above.
    unsafe { of(set) }.members.poll(Reader::PollSet, |fid| {
        if told < count {
            // SAFETY: as above: room for so many.
            unsafe { contexts.add(told as usize).write(fid.context) };
            told += 1;
        }
    });
    told
}
