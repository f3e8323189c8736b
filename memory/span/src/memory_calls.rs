//! System calls that change the memory map of all nodes, made at the origin: mmap(2), munmap(2),
//! mprotect(2), mremap(2), madvise(2), brk(2) and others.

use crate::addresses::{Hint, PAGE};
use crate::call::Call;
use crate::here::Here;
use crate::names::name;
use crate::request::Request;
use crate::shared;
use crate::slot::Slot;
use crate::{inherit, private_files, protections, raw, segments, sharing};

/// Advices of madvise that may have no effect. It has none on which a program depends (guards,
/// zeros instead of the content).
const ADVICE: [i32; 16] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_FREE,
    libc::MADV_MERGEABLE,
    libc::MADV_UNMERGEABLE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
    libc::MADV_COLLAPSE,
];

/// Memory of all nodes.
///
/// # Safety
/// At the origin; arguments are as the program gave them.
pub unsafe fn call(here: &Here, slot: &Slot, call: Call) -> i64 {
    let a = call.arguments;
    let ask = |request| here.table.request(slot, request);
    let refused = |errno: i32| -i64::from(errno);
    match call.number as i64 {
        libc::SYS_brk if protections::grow_heap(a[0]) => a[0] as i64,
        libc::SYS_brk => {
            let before = ask(Request::HeapEnd);
            match ask(Request::Break(a[0])) {
                0 => before,
                _ => a[0] as i64,
            }
        }
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        libc::SYS_mmap => unsafe { map(here, slot, a) },
        libc::SYS_munmap => ask(Request::Unmap { start: a[0], bytes: a[1] }),
        // SAFETY: this function requires the program's arguments, at the origin.
        libc::SYS_mprotect => match unsafe { protections::change(a) } {
            Some(result) => result,
            // SAFETY: this function requires the program's arguments; the kernel checks addresses.
            None => match unsafe { sharing::protect(a) } {
                0 => ask(Request::Protect { start: a[0], bytes: a[1], protection: a[2] as u32 }),
                error => error,
            },
        },
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        libc::SYS_mremap => unsafe { remap(here, slot, a) },
        libc::SYS_madvise => match a[2] as i32 {
            _ if !a[0].is_multiple_of(PAGE) => refused(libc::EINVAL),
            // Not to have zeros there would be seen.
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => {
                let mut done = 0;
                while done < a[1] {
                    match ask(Request::Discard { start: a[0] + done, bytes: a[1] - done }) {
                        error if error < 0 => return error,
                        more => done += more as u64,
                    }
                }
                0
            }
            // SAFETY: this function requires the program's arguments; the kernel checks addresses.
            libc::MADV_REMOVE if shared::contains(a[0]) => unsafe { raw::call(call.number, a) },
            advice if ADVICE.contains(&advice) => 0,
            // SAFETY: this function requires the program's arguments; the kernel checks addresses.
            advice if inherit::ADVICES.contains(&advice) => unsafe {
                sharing::inherit(here, slot, a)
            },
            _ => refused(libc::EINVAL),
        },
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        libc::SYS_msync if shared::contains(a[0]) => unsafe { raw::call(call.number, a) },
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        libc::SYS_shmat => unsafe { segments::attach(here, slot, a) },
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        libc::SYS_shmdt => unsafe { segments::detach(here, slot, a[0]) },
        // The state of other nodes' files is unknown.
        libc::SYS_mlockall => refused(libc::EPERM),
        _ => 0,
    }
}

/// Memory that can be read and written becomes more or less, or goes elsewhere.
///
/// # Safety
/// As for [`call`].
unsafe fn remap(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let ask = |request| here.table.request(slot, request);
    let up = |bytes: u64| bytes.checked_next_multiple_of(PAGE).unwrap_or(0);
    let (old, old_bytes, bytes, flags) = (a[0], up(a[1]), up(a[2]), a[3] as i32);
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let known = libc::MREMAP_FIXED | libc::MREMAP_MAYMOVE;
    let meets = is_fixed && a[4] < old + old_bytes && old < a[4] + bytes;
    if flags & !known == 0
        && (!is_fixed || may_move)
        && bytes > 0
        && !meets
        && shared::contains(old)
    {
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        return unsafe { sharing::remap(here, slot, [old, old_bytes, bytes, a[3], a[4], 0]) };
    }
    if flags & !known != 0 || is_fixed && !may_move || old_bytes == 0 || bytes == 0 || meets {
        return -i64::from(libc::EINVAL);
    }
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u32;
    let (is_file, rest) = (false, old_bytes.saturating_sub(bytes));
    let moves = is_fixed || bytes > old_bytes;
    let is_of_file = || ask(Request::Inspect(old)) & Request::OF_FILE != 0;
    // More of the file would have to be there, and its end where it is.
    if moves && (shared::has_beyond(&(old..old + old_bytes)) || bytes > old_bytes && is_of_file()) {
        return -i64::from(libc::ENOMEM);
    }
    if !is_fixed {
        if rest > 0 {
            ask(Request::Unmap { start: old + bytes, bytes: rest });
        }
        if bytes <= old_bytes {
            return old as i64;
        }
        let (start, bytes, replaces) = (old + old_bytes, bytes - old_bytes, false);
        if ask(Request::MapAt { start, bytes, protection, replaces, is_file }) >= 0 {
            return old as i64;
        }
    }
    let new = match (is_fixed, may_move) {
        (true, _) => {
            let (start, replaces) = (a[4], true);
            ask(Request::MapAt { start, bytes, protection, replaces, is_file })
        }
        (_, true) => ask(Request::Map { bytes, protection, is_file, hint: Hint::default() }),
        _ => -i64::from(libc::ENOMEM),
    };
    if new >= 0 {
        // SAFETY: new memory, and the program's old.
        unsafe { copy(old, new as u64, old_bytes.min(bytes)) };
        ask(Request::Unmap { start: old, bytes: old_bytes });
    }
    new
}

/// # Safety
/// As for [`call`].
unsafe fn map(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let ask = |request| here.table.request(slot, request);
    let refused = |errno: i32| -i64::from(errno);
    let (bytes, protection, flags) = (a[1], a[2] as u32, a[3] as i32);
    let is_anonymous = flags & libc::MAP_ANONYMOUS != 0;
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if bytes == 0 || bytes > i64::MAX as u64 / 2 {
        return refused(if bytes == 0 { libc::EINVAL } else { libc::ENOMEM });
    }
    // Others may write it, or read these writes.
    if is_shared {
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        return unsafe { sharing::map(here, slot, a) };
    }
    if !is_anonymous {
        // SAFETY: this function requires the program's arguments, at the origin.
        return unsafe { private_files::map(here, slot, a) };
    }
    let (replaces, is_file) = (flags & libc::MAP_FIXED_NOREPLACE == 0, false);
    let start = match flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) {
        0 => ask(Request::Map { bytes, protection, is_file, hint: Hint::of_mmap(&a) }),
        _ => ask(Request::MapAt { start: a[0], bytes, protection, replaces, is_file }),
    };
    if start >= 0 && here.names {
        name(here, slot, start as u64, bytes, a);
    }
    start
}

/// # Safety
/// Memory that can be read, and written; not the same.
unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: this function requires readable, writable and disjoint memory.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) }
}
