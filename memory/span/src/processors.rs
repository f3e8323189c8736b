//! The processors that the program sees: those of all nodes, in the order of the nodes, so that it
//! makes as many threads as there are processors for them. What it is told of them agrees:
//! sched_getaffinity(2), getcpu(2), and the files from which libc has their number.
//!
//! A mask that it sets is kept, given back, and inherited by new threads; a thread that is on a
//! node without any of its processors goes to one that has some (`agent/moves.rs`).

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use rustix::thread::CpuSet;

use crate::desk::{Call, Request, Seat};
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

/// Of each node the names of its processors, one at least.
pub fn names(nodes: &[Ready]) -> Vec<Range<u32>> {
    let of_node = |node: usize| {
        let first = of(&nodes[..node]).min(PROCESSORS_MAX - 1);
        first..of(&nodes[..=node]).max(first + 1)
    };
    (0..nodes.len()).map(of_node).collect()
}

/// Whether a mask has any of these.
pub fn has_any(mask: &Mask, names: &Range<u32>) -> bool {
    let has = |name: u32| mask[name as usize / 64].load(Ordering::Relaxed) & 1 << (name % 64) != 0;
    names.clone().any(has)
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
pub unsafe fn affinity(here: &Here, caller: &Seat, call: Call) -> i64 {
    let [thread, bytes, mask, ..] = call.arguments;
    let whose = match thread as i32 {
        0 => Some(caller),
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
    here.desk.ask(caller, Request::Bind(seat.index))
}

/// Files that say which processors there are.
const FILES: [&[u8]; 3] = [
    b"/sys/devices/system/cpu/online\0",
    b"/sys/devices/system/cpu/possible\0",
    b"/sys/devices/system/cpu/present\0",
];
/// What names of files of one processor begin with, before its number.
const ONE: &[u8] = b"/sys/devices/system/cpu/cpu";
/// Those that say which are of its core: each is a core of its own, since one machine's files say
/// nothing of others'.
const CORE: [&[u8]; 2] = [b"/topology/thread_siblings_list\0", b"/topology/core_cpus_list\0"];
/// Those that say which are of its socket: its node's.
const SOCKET: [&[u8]; 2] = [b"/topology/core_siblings_list\0", b"/topology/package_cpus_list\0"];

/// The processors of which a file tells, if it is one of these.
///
/// # Safety
/// A string of the program's.
unsafe fn told_by(here: &Here, name: *const u8) -> Option<Range<u32>> {
    // SAFETY: as the caller says; it is not read beyond its end.
    let is = |at: usize, text: &[u8]| unsafe {
        text.iter().enumerate().all(|(offset, byte)| *name.add(at + offset) == *byte)
    };
    if FILES.iter().any(|file| is(0, file)) {
        return Some(0..here.processors);
    }
    if !is(0, ONE) {
        return None;
    }
    let (mut at, mut number) = (ONE.len(), 0);
    // SAFETY: as above.
    while let digit @ b'0'..=b'9' = unsafe { *name.add(at) }
        && number < PROCESSORS_MAX
    {
        number = number * 10 + u32::from(digit - b'0');
        at += 1;
    }
    let node = here.processors_of.iter().find(|node| node.contains(&number))?;
    match () {
        () if CORE.iter().any(|file| is(at, file)) => Some(number..number + 1),
        () if SOCKET.iter().any(|file| is(at, file)) => Some(node.clone()),
        () => None,
    }
}

/// Opens one of these files, at the origin, if this is its name; `flags` are open's.
///
/// # Safety
/// A string of the program's.
pub unsafe fn open(here: &Here, name: u64, flags: u64) -> Option<i64> {
    let name = name as *const u8;
    if here.nodes == 1 || name.is_null() {
        return None;
    }
    // SAFETY: as the caller says.
    let told = unsafe { told_by(here, name) }?;
    let mut text = [0; LIST_BYTES];
    let bytes = list(&told, &mut text);
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

/// Bytes of a list, at most: two numbers of four digits.
const LIST_BYTES: usize = 10;

/// The list that stands there; how long it is.
fn list(of: &Range<u32>, text: &mut [u8; LIST_BYTES]) -> usize {
    let (first, last) = (of.start, of.end.max(of.start + 1) - 1);
    let mut bytes = 0;
    let mut number = |number: u32, then: u8| {
        let digits = number.checked_ilog10().unwrap_or(0);
        for place in (0..=digits).rev() {
            text[bytes] = b'0' + (number / 10u32.pow(place) % 10) as u8;
            bytes += 1;
        }
        text[bytes] = then;
        bytes += 1;
    };
    if first < last {
        number(first, b'-');
    }
    number(last, b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_the_kernel_s() {
        let list = |of| {
            let mut text = [0; LIST_BYTES];
            let bytes = list(&of, &mut text);
            String::from_utf8(text[..bytes].to_vec()).unwrap()
        };
        assert_eq!([0..1, 0..2, 0..11].map(list), ["0\n", "0-1\n", "0-10\n"]);
        assert_eq!([7..8, 10..20, 1000..1024].map(list), ["7\n", "10-19\n", "1000-1023\n"]);
    }

    #[test]
    fn each_node_has_names() {
        let node = |processors| Ready {
            address: Vec::new(),
            processors,
            features: Vec::new(),
            name: String::new(),
            ours: Vec::new(),
            clocks: String::new(),
        };
        assert_eq!(names(&[3, 1, 64].map(node)), [0..3, 3..4, 4..68]);
        assert_eq!(names(&[1000, 100, 8].map(node)), [0..1000, 1000..1024, 1023..1024]);
        let mask = all();
        assert!(has_any(&mask, &(1023..1024)));
        mask.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        mask[1].store(1 << 3, Ordering::Relaxed);
        assert!(has_any(&mask, &(4..68)) && !has_any(&mask, &(68..70)) && !has_any(&mask, &(0..4)));
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
