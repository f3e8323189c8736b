//! The processors that the program sees: those of all nodes, in the order of the nodes, so that it
//! makes as many threads as there are processors for them. What it is told of them agrees:
//! sched_getaffinity(2), getcpu(2), and the files from which libc has their number.
//!
//! Where threads run is our affair, not the program's: a mask that it sets is kept, and given
//! back, and new threads have that of who makes them; it moves nobody.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use rustix::thread::CpuSet;

use crate::desk::{Call, Seat};
use crate::here::Here;
use crate::raw;
use crate::talk::Ready;

/// Processors that programs are told of, at most: libc's masks have room for so many.
pub const PROCESSORS_MAX: u32 = 1024;
/// Numbers that processors may have here: Linux's limit on x86-64.
pub const NUMBERS: usize = 8192;

/// A thread's mask, as the program sees it.
pub type Mask = [AtomicU64; PROCESSORS_MAX as usize / 64];

/// What this node's processors are called. Their own names, at first.
pub static NAMES: [AtomicU16; NUMBERS] = {
    let mut names = [const { AtomicU16::new(0) }; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        names[number] = AtomicU16::new(number as u16);
        number += 1;
    }
    names
};

/// Those of some nodes.
pub fn of(nodes: &[Ready]) -> u32 {
    let all = nodes.iter().map(|node| node.processors).sum::<u32>();
    all.min(PROCESSORS_MAX)
}

/// Gives this node's processors their names: `own` are those that it may use, of which the program
/// sees so many, from `first` on.
pub fn name(own: &CpuSet, first: u32, count: u32) {
    let mut rank = 0;
    for (number, name) in NAMES.iter().enumerate() {
        let is_own = number < CpuSet::MAX_CPU && own.is_set(number);
        // The kernel may let us use others later.
        let at = if is_own { rank } else { number as u32 };
        rank += u32::from(is_own);
        let named = (first + at % count.max(1)).min(PROCESSORS_MAX - 1);
        name.store(named as u16, Ordering::Relaxed);
    }
}

/// getcpu, where the thread runs.
///
/// # Safety
/// As for [`calls::answer`](crate::calls::answer).
pub unsafe fn get(call: Call) -> i64 {
    // SAFETY: as the caller says.
    unsafe {
        let result = raw::call(call.number, call.arguments);
        let number = call.arguments[0] as *mut u32;
        if result == 0 && !number.is_null() {
            let name = NAMES.get(number.read_unaligned() as usize);
            name.inspect(|name| number.write_unaligned(name.load(Ordering::Relaxed).into()));
        }
        result
    }
}

/// Where a thread has no mask of its own.
pub fn all() -> Mask {
    std::array::from_fn(|_| AtomicU64::new(u64::MAX))
}

/// A new thread has its maker's.
pub fn inherit(new: &Seat, maker: &Seat) {
    for (to, from) in new.processors.iter().zip(&maker.processors) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A word of a mask: those that there are.
fn there_are(all: u32, word: usize) -> u64 {
    match all.saturating_sub(word as u32 * 64) {
        0 => 0,
        left @ 1..64 => (1 << left) - 1,
        _ => u64::MAX,
    }
}

/// sched_getaffinity and sched_setaffinity, at the origin.
///
/// # Safety
/// As for [`calls::for_another`](crate::calls::for_another).
pub unsafe fn affinity(here: &Here, seat: &Seat, call: Call) -> i64 {
    let [thread, bytes, mask, ..] = call.arguments;
    let whose = match thread as i32 {
        0 => Some(seat),
        thread => here.desk.seat_of(thread),
    };
    let Some(seat) = whose.filter(|_| here.nodes > 1) else {
        // SAFETY: as the caller says.
        return unsafe { raw::call(call.number, call.arguments) };
    };
    let words = here.processors.div_ceil(64) as usize;
    let (room, mask) = (bytes as usize / 8, mask as *mut u64);
    if call.number as i64 == libc::SYS_sched_getaffinity {
        if !bytes.is_multiple_of(8) || room < words {
            return -i64::from(libc::EINVAL);
        }
        for word in 0..words {
            let own = seat.processors[word].load(Ordering::Relaxed);
            // SAFETY: as the caller says; there is so much room.
            unsafe { mask.add(word).write_unaligned(own & there_are(here.processors, word)) };
        }
        return words as i64 * 8;
    }
    // SAFETY: as the caller says; so long the mask is.
    let word =
        |at: usize| unsafe { mask.add(at).read_unaligned() } & there_are(here.processors, at);
    let given = words.min(room);
    if (0..given).all(|at| word(at) == 0) {
        return -i64::from(libc::EINVAL);
    }
    for (at, to) in seat.processors.iter().enumerate() {
        to.store(if at < given { word(at) } else { 0 }, Ordering::Relaxed);
    }
    0
}

/// Files that say which processors there are.
const FILES: [&[u8]; 3] = [
    b"/sys/devices/system/cpu/online\0",
    b"/sys/devices/system/cpu/possible\0",
    b"/sys/devices/system/cpu/present\0",
];

/// Opens one of these, at the origin, if this is its name; `flags` are open's.
///
/// # Safety
/// A string of the program's.
pub unsafe fn open(here: &Here, name: u64, flags: u64) -> Option<i64> {
    let name = name as *const u8;
    let is = |file: &&[u8]| {
        // SAFETY: as the caller says; it is not read beyond its end.
        file.iter().enumerate().all(|(at, byte)| unsafe { *name.add(at) } == *byte)
    };
    if here.nodes == 1 || name.is_null() || !FILES.iter().any(is) {
        return None;
    }
    let mut text = *b"0-\0\0\0\0\0";
    let bytes = list(here.processors, &mut text);
    let is_cloexec = flags as i32 & libc::O_CLOEXEC != 0;
    let flags = if is_cloexec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a name and text of ours, and a descriptor that is nobody's yet.
    unsafe {
        let create = [c"cpu".as_ptr() as u64, flags.into(), 0, 0, 0, 0];
        let file = raw::call(libc::SYS_memfd_create as u64, create);
        if file >= 0 {
            let write = [file as u64, text.as_ptr() as u64, bytes as u64, 0, 0, 0];
            raw::call(libc::SYS_pwrite64 as u64, write);
        }
        Some(file)
    }
}

/// The list that stands there; how long it is.
fn list(all: u32, text: &mut [u8; 7]) -> usize {
    let last = all.max(1) - 1;
    let digits = last.checked_ilog10().unwrap_or(0) as usize + 1;
    let (start, mut rest) = (if last == 0 { 0 } else { 2 }, last);
    for at in (start..start + digits).rev() {
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text[start + digits] = b'\n';
    start + digits + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_kernel_s() {
        let list = |all| {
            let mut text = *b"0-\0\0\0\0\0";
            let bytes = list(all, &mut text);
            String::from_utf8(text[..bytes].to_vec()).unwrap()
        };
        assert_eq!([1, 2, 11, 1024].map(list), ["0\n", "0-1\n", "0-10\n", "0-1023\n"]);
    }

    #[test]
    fn masks_have_those_that_there_are() {
        assert_eq!([0, 1].map(|word| there_are(3, word)), [7, 0]);
        assert_eq!([0, 1, 2].map(|word| there_are(128, word)), [u64::MAX, u64::MAX, 0]);
        assert_eq!([0, 1].map(|word| there_are(65, word)), [u64::MAX, 1]);
    }

    #[test]
    fn processors_are_named_in_the_order_of_nodes() {
        let mut own = CpuSet::new();
        [1, 3, 70].into_iter().for_each(|number| own.set(number));
        name(&own, 10, 3);
        let named = |number: usize| NAMES[number].load(Ordering::Relaxed);
        assert_eq!([1, 3, 70].map(named), [10, 11, 12]);
        name(&own, 10, 2);
        assert!((0..NUMBERS).all(|number| (10..12).contains(&named(number))));
    }
}
