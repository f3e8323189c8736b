//! Poll sets: one call reports which of several completion queues and counters have news.

use std::ffi::{c_int, c_void};

use libc::size_t;

use crate::abi;
use crate::face::counter;
use crate::face::cq;
use crate::face::members::{Members, Pollable, Reader};

/// libfabric's object, with our part behind it.
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
    // SAFETY: fi_poll_open(3): NULL, or attributes that the caller has filled in.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.flags != 0) {
        return -abi::EINVAL;
    }
    let context = std::ptr::null_mut();
    let fid = abi::Fid { fclass: abi::CLASS_POLL as size_t, context, ops: &FID };
    let made = PollSet { fid: abi::FidPoll { fid, ops: &OPS }, members: Members::default() };
    // SAFETY: fi_poll_open(3) lets us write the set there.
    unsafe { set.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

/// Returns our object.
///
/// # Safety
/// `set` is an open poll set of this provider.
unsafe fn of<'a>(set: *mut abi::FidPoll) -> &'a PollSet {
    // SAFETY: `open` has made a `PollSet`, whose fid is its first field.
    unsafe { &*set.cast::<PollSet>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: `open` has made the set with `Box::into_raw`, and fi_close(3) is called once.
    drop(unsafe { Box::from_raw(fid.cast::<PollSet>()) });
    0
}

unsafe extern "C" fn add(set: *mut abi::FidPoll, fid: *mut abi::Fid, _flags: u64) -> c_int {
    // SAFETY: fi_poll(3): an open set. `fid` is NULL or an open object, which the program removes
    // from the set before it closes it.
    let added = unsafe {
        let member: &dyn Pollable = match fid.as_ref().map(|fid| fid.fclass as u32) {
            Some(abi::CLASS_CQ) => cq::of(fid.cast()),
            Some(abi::CLASS_CNTR) => counter::of(fid.cast()),
            _ => return -abi::EINVAL,
        };
        of(set).members.add(fid, member)
    };
    added.map_or_else(|error| -error, |()| 0)
}

unsafe extern "C" fn remove(set: *mut abi::FidPoll, fid: *mut abi::Fid, _flags: u64) -> c_int {
    // SAFETY: fi_poll(3): an open poll set of this provider.
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
    // SAFETY: fi_poll(3): an open poll set of this provider.
    unsafe { of(set) }.members.poll(Reader::PollSet, |fid| {
        if told < count {
            // SAFETY: fi_poll(3): `contexts` has room for `count` contexts.
            unsafe { contexts.add(told as usize).write(fid.context) };
            told += 1;
        }
    });
    told
}
