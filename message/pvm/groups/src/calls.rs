//! Functions on groups that send no messages to other members, and pvm_bcast.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Mutex;

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupRequest};

use crate::known;
use crate::pvm3::{self, Result, checked, pvm_mcast, returned};
use crate::traced::traced;

/// Sends a request to the daemon, which answers with a number, or without one.
fn ask(group: *const c_char, request: impl FnOnce(String) -> GroupRequest) -> Result<c_int> {
    match pvm3::ask(&request(known::name(group)?))? {
        Answer::Number(number) => Ok(number),
        Answer::Done => Ok(0),
        _ => Err(Error::DSysErr.code()),
    }
}

/// Joins the group, and creates it if it does not exist. Returns the instance: the lowest free one.
///
/// Errors: NullGroup, DupGroup, NotInGroup if the group is static, SysErr.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_joingroup(group: *const c_char) -> c_int {
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::JOINGROUP, group) };
    called.run(|| returned(ask(group, GroupRequest::Join)))
}

/// Leaves the group. Returns 0.
///
/// Errors: NullGroup, NoGroup, NotInGroup, SysErr.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_lvgroup(group: *const c_char) -> c_int {
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::LVGROUP, group) };
    called.run(|| returned(ask(group, GroupRequest::Leave)))
}

/// Makes the group static once `size` members have called this function; -1 means all members.
/// Returns the size.
///
/// Errors: NullGroup, NoGroup, NotInGroup, DupGroup if it is static, Mismatch, SysErr. As in
/// libgpvm3, they are not stored in `pvm_errno`.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_freezegroup(group: *const c_char, size: c_int) -> c_int {
    ask(group, |name| GroupRequest::Freeze(name, size)).unwrap_or_else(|code| code)
}

/// Returns the instance of a task. Errors: NullGroup, NoGroup, NotInGroup, SysErr.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getinst(group: *const c_char, tid: c_int) -> c_int {
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::GETINST, group) }.with(Id::GT, tid).gives(Id::GI);
    called.run(|| {
        let instance = known::group(group).and_then(|group| group.instance_of(tid));
        returned(instance.map(|instance| instance as c_int))
    })
}

/// Returns the task of an instance. Errors: NullGroup, NoGroup, NoInst, SysErr.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gettid(group: *const c_char, instance: c_int) -> c_int {
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::GETTID, group) }.with(Id::GI, instance).gives(Id::GT);
    called.run(|| returned(known::group(group).and_then(|group| group.tid(instance))))
}

/// Returns the number of members. Errors: NullGroup, NoGroup, SysErr.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gsize(group: *const c_char) -> c_int {
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::GSIZE, group) }.gives(Id::GS);
    called.run(|| returned(known::group(group).map(|group| group.size() as c_int)))
}

/// Sends the active send buffer to all members but this task. Returns 0.
///
/// Errors: NullGroup; NoGroup; NoInst if the group has no other member; those of pvm_mcast.
///
/// # Safety
/// `group` is a null-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_bcast(group: *const c_char, tag: c_int) -> c_int {
    let send = |group: &known::Group, others: &mut Vec<c_int>| {
        group.alive()?;
        others.extend(group.members().filter(|&tid| tid != group.task()));
        if others.is_empty() {
            return Err(Error::NoInst.code());
        }
        // SAFETY: `others` has `others.len()` tids.
        checked(unsafe { pvm_mcast(others.as_ptr(), others.len() as c_int, tag) })?;
        Ok(0)
    };
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::BCAST, group) }.with(Id::MC, tag);
    called
        .run_listing(|others| returned(known::group(group).and_then(|group| send(&group, others))))
}

/// Describes the part of a group on one host, which any tid of that host names. Stores the
/// coordinator there (-1 if there is none), the number of members there, and the number of hosts
/// of the group. Returns 0, also for unknown groups.
///
/// Errors: NullGroup, SysErr.
///
/// # Safety
/// `group` is a null-terminated string, or null. The other pointers are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_grphostinfo(
    group: *const c_char,
    host: c_int,
    coordinator: *mut c_int,
    members: *mut c_int,
    hosts: *mut c_int,
) -> c_int {
    let found = match known::group(group) {
        Err(code) if code == Error::NoGroup.code() => (-1, 0, 0),
        Err(code) => return returned(Err(code)),
        Ok(group) => {
            let on_host = group.members_on(Tid::from(host).host());
            match on_host.iter().min() {
                None => (-1, 0, 0),
                Some(&first) => (first, on_host.len(), group.hosts().len()),
            }
        }
    };
    // SAFETY: the pointers are valid for a write, required of the caller.
    unsafe { (*coordinator, *members, *hosts) = (found.0, found.1 as c_int, found.2 as c_int) };
    0
}

/// Does the same as [`pvm_grphostinfo`] for all hosts of the group. The arrays are valid until the
/// next call.
///
/// # Safety
/// The same as for [`pvm_grphostinfo`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_grpvhostinfo(
    group: *const c_char,
    coordinators: *mut *mut c_int,
    members: *mut *mut c_int,
    hosts: *mut c_int,
) -> c_int {
    static ARRAYS: Mutex<[Vec<c_int>; 2]> = Mutex::new([Vec::new(), Vec::new()]);
    let group = match known::group(group) {
        Err(code) if code == Error::NoGroup.code() => None,
        Err(code) => return returned(Err(code)),
        Ok(group) => Some(group),
    };
    let mut arrays = ARRAYS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *arrays = [Vec::new(), Vec::new()];
    for host in group.iter().flat_map(|group| group.hosts()) {
        let on_host = group.as_ref().expect("it has hosts").members_on(host);
        arrays[0].extend(on_host.iter().min());
        arrays[1].push(on_host.len() as c_int);
    }
    let [of_coordinators, of_members] = arrays.each_mut().map(|array| match array.as_mut_slice() {
        [] => null_mut(),
        array => array.as_mut_ptr(),
    });
    let count = arrays[0].len() as c_int;
    // SAFETY: the pointers are valid for a write, required of the caller.
    unsafe { (*coordinators, *members, *hosts) = (of_coordinators, of_members, count) };
    0
}
