//! System calls about processors: getcpu(2), sched_getaffinity(2), sched_setaffinity(2), and
//! open(2) of the files from which libc reads the number of processors.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::call::Call;
use crate::here::Here;
use crate::processors::{NAMES, PROCESSORS_MAX, there_are};
use crate::raw;
use crate::request::Request;
use crate::slot::Slot;

/// getcpu, where the thread runs.
///
/// # Safety
/// As for [`calls::answer`](crate::calls::answer).
pub unsafe fn get(call: Call) -> i64 {
    // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
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

/// A new thread has its maker's.
pub fn inherit(new: &Slot, maker: &Slot) {
    for (to, from) in new.processors.iter().zip(&maker.processors) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// sched_getaffinity and sched_setaffinity, at the origin.
///
/// # Safety
/// As for [`calls::for_another`](crate::calls::for_another).
pub unsafe fn affinity(here: &Here, caller: &Slot, call: Call) -> i64 {
    let [thread, bytes, mask, ..] = call.arguments;
    let whose = match thread as i32 {
        0 => Some(caller),
        thread => here.table.slot_of_tid(thread),
    };
    let Some(slot) = whose.filter(|_| here.nodes > 1) else {
        // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
        return unsafe { raw::call(call.number, call.arguments) };
    };
    let words = here.processors.div_ceil(64) as usize;
    let (room, mask) = (bytes as usize / 8, mask as *mut u64);
    if call.number as i64 == libc::SYS_sched_getaffinity {
        if !bytes.is_multiple_of(8) || room < words {
            return -i64::from(libc::EINVAL);
        }
        for word in 0..words {
            let own = slot.processors[word].load(Ordering::Relaxed);
            // SAFETY: this function requires the caller's mask, which has room for these words.
            unsafe { mask.add(word).write_unaligned(own & there_are(here.processors, word)) };
        }
        return words as i64 * 8;
    }
    // SAFETY: this function requires the caller's mask, which has these words.
    let word =
        |at: usize| unsafe { mask.add(at).read_unaligned() } & there_are(here.processors, at);
    let given = words.min(room);
    if (0..given).all(|at| word(at) == 0) {
        return -i64::from(libc::EINVAL);
    }
    for (at, to) in slot.processors.iter().enumerate() {
        to.store(if at < given { word(at) } else { 0 }, Ordering::Relaxed);
    }
    here.table.request(caller, Request::Bind(slot.index))
}

/// Files that list the processors.
const FILES: [&[u8]; 3] = [
    b"/sys/devices/system/cpu/online\0",
    b"/sys/devices/system/cpu/possible\0",
    b"/sys/devices/system/cpu/present\0",
];
/// Prefix of the names of files about one processor, before its number.
const ONE: &[u8] = b"/sys/devices/system/cpu/cpu";
/// Files that list the processors of a core. Each processor is its own core, since one machine's
/// files do not describe the others.
const CORE: [&[u8]; 2] = [b"/topology/thread_siblings_list\0", b"/topology/core_cpus_list\0"];
/// Files that list the processors of a socket: those of its node.
const SOCKET: [&[u8]; 2] = [b"/topology/core_siblings_list\0", b"/topology/package_cpus_list\0"];

/// Returns the processors that a file lists, if it is one of these.
///
/// # Safety
/// `name` must be a string of the program.
unsafe fn told_by(here: &Here, name: *const u8) -> Option<Range<u32>> {
    // SAFETY: this function requires a string, and the comparison stops at its end.
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
    // SAFETY: the string matched up to `at`, so it is readable there.
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
    // SAFETY: this function requires a string of the program.
    let told = unsafe { told_by(here, name) }?;
    let mut text = [0; LIST_BYTES];
    let bytes = list(&told, &mut text);
    let is_cloexec = flags as i32 & libc::O_CLOEXEC != 0;
    let flags = if is_cloexec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: name and text are local, and the new descriptor has no other owner.
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

/// Writes the list as text. Returns its length.
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
}
