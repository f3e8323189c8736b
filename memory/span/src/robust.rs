//! Robust mutexes: the locks that a thread holds when it ends are marked, and a waiter is woken,
//! as in the kernel (its `Documentation/locking/robust-futexes.rst`).

use std::sync::atomic::{AtomicU32, Ordering};

use crate::futex;
use crate::here::Here;
use crate::slot::Slot;

/// The kernel's `struct robust_list_head`: a ring of the held locks, the offset of their words,
/// and the lock that is being acquired or released.
#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    next: u64,
    offset: i64,
    pending: u64,
}

/// The kernel's `ROBUST_LIST_LIMIT`.
const ENTRIES_MAX: usize = 2048;
const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const TID: u32 = 0x3fff_ffff;
/// In an entry's address: its futex has a priority.
const PRIORITY: u64 = 1;

/// set_robust_list.
pub fn set(slot: &Slot, a: [u64; 6]) -> i64 {
    if a[1] != size_of::<Head>() as u64 {
        return -i64::from(libc::EINVAL);
    }
    slot.robust.store(a[0], Ordering::Relaxed);
    0
}

/// get_robust_list, of the thread itself.
///
/// # Safety
/// Pointers are the program's.
pub unsafe fn get(slot: &Slot, a: [u64; 6]) -> i64 {
    if a[0] != 0 && a[0] as i32 != slot.tid.load(Ordering::Relaxed) {
        return -i64::from(libc::EPERM);
    }
    // SAFETY: this function requires pointers of the program; a bad one is a fault in a call:
    // EFAULT.
    unsafe {
        (a[2] as *mut u64).write_unaligned(size_of::<Head>() as u64);
        (a[1] as *mut u64).write_unaligned(slot.robust.load(Ordering::Relaxed));
    }
    0
}

/// The slot's thread ends.
///
/// # Safety
/// By that thread; the program keeps its list in order.
pub unsafe fn owner_dies(here: &Here, slot: &Slot) {
    let tid = slot.tid.load(Ordering::Relaxed).cast_unsigned();
    let address = slot.robust.swap(0, Ordering::Relaxed);
    if address == 0 {
        return;
    }
    // SAFETY: this function requires the calling thread's list, which only that thread changes.
    unsafe {
        let head = (address as *const Head).read();
        let word = |entry: u64| (entry & !PRIORITY).wrapping_add_signed(head.offset);
        let mut entry = head.next;
        for _ in 0..ENTRIES_MAX {
            if entry & !PRIORITY == address {
                break;
            }
            // A woken waiter may unmap the entry.
            let next = (entry as *const u64).read();
            if entry != head.pending {
                died(here, slot, word(entry), tid, false);
            }
            entry = next;
        }
        if head.pending != 0 {
            died(here, slot, word(head.pending), tid, true);
        }
    }
}

/// # Safety
/// `address` must be a word of the program.
unsafe fn died(here: &Here, slot: &Slot, address: u64, tid: u32, is_pending: bool) {
    // SAFETY: this function requires a word of the program.
    let word = unsafe { &*(address as *const AtomicU32) };
    let wake = || {
        let arguments = [address, libc::FUTEX_WAKE as u64, 1, 0, 0, 0];
        // SAFETY: this function requires a word of the program.
        unsafe { futex::call(here, slot, arguments) };
    };
    let before = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |value| {
        (value & TID == tid).then_some(value & WAITERS | OWNER_DIED)
    });
    match before {
        Ok(value) if value & WAITERS != 0 => wake(),
        // The lock was released, perhaps without a wake-up.
        Err(0) if is_pending => wake(),
        _ => {}
    }
}
