//! The virtual machine: its hosts, their clocks, and its end.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::tid::{HOST_MAX, Tid};
use pvm::wire::{Answer, HostInfo, Request};

use super::kept::CHostInfo;
use super::library::{Library, call, call_quietly};
use super::state::Code;
use super::tracing::{self, text, traced};

fn config(library: &Library) -> Result<Vec<HostInfo>, Code> {
    match library.ask(Request::Config)? {
        Answer::Hosts(hosts) => Ok(hosts),
        _ => Err(Error::DSysErr.into()),
    }
}

/// See `pvm3.h`.
///
/// # Safety
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_config(
    count: *mut c_int,
    architectures: *mut c_int,
    list: *mut *mut CHostInfo,
) -> c_int {
    let found = Cell::new([0; 2]);
    let called = traced("pvm_config", Event::CONFIG).tells(|record, _, result| {
        let [hosts, kinds] = found.get();
        record.int(Id::NH, hosts).int(Id::NA, kinds).int(Id::CC, result);
    });
    call(called, |library| {
        let hosts = config(library)?;
        let mut kinds: Vec<&str> = hosts.iter().map(|host| &host.architecture[..]).collect();
        kinds.sort_unstable();
        kinds.dedup();
        found.set([hosts.len() as c_int, kinds.len() as c_int]);
        let kept = library.with(|state| Ok(state.hosts.keep(&hosts)))?;
        // SAFETY: each pointer is null or valid for a write, required of the caller.
        unsafe {
            if !count.is_null() {
                *count = hosts.len() as c_int;
            }
            if !architectures.is_null() {
                *architectures = kinds.len() as c_int;
            }
            if !list.is_null() {
                *list = kept;
            }
        }
        Ok(0)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `architecture` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_archcode(architecture: *const c_char) -> c_int {
    let called = traced("pvm_archcode", Event::ARCHCODE).gives(Id::AC);
    // SAFETY: `architecture` is null or a string, required of the caller.
    let called = called.with(|record| record.string(Id::AN, &unsafe { text(architecture) }));
    call(called, |library| {
        if architecture.is_null() {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `architecture` is null or a string, required of the caller. Null is handled
        // separately.
        let wanted = unsafe { CStr::from_ptr(architecture) }.to_bytes();
        let hosts = config(library)?;
        let found = hosts.iter().find(|host| host.architecture.as_bytes() == wanted);
        Ok(found.ok_or(Error::NotFound)?.signature)
    })
}

/// Returns the strings of a C program.
///
/// # Safety
/// `strings` has `count` strings.
unsafe fn lines(strings: *const *const c_char, count: c_int) -> Result<Vec<String>, Code> {
    if count < 1 || count > c_int::from(HOST_MAX as i16) || strings.is_null() {
        return Err(Error::BadParam.into());
    }
    // SAFETY: `strings` has `count` strings, required of the caller.
    let strings = unsafe { std::slice::from_raw_parts(strings, count as usize) };
    let line = |string: &*const c_char| {
        // SAFETY: `strings` has `count` strings, required of the caller.
        unsafe { CStr::from_ptr(*string) }.to_string_lossy().into_owned()
    };
    Ok(strings.iter().map(line).collect())
}

/// Stores the daemon's result for each item. Returns the number of results without an error.
///
/// # Safety
/// `statuses` is null or has room for `count` numbers.
unsafe fn each(answer: Answer, count: c_int, statuses: *mut c_int) -> Result<c_int, Code> {
    let Answer::Each(each) = answer else { return Err(Error::DSysErr.into()) };
    if each.len() != count as usize {
        return Err(Error::OutOfRes.into());
    }
    if !statuses.is_null() {
        // SAFETY: `statuses` is null or has room for `count` numbers, required of the caller. Null
        // is handled separately.
        unsafe { statuses.copy_from_nonoverlapping(each.as_ptr(), each.len()) };
    }
    Ok(each.iter().filter(|status| **status >= 0).count() as c_int)
}

/// See `pvm3.h`.
///
/// # Safety
/// `names` has `count` strings; `statuses` is null or has room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_addhosts(
    names: *const *const c_char,
    count: c_int,
    statuses: *mut c_int,
) -> c_int {
    let called = traced("pvm_addhosts", Event::ADDHOSTS);
    // SAFETY: `names` has `count` strings; `statuses` is null or has room for `count` numbers,
    // required of the caller.
    let list = || unsafe { tracing::texts(names, count) };
    call(called.with(|record| record.strings(Id::HNL, &list())), |library| {
        // SAFETY: `names` has `count` strings; `statuses` is null or has room for `count` numbers,
        // required of the caller.
        let names = unsafe { lines(names, count)? };
        let answer = library.ask(Request::AddHosts(names))?;
        // SAFETY: `names` has `count` strings; `statuses` is null or has room for `count` numbers,
        // required of the caller.
        unsafe { each(answer, count, statuses) }
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// The same as for [`pvm_addhosts`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_delhosts(
    names: *const *const c_char,
    count: c_int,
    statuses: *mut c_int,
) -> c_int {
    let called = traced("pvm_delhosts", Event::DELHOSTS);
    // SAFETY: `names` has `count` strings; `statuses` is null or has room for `count` numbers,
    // required of the caller.
    let list = || unsafe { tracing::texts(names, count) };
    call(called.with(|record| record.strings(Id::HNL, &list())), |library| {
        // SAFETY: `names` has `count` strings; `statuses` is null or has room for `count` numbers,
        // required of the caller.
        let names = unsafe { lines(names, count)? };
        let answer = library.ask(Request::DeleteHosts(names))?;
        // SAFETY: `names` has `count` strings; `statuses` is null or has room for `count` numbers,
        // required of the caller.
        unsafe { each(answer, count, statuses) }
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `host` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_mstat(host: *const c_char) -> c_int {
    let called = traced("pvm_mstat", Event::MSTAT).gives(Id::HS);
    // SAFETY: `host` is null or a string, required of the caller.
    let called = called.with(|record| record.string(Id::HN, &unsafe { text(host) }));
    call_quietly(called, &[Error::NoHost, Error::HostFail], |library| {
        // SAFETY: `host` is null or a string, required of the caller. Null is handled separately.
        if host.is_null() || unsafe { *host } == 0 {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `host` is null or a string, required of the caller. Null is handled separately.
        let name = unsafe { CStr::from_ptr(host) }.to_string_lossy().into_owned();
        library.ask_number(Request::HostStatus(name))
    })
}

/// See `pvm3.h`. The end of the daemon is no error.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_halt() -> c_int {
    call(traced("pvm_halt", Event::HALT), |library| {
        library.enroll()?;
        match library.ask(Request::Halt) {
            Ok(_) | Err(Code(-14)) => Ok(0),
            Err(code) => Err(code),
        }
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_tidtohost(tid: c_int) -> c_int {
    Tid::of_host(Tid(tid as u32).host()).as_int()
}

fn microseconds(time: libc::timeval) -> i64 {
    time.tv_sec * 1_000_000 + time.tv_usec
}

fn time_of(microseconds: i64) -> libc::timeval {
    libc::timeval {
        tv_sec: microseconds.div_euclid(1_000_000),
        tv_usec: microseconds.rem_euclid(1_000_000),
    }
}

/// Returns the time since 1970.
pub fn now() -> libc::timeval {
    let mut now = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: `now` is a live local that `gettimeofday` may write.
    unsafe { libc::gettimeofday(&mut now, std::ptr::null_mut()) };
    now
}

/// See `pvm3.h`.
///
/// # Safety
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_hostsync(
    host: c_int,
    clock: *mut libc::timeval,
    delta: *mut libc::timeval,
) -> c_int {
    call("pvm_host_sync", |library| {
        library.enroll()?;
        let before = microseconds(now());
        let answer = library.ask(Request::Clock(Tid(host as u32)))?;
        let after = microseconds(now());
        let Answer::Clock(seconds, rest) = answer else { return Err(Error::DSysErr.into()) };
        let there = seconds * 1_000_000 + i64::from(rest);
        // SAFETY: each pointer is null or valid for a write, required of the caller.
        unsafe {
            if !clock.is_null() {
                *clock = time_of(there);
            }
            if !delta.is_null() {
                *delta = time_of((before + after) / 2 - there);
            }
        }
        Ok(0)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `arguments` has `count` numbers; the others are null or have room for the results (10).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_tickle(
    count: c_int,
    arguments: *const c_int,
    result_count: *mut c_int,
    results: *mut c_int,
) -> c_int {
    let answered = Cell::new(Vec::new());
    let called = traced("pvm_tickle", Event::TICKLE);
    // SAFETY: `arguments` has `count` numbers, required of the caller.
    let called =
        called.with(|record| record.ints(Id::TA, unsafe { tracing::numbers(arguments, count) }));
    let called = called.tells(|record, _, result| {
        record.int(Id::CC, result).ints(Id::TR, &answered.take());
    });
    call(called, |library| {
        library.enroll()?;
        if !(1..=10).contains(&count) || arguments.is_null() {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `arguments` has `count` numbers, required of the caller.
        let arguments = unsafe { std::slice::from_raw_parts(arguments, count as usize) };
        let found = match library.ask(Request::Tickle(arguments.to_vec()))? {
            Answer::Each(numbers) => numbers,
            Answer::Number(number) => vec![number],
            _ => Vec::new(),
        };
        // SAFETY: `arguments` has `count` numbers; the others are null or have room for the
        // results (10), required of the caller.
        unsafe {
            if !result_count.is_null() {
                *result_count = found.len() as c_int;
            }
            if !results.is_null() {
                results.copy_from_nonoverlapping(found.as_ptr(), found.len().min(10));
            }
        }
        answered.set(found);
        Ok(0)
    })
}
