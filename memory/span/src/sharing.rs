//! Calls of the program's threads that map memory which other processes may write, protect it, or
//! change its size. Such memory is the origin's kernel's; the table of its addresses is in
//! [`shared`].

use std::ops::Range;

use crate::addresses::{Hint, PAGE};
use crate::call::Call;
use crate::call_table::{self, Where};
use crate::here::Here;
use crate::request::Request;
use crate::shared::{self, Overlay};
use crate::slot::Slot;
use crate::{migrate, names, raw};

/// The flags of mmap that determine the address.
const WHERE: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT;

/// `nagaya_migrate` and its like.
const MIGRATE: i64 = migrate::CALL as i64;

/// Returns true if a thread of another node must move to the origin for this call, since Nagaya's
/// code on the thread's node must not stop at such memory. A thread that ends may have mutexes
/// there.
pub fn needs_origin(call: &Call) -> bool {
    if call.number == libc::SYS_exit as u64 && shared::is_there() {
        return true;
    }
    match call_table::place(call.number) {
        // Such a call uses what is at the origin, not this node's copies.
        Where::Origin | Where::Memory => {
            call.arguments.iter().any(|&it| shared::contains(it) && !shared::is_leased(it))
        }
        _ => call.arguments[..addresses(call)].iter().any(|&it| shared::contains(it)),
    }
}

/// Returns the number of arguments, from the first on, that may be addresses, for a call that is
/// not made at the origin. The registers behind them have unrelated values of the program.
fn addresses(call: &Call) -> usize {
    match call.number as i64 {
        libc::SYS_sched_yield
        | libc::SYS_membarrier
        | libc::SYS_rt_sigreturn
        | libc::SYS_gettid
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_exit
        | libc::SYS_exit_group
        | libc::SYS_close
        | libc::SYS_close_range
        | libc::SYS_dup2
        | libc::SYS_dup3
        | MIGRATE => 0,
        libc::SYS_time
        | libc::SYS_getrandom
        | libc::SYS_rseq
        | libc::SYS_set_robust_list
        | libc::SYS_set_tid_address
        | libc::SYS_open => 1,
        libc::SYS_clock_gettime
        | libc::SYS_clock_getres
        | libc::SYS_gettimeofday
        | libc::SYS_nanosleep
        | libc::SYS_sigaltstack
        | libc::SYS_arch_prctl
        | libc::SYS_clone3
        | libc::SYS_readlink
        | libc::SYS_openat => 2,
        libc::SYS_getcpu
        | libc::SYS_rt_sigprocmask
        | libc::SYS_rt_sigaction
        | libc::SYS_get_robust_list
        | libc::SYS_readlinkat
        | libc::SYS_sched_getaffinity
        | libc::SYS_sched_setaffinity => 3,
        libc::SYS_clock_nanosleep => 4,
        libc::SYS_futex => match call.arguments[1] as i32
            & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
        {
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => 1,
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => 4,
            _ => 6,
        },
        _ => 6,
    }
}

/// Tests whether the kernel would map a file like that: returns 0, or its error. Changes nothing.
///
/// # Safety
/// `a` must be the program's arguments of mmap; to be called at the origin.
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
pub unsafe fn map_anywhere(a: [u64; 6]) -> i64 {
    let flags = (a[3] as i32 & !WHERE & !libc::MAP_POPULATE & !libc::MAP_LOCKED) as u64;
    // SAFETY: `check` requires the program's arguments; without an address the call replaces
    // nothing.
    unsafe { raw::call(libc::SYS_mmap as u64, [0, a[1], a[2], flags, a[4], a[5]]) }
}

/// mmap of memory that other processes may write.
///
/// # Safety
/// As for [`check`].
pub unsafe fn map(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let ask = |request| here.table.request(slot, request);
    let (bytes, protection, flags) = (a[1], a[2] as u32, a[3] as i32);
    // After an error the mapping at a fixed address must be unchanged. SAFETY: this function
    // requires the program's arguments, at the origin.
    let there = unsafe { map_anywhere(a) };
    if there < 0 {
        return there;
    }
    let reads_only = protection as i32 & (libc::PROT_READ | libc::PROT_WRITE) == libc::PROT_READ;
    let may_lease = here.nodes > 1 && reads_only && flags & libc::MAP_ANONYMOUS == 0;
    let lease = may_lease.then_some((a[4] as i32, a[5]));
    let start = place_shared(here, slot, flags, a[0], bytes, lease);
    let mut result = start;
    // SAFETY: this function created the mapping, and the addresses were just assigned to this
    // thread.
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
        names::name(here, slot, start, bytes, a);
    }
    match ask(Request::Protect { start, bytes, protection }) {
        0 => start as i64,
        error => error,
    }
}

/// Addresses for such memory: the start, or an error. `lease`: the descriptor of a file that will
/// be mapped for reading, and the offset.
fn place_shared(
    here: &Here,
    slot: &Slot,
    flags: i32,
    wanted: u64,
    bytes: u64,
    lease: Option<(i32, u64)>,
) -> i64 {
    let ask = |request| here.table.request(slot, request);
    let start = place(here, slot, flags, wanted, bytes, 0);
    if start < 0 {
        return start;
    }
    if let Some((descriptor, offset)) = lease {
        ask(Request::Lease { descriptor, start: start as u64, offset, bytes });
    }
    match ask(Request::Overlay { start: start as u64, bytes, kind: Overlay::Shared }) {
        0 => start,
        error => {
            ask(Request::Unmap { start: start as u64, bytes });
            error
        }
    }
}

/// Addresses for a mapping of a file, as mmap's flags want them: the start, or an error.
pub fn place(
    here: &Here,
    slot: &Slot,
    flags: i32,
    wanted: u64,
    bytes: u64,
    protection: u32,
) -> i64 {
    let (replaces, is_file) = (flags & libc::MAP_FIXED_NOREPLACE == 0, true);
    let request = match flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) {
        0 => {
            let hint = Hint::of_mmap(&[wanted, 0, 0, flags as u64, 0, 0]);
            Request::Map { bytes, protection, is_file, hint }
        }
        _ => Request::MapAt { start: wanted, bytes, protection, replaces, is_file },
    };
    here.table.request(slot, request)
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
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        let error = unsafe { raw::call(libc::SYS_mprotect as u64, arguments) };
        if error < 0 {
            return error;
        }
        rest.start = part.end;
    }
    0
}

/// madvise for the content in children: one of [`ADVICES`](crate::inherit::ADVICES). For such
/// memory the kernel must know it, too.
///
/// # Safety
/// `a` must be the program's arguments of madvise; to be called at the origin.
pub unsafe fn inherit(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let [start, bytes, advice, ..] = a;
    if bytes == 0 {
        return 0;
    }
    match here.table.request(slot, Request::Inherit { start, bytes, advice: advice as i32 }) {
        0 => {}
        error => return error,
    }
    let mut rest = start..start + bytes.next_multiple_of(PAGE);
    while let Some(part) = shared::first_in(&rest) {
        let arguments = [part.start, part.end - part.start, advice, 0, 0, 0];
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
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
pub unsafe fn remap(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let ask = |request| here.table.request(slot, request);
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
    let protection = (ask(Request::Inspect(old)) & !Request::OF_FILE) as u32;
    let place_flags = if is_fixed { libc::MAP_FIXED } else { 0 };
    let new = place_shared(here, slot, place_flags, if is_fixed { wanted } else { 0 }, bytes, None);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_registers_cause_no_migration_to_the_origin() {
        let _alone = shared::tests::ALONE.lock();
        let all = 0x6000_0000_0000..0x6000_0001_0000;
        shared::are(std::slice::from_ref(&all));
        let needs = |number: i64, arguments: [u64; 6]| {
            needs_origin(&Call { number: number as u64, arguments })
        };
        let left = all.start + 8;
        let wake = libc::FUTEX_WAKE as u64;
        assert!(!needs(libc::SYS_futex, [8, wake, 1, left, left, left]));
        assert!(needs(libc::SYS_futex, [left, wake, 1, 0, 0, 0]));
        assert!(needs(libc::SYS_futex, [8, libc::FUTEX_WAIT as u64, 1, left, 0, 0]));
        assert!(!needs(libc::SYS_gettid, [left; 6]) && !needs(MIGRATE, [1, left, 0, 0, 0, 0]));
        assert!(needs(libc::SYS_clock_gettime, [0, left, 0, 0, 0, 0]));
        // The arguments of calls that the origin makes are unknown.
        assert!(needs(libc::SYS_write, [1, left, 8, 0, 0, 0]));
        shared::are_leased(&[all]);
        assert!(!needs(libc::SYS_write, [1, left, 8, 0, 0, 0]));
        assert!(needs(libc::SYS_clock_gettime, [0, left, 0, 0, 0, 0]));
        assert!(!needs(libc::SYS_exit, [0; 6]));
        shared::are_leased(&[]);
        assert!(needs(libc::SYS_exit, [0; 6]));
        shared::are(&[]);
    }
}
