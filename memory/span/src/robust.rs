//! Robust mutexes: what a thread still holds when it ends is marked, and somebody who waits for
//! it is woken, as the kernel does (its `Documentation/locking/robust-futexes.rst`).

use std::sync::atomic::{AtomicU32, Ordering};

use crate::futex;
use crate::here::Here;
use crate::slot::Slot;

/// The kernel's `struct robust_list_head`: a ring of what is held, where the words are from
/// there, and what was being taken or given.
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
    // SAFETY: as the caller says.
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
    // SAFETY: as the caller says. Others change no entry of the thread's.
    unsafe {
        let head = (address as *const Head).read();
        let word = |entry: u64| (entry & !PRIORITY).wrapping_add_signed(head.offset);
        let mut entry = head.next;
        for _ in 0..ENTRIES_MAX {
            if entry & !PRIORITY == address {
                break;
            }
            // What is woken may take the entry out of memory.
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
/// A word of the program's.
unsafe fn died(here: &Here, slot: &Slot, address: u64, tid: u32, is_pending: bool) {
    // SAFETY: as the caller says.
    let word = unsafe { &*(address as *const AtomicU32) };
    let wake = || {
        let arguments = [address, libc::FUTEX_WAKE as u64, 1, 0, 0, 0];
        // SAFETY: as the caller says.
        unsafe { futex::call(here, slot, arguments) };
    };
    let before = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |value| {
        (value & TID == tid).then_some(value & WAITERS | OWNER_DIED)
    });
    match before {
        Ok(value) if value & WAITERS != 0 => wake(),
        // It was given back, and perhaps nobody told.
        Err(0) if is_pending => wake(),
        _ => {}
    }
}
