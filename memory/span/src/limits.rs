//! Resource limits on memory that the kernel cannot enforce for the program, since it counts other
//! memory than the program's.
//!
//! RLIMIT_STACK: the main thread's stack is ordinary memory of all nodes. It has the size of the
//! limit at the start of the program. If the program raises its limit, more of the room below is
//! opened.
//!
//! RLIMIT_AS: the kernel would count Nagaya's own memory. So every node lifts the kernel's limit,
//! the origin counts the program's addresses, and the program and its children see the limit with
//! which it was started. If a hard limit cannot be lifted (without CAP_SYS_RESOURCE), the kernel
//! continues to count.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use libc::rlimit64;

use crate::addresses::PAGE;
use crate::raw;

/// `RLIM_INFINITY`.
const INFINITY: u64 = u64::MAX;
/// `RLIMIT_STACK` and `RLIMIT_AS`, as calls have them.
const STACK: u64 = libc::RLIMIT_STACK as u64;
const ADDRESS_SPACE: u64 = libc::RLIMIT_AS as u64;
/// The largest stack: of a program without a limit.
const STACK_MAX: u64 = 64 << 30;
/// Bytes of a main thread's stack that a kernel counts at first.
const STACK_COUNTED: u64 = 132 << 10;
/// `CAP_SYS_RESOURCE`: the capability to raise a hard limit.
const RESOURCE: u32 = 24;
/// `capget`'s version with two words of each set.
const CAPABILITIES: u32 = 0x2008_0522;

/// The limit on the program's addresses: soft and hard.
static SOFT: AtomicU64 = AtomicU64::new(INFINITY);
static HARD: AtomicU64 = AtomicU64::new(INFINITY);
/// The kernel does not enforce it.
static IS_LIFTED: AtomicBool = AtomicBool::new(false);
/// The main thread's stack: the bounds of its room, its open part, and the protection.
static STACK_START: AtomicU64 = AtomicU64::new(0);
static STACK_OPEN: AtomicU64 = AtomicU64::new(0);
static STACK_END: AtomicU64 = AtomicU64::new(0);
static STACK_PROTECTION: AtomicU32 = AtomicU32::new(0);

/// To every node, as it begins: lifts the kernel's limit on addresses.
pub fn lift() {
    let Some(limit) = kernel(ADDRESS_SPACE, None) else { return };
    SOFT.store(limit.rlim_cur, Ordering::SeqCst);
    HARD.store(limit.rlim_max, Ordering::SeqCst);
    let is_lifted = limit.rlim_cur == INFINITY || set_kernel(INFINITY, INFINITY);
    IS_LIFTED.store(is_lifted, Ordering::SeqCst);
    if !is_lifted {
        set_kernel(limit.rlim_max, limit.rlim_max);
    }
}

/// Bytes of the main thread's stack under the limit that it has now, whole pages.
pub fn stack_bytes() -> u64 {
    let limit = kernel(STACK, None).map_or(INFINITY, |limit| limit.rlim_cur);
    (limit.min(STACK_MAX) / PAGE * PAGE).max(PAGE)
}

/// At the origin, before the program begins: sets the room for its main thread's stack, the open
/// part, and the protection.
pub fn stack_is(room: &Range<u64>, open: u64, protection: u32) {
    STACK_START.store(room.start, Ordering::SeqCst);
    STACK_OPEN.store(open, Ordering::SeqCst);
    STACK_END.store(room.end, Ordering::SeqCst);
    STACK_PROTECTION.store(protection, Ordering::SeqCst);
}

/// Returns true if a program may have all addresses.
pub fn are_none() -> bool {
    SOFT.load(Ordering::SeqCst) == INFINITY || !IS_LIFTED.load(Ordering::SeqCst)
}

/// Returns true if a program with `taken` bytes of addresses may have `more`.
pub fn allows(taken: impl Fn() -> u64, more: u64) -> bool {
    if are_none() {
        return true;
    }
    let limit = SOFT.load(Ordering::SeqCst);
    // A kernel counts of a stack what was used.
    let stack = STACK_END.load(Ordering::SeqCst) - STACK_START.load(Ordering::SeqCst);
    let counted = taken().saturating_sub(stack) + STACK_COUNTED;
    counted.saturating_add(more) <= limit
}

/// In a child, or in a thread that is about to execute a program: lets the kernel enforce the
/// limit again. Returns true if that changed anything.
pub fn are_of_kernel() -> bool {
    let (soft, hard) = (SOFT.load(Ordering::SeqCst), HARD.load(Ordering::SeqCst));
    let is_ours = IS_LIFTED.load(Ordering::SeqCst) && (soft, hard) != (INFINITY, INFINITY);
    is_ours && set_kernel(soft, hard)
}

/// Nothing was executed after all.
pub fn are_ours_again() {
    set_kernel(INFINITY, INFINITY);
}

/// getrlimit, setrlimit or prlimit64. The caller then opens the range of [`closed_stack`].
///
/// # Safety
/// To be called at the origin, by a thread of the program or its shadow, with the program's
/// arguments.
pub unsafe fn call(number: u64, a: [u64; 6]) -> i64 {
    let [process, resource, new, old] = match number as i64 {
        libc::SYS_getrlimit => [0, a[0], 0, a[1]],
        libc::SYS_setrlimit => [0, a[0], a[1], 0],
        _ => [a[0], a[1], a[2], a[3]],
    };
    // SAFETY: asks for this process's ID.
    let itself = unsafe { raw::call(libc::SYS_getpid as u64, [0; 6]) } as u64;
    // The kernel looks at half of the registers.
    let (process, resource) = (u64::from(process as u32), u64::from(resource as u32));
    let is_own = process == 0 || process == itself;
    // SAFETY: this function requires the program's arguments; a bad address is a fault in a call:
    // EFAULT.
    unsafe {
        if is_own && resource == ADDRESS_SPACE && IS_LIFTED.load(Ordering::SeqCst) {
            let new = new as *const rlimit64;
            let wanted = (!new.is_null()).then(|| new.read_unaligned());
            let before = rlimit64 {
                rlim_cur: SOFT.load(Ordering::SeqCst),
                rlim_max: HARD.load(Ordering::SeqCst),
            };
            if let Some(wanted) = wanted {
                if wanted.rlim_cur > wanted.rlim_max {
                    return -i64::from(libc::EINVAL);
                }
                if wanted.rlim_max > before.rlim_max && !may_raise() {
                    return -i64::from(libc::EPERM);
                }
            }
            if old != 0 {
                (old as *mut rlimit64).write_unaligned(before);
            }
            if let Some(wanted) = wanted {
                SOFT.store(wanted.rlim_cur, Ordering::SeqCst);
                HARD.store(wanted.rlim_max, Ordering::SeqCst);
            }
            return 0;
        }
        raw::call(number, a)
    }
}

/// Returns the range of the main thread's stack that is closed and that its limit now allows, and
/// the protection. Open parts stay open.
pub fn closed_stack() -> Option<(Range<u64>, u32)> {
    let [start, open, end] =
        [&STACK_START, &STACK_OPEN, &STACK_END].map(|it| it.load(Ordering::SeqCst));
    let wanted = end.saturating_sub(stack_bytes()).max(start);
    (wanted < open).then(|| (wanted..open, STACK_PROTECTION.load(Ordering::SeqCst)))
}

/// The main thread's stack is open from here on.
pub fn stack_is_open(from: u64) {
    STACK_OPEN.fetch_min(from, Ordering::SeqCst);
}

/// Returns true if this process has the right to raise hard limits.
fn may_raise() -> bool {
    let header = [CAPABILITIES, 0];
    let mut sets = [[0u32; 3]; 2];
    let arguments =
        [std::ptr::from_ref(&header) as u64, std::ptr::from_mut(&mut sets) as u64, 0, 0, 0, 0];
    // SAFETY: a header, and room for two words of each of three sets.
    let result = unsafe { raw::call(libc::SYS_capget as u64, arguments) };
    result == 0 && sets[0][0] & 1 << RESOURCE != 0
}

/// The kernel's limit, which is `new` from now on if there is one.
fn kernel(resource: u64, new: Option<&rlimit64>) -> Option<rlimit64> {
    let mut old = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let new = new.map_or(0, |new| std::ptr::from_ref(new) as u64);
    let arguments = [0, resource, new, std::ptr::from_mut(&mut old) as u64, 0, 0];
    // SAFETY: `old` is local, and `new` is null or a local reference.
    let result = unsafe { raw::call(libc::SYS_prlimit64 as u64, arguments) };
    (result == 0).then_some(old)
}

fn set_kernel(soft: u64, hard: u64) -> bool {
    kernel(ADDRESS_SPACE, Some(&rlimit64 { rlim_cur: soft, rlim_max: hard })).is_some()
}
