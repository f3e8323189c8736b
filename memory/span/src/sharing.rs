//! Calls of the program's threads that map memory which other processes may write, protect it, or
//! change its size. Such memory is the origin's kernel's; the table of its addresses is in
//! [`shared`].

use std::ops::Range;

use crate::addresses::PAGE;
use crate::calls;
use crate::desk::{Request, Seat};
use crate::frame::Laid;
use crate::here::Here;
use crate::{raw, shared};

/// mmap's flags that say where.
const WHERE: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT;

/// Whether the kernel would map a file like that: 0, or its error. Nothing has changed then.
///
/// # Safety
/// mmap's arguments, as the program gave them; at the origin.
pub unsafe fn check(a: [u64; 6]) -> i64 {
    // SAFETY: maps nothing that stays.
    unsafe {
        match map_anywhere(a) {
            error if error < 0 => error,
            at => raw::call(libc::SYS_munmap as u64, [at as u64, a[1], 0, 0, 0, 0]),
        }
    }
}

/// # Safety
/// As for [`check`]. The mapping is outside the program's memory.
unsafe fn map_anywhere(a: [u64; 6]) -> i64 {
    let flags = (a[3] as i32 & !WHERE & !libc::MAP_POPULATE & !libc::MAP_LOCKED) as u64;
    // SAFETY: as the caller says; replaces nothing.
    unsafe { raw::call(libc::SYS_mmap as u64, [0, a[1], a[2], flags, a[4], a[5]]) }
}

/// mmap of memory that other processes may write.
///
/// # Safety
/// As for [`check`].
pub unsafe fn map(here: &Here, seat: &Seat, a: [u64; 6]) -> i64 {
    let ask = |request| here.desk.ask(seat, request);
    let (bytes, protection, flags) = (a[1], a[2] as u32, a[3] as i32);
    // An error must leave what stands at a fixed address.
    // SAFETY: as the caller says.
    let there = unsafe { map_anywhere(a) };
    if there < 0 {
        return there;
    }
    let start = place(here, seat, flags, a[0], bytes);
    let mut result = start;
    // SAFETY: the mapping is ours, and the addresses have just been given to this thread.
    unsafe {
        if start >= 0 {
            let moving = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            let arguments = [there as u64, bytes, bytes, moving, start as u64, 0];
            result = raw::call(libc::SYS_mremap as u64, arguments);
        }
        if result < 0 {
            raw::call(libc::SYS_munmap as u64, [there as u64, bytes, 0, 0, 0, 0]);
        }
        if start >= 0 && result < 0 {
            // Memory of a kind that cannot be moved.
            let flags = (flags & !WHERE | libc::MAP_FIXED) as u64;
            let arguments = [start as u64, bytes, a[2], flags, a[4], a[5]];
            result = raw::call(libc::SYS_mmap as u64, arguments);
        }
    }
    if result < 0 {
        if start >= 0 {
            ask(Request::Unmap { start: start as u64, bytes });
        }
        return result;
    }
    let start = start as u64;
    if here.names {
        calls::name(here, seat, start, bytes, a);
    }
    match ask(Request::Protect { start, bytes, protection }) {
        0 => start as i64,
        error => error,
    }
}

/// Addresses for such memory: the start, or an error.
fn place(here: &Here, seat: &Seat, flags: i32, wanted: u64, bytes: u64) -> i64 {
    let ask = |request| here.desk.ask(seat, request);
    let (replaces, is_file) = (flags & libc::MAP_FIXED_NOREPLACE == 0, true);
    let start = match flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) {
        0 => {
            let wish = calls::wish([wanted, 0, 0, flags as u64, 0, 0]);
            ask(Request::Map { bytes, protection: 0, is_file, wish })
        }
        _ => ask(Request::MapAt { start: wanted, bytes, protection: 0, replaces, is_file }),
    };
    if start < 0 {
        return start;
    }
    match ask(Request::Lay { start: start as u64, bytes, kind: Laid::Shared }) {
        0 => start,
        error => {
            ask(Request::Unmap { start: start as u64, bytes });
            error
        }
    }
}

/// mprotect where it meets such memory: the kernel refuses to let a file be written that was opened
/// for reading. 0, or its error.
///
/// # Safety
/// mprotect's arguments, as the program gave them; at the origin.
pub unsafe fn protect(a: [u64; 6]) -> i64 {
    let Some(end) = a[0].checked_add(a[1]).filter(|_| a[0].is_multiple_of(PAGE)) else { return 0 };
    let mut rest: Range<u64> = a[0]..end;
    while let Some(part) = shared::first_in(&rest) {
        let arguments = [part.start, part.end - part.start, a[2], 0, 0, 0];
        // SAFETY: as the caller says.
        let error = unsafe { raw::call(libc::SYS_mprotect as u64, arguments) };
        if error < 0 {
            return error;
        }
        rest.start = part.end;
    }
    0
}

/// madvise about what children get: one of [`ADVICES`](crate::inherit::ADVICES). Of such memory the
/// kernel has to know, too.
///
/// # Safety
/// madvise's arguments, as the program gave them; at the origin.
pub unsafe fn inherit(here: &Here, seat: &Seat, a: [u64; 6]) -> i64 {
    let [start, bytes, advice, ..] = a;
    if bytes == 0 {
        return 0;
    }
    match here.desk.ask(seat, Request::Inherit { start, bytes, advice: advice as i32 }) {
        0 => {}
        error => return error,
    }
    let mut rest = start..start + bytes.next_multiple_of(PAGE);
    while let Some(part) = shared::first_in(&rest) {
        let arguments = [part.start, part.end - part.start, advice, 0, 0, 0];
        // SAFETY: as the caller says.
        let error = unsafe { raw::call(libc::SYS_madvise as u64, arguments) };
        if error < 0 {
            return error;
        }
        rest.start = part.end;
    }
    0
}

/// mremap of such memory. It becomes larger elsewhere: there the same pages are mapped once more,
/// before the old mapping ends.
///
/// # Safety
/// mremap's arguments, in whole pages, whose flags are known; at the origin.
pub unsafe fn remap(here: &Here, seat: &Seat, a: [u64; 6]) -> i64 {
    let ask = |request| here.desk.ask(seat, request);
    let [old, old_bytes, bytes, flags, wanted, _] = a;
    let flags = flags as i32;
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    if !is_fixed && 0 < old_bytes && bytes <= old_bytes {
        if bytes < old_bytes {
            ask(Request::Unmap { start: old + bytes, bytes: old_bytes - bytes });
        }
        return old as i64;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return -i64::from(libc::ENOMEM);
    }
    let protection = (ask(Request::Look(old)) & !Request::OF_FILE) as u32;
    let place_flags = if is_fixed { libc::MAP_FIXED } else { 0 };
    let new = place(here, seat, place_flags, if is_fixed { wanted } else { 0 }, bytes);
    if new < 0 {
        return new;
    }
    let start = new as u64;
    let twice = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    // An old size of 0 maps the pages a second time.
    // SAFETY: addresses that have just been given to this thread.
    let result = unsafe { raw::call(libc::SYS_mremap as u64, [old, 0, bytes, twice, start, 0]) };
    if result < 0 {
        ask(Request::Unmap { start, bytes });
        return result;
    }
    ask(Request::Protect { start, bytes, protection });
    if old_bytes > 0 {
        ask(Request::Unmap { start: old, bytes: old_bytes });
    }
    new
}
