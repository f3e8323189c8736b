//! Private mappings of files.
//!
//! Those that the program cannot write, such as the text of libraries, are mapped by the origin's
//! kernel as for any program, so a page is read when it is used. Other nodes get copies of pages
//! (see `agent/files.rs`). The others are read at once into memory of all nodes.
//!
//! Code is patched before the program has it, which copies the changed pages of a mapping.

use nagaya_gate::sites::Site;

use crate::addresses::{Hint, PAGE};
use crate::here::Here;
use crate::request::Request;
use crate::shared::Overlay;
use crate::slot::Slot;
use crate::{names, raw, sharing, stubs};

const READ: u64 = libc::PROT_READ as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// mmap of a file, private.
///
/// # Safety
/// `a` must be the program's arguments of mmap; to be called at the origin.
pub unsafe fn map(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let is_writable = a[2] & libc::PROT_WRITE as u64 != 0;
    // SAFETY: as this function's.
    let mapped = if is_writable { None } else { unsafe { map_to_read(here, slot, a) } };
    // SAFETY: as this function's.
    mapped.unwrap_or_else(|| unsafe { read(here, slot, a) })
}

/// mmap of a file that is not written. Returns nothing if that is not possible: the file must be
/// read instead.
///
/// # Safety
/// As for [`map`].
unsafe fn map_to_read(here: &Here, slot: &Slot, a: [u64; 6]) -> Option<i64> {
    let ask = |request| here.table.request(slot, request);
    let (bytes, protection, flags, offset) = (a[1], a[2], a[3] as i32, a[5]);
    let length = file_bytes(a[4])?.checked_sub(offset)?.min(bytes);
    if length == 0 {
        return None;
    }
    // SAFETY: this function requires the program's arguments, at the origin. After an error the
    // mapping at a fixed address must be unchanged.
    let there = unsafe { sharing::map_anywhere(a) };
    if there < 0 {
        return Some(there);
    }
    let there = there as u64;
    // SAFETY: this function has created the mapping.
    let unmap = |start, bytes| unsafe {
        raw::call(libc::SYS_munmap as u64, [start, bytes, 0, 0, 0, 0]);
    };
    let start = sharing::place(here, slot, flags, a[0], bytes, protection as u32);
    let shown = length.next_multiple_of(PAGE);
    if bytes > shown {
        unmap(there + shown, bytes - shown);
    }
    if start < 0 {
        unmap(there, shown);
        return Some(start);
    }
    let start = start as u64;
    let lay = |start, bytes, kind| bytes == 0 || ask(Request::Overlay { start, bytes, kind }) == 0;
    let is_laid = lay(start, shown, Overlay::Text)
        && lay(start + shown, bytes.next_multiple_of(PAGE) - shown, Overlay::Beyond);
    // SAFETY: the mapping is this function's, and the addresses were assigned to this thread.
    let is_there = is_laid
        && unsafe {
            let moving = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            let is_code = protection & libc::PROT_EXEC as u64 != 0;
            (!is_code || patch_apart(here, slot, [there, start, length, protection]))
                && raw::call(libc::SYS_mremap as u64, [there, shown, shown, moving, start, 0]) >= 0
        };
    if !is_there {
        unmap(there, shown);
        ask(Request::Unmap { start, bytes });
        return None;
    }
    if here.names {
        names::name(here, slot, start, bytes, a);
    }
    if here.nodes > 1 {
        ask(Request::Text { descriptor: a[4] as i32, start, offset, bytes: length });
    }
    Some(start as i64)
}

/// mmap of a file that is read into new memory.
///
/// # Safety
/// As for [`map`].
unsafe fn read(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let ask = |request| here.table.request(slot, request);
    let (bytes, protection, flags) = (a[1], a[2] as u32, a[3] as i32);
    // SAFETY: this function requires the program's arguments, and the kernel checks addresses.
    let error = unsafe { sharing::check(a) };
    if error < 0 {
        return error;
    }
    let open = READ_WRITE as u32;
    let given = sharing::place(here, slot, flags, a[0], bytes, open);
    if given < 0 {
        return given;
    }
    let start = given as u64;
    // SAFETY: memory that was just given, which can be written where anything is.
    let end = match unsafe { fill(start, bytes, a[4], a[5]) } {
        Ok(end) => end,
        Err(errno) => {
            ask(Request::Unmap { start, bytes });
            return -i64::from(errno);
        }
    };
    let behind = end.next_multiple_of(PAGE);
    if behind < start + bytes {
        let (bytes, kind) = (start + bytes - behind, Overlay::Beyond);
        let error = ask(Request::Overlay { start: behind, bytes, kind });
        if error < 0 {
            ask(Request::Unmap { start, bytes: a[1] });
            return error;
        }
    }
    if here.names {
        names::name(here, slot, start, bytes, a);
    }
    if protection & libc::PROT_EXEC as u32 != 0 {
        let bytes = end - start;
        // SAFETY: the file's bytes were just written, and the program does not have them yet.
        unsafe {
            let text = std::slice::from_raw_parts(start as *const u8, bytes as usize);
            match stubs::sites(text, &mut []) {
                0 => {}
                count => patch(here, slot, count, [start, start, bytes]),
            }
        }
    }
    if protection != open {
        ask(Request::Protect { start, bytes, protection });
    }
    if protection & libc::PROT_WRITE as u32 == 0 && end > start && here.nodes > 1 {
        let (descriptor, offset, bytes) = (a[4] as i32, a[5], end - start);
        ask(Request::Text { descriptor, start, offset, bytes });
    }
    given
}

/// Reads a file into new memory. Returns the end of its bytes there, or mmap(2)'s error.
///
/// # Safety
/// The memory can be written.
unsafe fn fill(start: u64, bytes: u64, descriptor: u64, offset: u64) -> Result<u64, raw::Errno> {
    let mut filled = start;
    while filled < start + bytes {
        let (left, from) = (start + bytes - filled, offset + (filled - start));
        let arguments = [descriptor, filled, left, from, 0, 0];
        // SAFETY: this function requires memory that can be written.
        match -unsafe { raw::call(libc::SYS_pread64 as u64, arguments) } {
            0 => break,
            count if count < 0 => filled += count.unsigned_abs(),
            errno => match errno as raw::Errno {
                libc::EINTR => {}
                libc::EISDIR => return Err(libc::ENODEV),
                errno => return Err(errno),
            },
        }
    }
    Ok(filled)
}

/// Returns the length of a file, if it is a regular one.
fn file_bytes(descriptor: u64) -> Option<u64> {
    // SAFETY: numbers, which may be 0.
    let mut of: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [descriptor, &raw mut of as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes a local structure.
    let done = unsafe { raw::call(libc::SYS_fstat as u64, arguments) };
    (done == 0 && of.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(of.st_size as u64)
}

/// Patches code that is mapped at `there` and will be moved to `start`. Returns false if it cannot
/// be protected again.
///
/// # Safety
/// A private mapping of this thread, so long.
unsafe fn patch_apart(
    here: &Here,
    slot: &Slot,
    [there, start, bytes, protection]: [u64; 4],
) -> bool {
    let protect = |to| {
        // SAFETY: this function requires a mapping of this thread.
        unsafe { raw::call(libc::SYS_mprotect as u64, [there, bytes, to, 0, 0, 0]) == 0 }
    };
    // Writable memory is counted against a limit, so it is not for code without calls.
    if protection & READ == 0 && !protect(READ) {
        return false;
    }
    // SAFETY: a private mapping of this thread, which can be read.
    let text = unsafe { std::slice::from_raw_parts(there as *const u8, bytes as usize) };
    let count = stubs::sites(text, &mut []);
    if count > 0 {
        if !protect(READ_WRITE) {
            return false;
        }
        // SAFETY: the same, and now it can be written.
        unsafe { patch(here, slot, count, [there, start, bytes]) };
    }
    count == 0 && protection & READ != 0 || protect(protection)
}

/// Patches the system-call sites of code, of which there are `count`: it stands at `there`, and
/// will run at `start`. Without memory for stubs they stay as they are.
///
/// # Safety
/// The code can be written, and runs nowhere yet.
pub unsafe fn patch(here: &Here, slot: &Slot, count: usize, [there, start, bytes]: [u64; 3]) {
    let ask = |request| here.table.request(slot, request);
    // SAFETY: this function requires memory that can be written and that nobody else uses.
    let text = unsafe { std::slice::from_raw_parts_mut(there as *mut u8, bytes as usize) };
    let end = start + bytes;
    // The list of sites is behind the stubs.
    let (room, list) = (stubs::room(count), (count * size_of::<Site>()) as u64);
    let bytes = room + list.next_multiple_of(PAGE);
    let protection = READ_WRITE as u32;
    let hint = Hint { hint: end.next_multiple_of(PAGE), low: false };
    let at = ask(Request::Map { bytes, protection, is_file: false, hint });
    if at < 0 {
        return;
    }
    let at = at as u64;
    if !stubs::is_near(start, text.len(), at, bytes) {
        ask(Request::Unmap { start: at, bytes });
        return;
    }
    // SAFETY: new memory of zeros, which are sites.
    let (into, sites) = unsafe {
        let into = std::slice::from_raw_parts_mut(at as *mut u8, room as usize);
        let sites = std::slice::from_raw_parts_mut((at + room) as *mut Site, count);
        (into, sites)
    };
    stubs::sites(text, sites);
    stubs::patch(text, start, sites, into, at);
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u32;
    ask(Request::Protect { start: at, bytes, protection });
    ask(Request::Stubs { text: [start, end], stubs: at, bytes });
}
