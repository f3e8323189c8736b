//! System V shared memory: segments are attached at the origin, where other processes can have
//! them, too, as other shared memory is.
//!
//! All of this runs on the program's threads, as [`calls`](crate::calls) does.

use crate::addresses::{Hint, PAGE};
use crate::here::Here;
use crate::raw;
use crate::request::Request;
use crate::shared::Overlay;
use crate::slot::Slot;

/// shmat(2).
///
/// # Safety
/// At the origin; arguments are as the program gave them.
pub unsafe fn attach(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    let ask = |request| here.table.request(slot, request);
    let [segment, wanted, flags, ..] = a;
    let has = |flag: i32| flags as i32 & flag != 0;
    let invalid = -i64::from(libc::EINVAL);
    // SAFETY: it is plain numbers.
    let mut of: libc::shmid_ds = unsafe { std::mem::zeroed() };
    let arguments = [segment, libc::IPC_STAT as u64, (&raw mut of) as u64, 0, 0, 0];
    // SAFETY: writes to our own.
    let looked = unsafe { raw::call(libc::SYS_shmctl as u64, arguments) };
    if looked < 0 {
        return looked;
    }
    let bytes = (of.shm_segsz as u64).next_multiple_of(PAGE);
    let (protection, is_file) = (0, true);
    let given = match wanted {
        0 if has(libc::SHM_REMAP) => return invalid,
        0 => ask(Request::Map { bytes, protection, is_file, hint: Hint::default() }),
        _ if !wanted.is_multiple_of(PAGE) && !has(libc::SHM_RND) => return invalid,
        _ => {
            let (start, replaces) = (wanted - wanted % PAGE, has(libc::SHM_REMAP));
            match ask(Request::MapAt { start, bytes, protection, replaces, is_file }) {
                error if error == -i64::from(libc::EEXIST) => return invalid,
                given => given,
            }
        }
    };
    if given < 0 {
        return given;
    }
    let start = given as u64;
    let mut result = ask(Request::Overlay { start, bytes, kind: Overlay::Shared });
    if result == 0 {
        let flags = flags & !(libc::SHM_RND as u64) | libc::SHM_REMAP as u64;
        // SAFETY: memory that was just given.
        result = unsafe { raw::call(libc::SYS_shmat as u64, [segment, start, flags, 0, 0, 0]) };
    }
    if result < 0 {
        ask(Request::Unmap { start, bytes });
        return result;
    }
    ask(Request::Attach { start, bytes });
    let mut protection = libc::PROT_READ;
    if !has(libc::SHM_RDONLY) {
        protection |= libc::PROT_WRITE;
    }
    if has(libc::SHM_EXEC) {
        protection |= libc::PROT_EXEC;
    }
    match ask(Request::Protect { start, bytes, protection: protection as u32 }) {
        0 => given,
        error => error,
    }
}

/// shmdt(2).
///
/// # Safety
/// As for [`attach`].
pub unsafe fn detach(here: &Here, slot: &Slot, start: u64) -> i64 {
    let bytes = here.table.request(slot, Request::Detach(start));
    if bytes < 0 {
        return bytes;
    }
    // Others may count the attachments when the answer arrives.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let arguments = [start, bytes as u64, 0, flags as u64, u64::MAX, 0];
    // SAFETY: the program's own, which it gives back.
    let result = unsafe { raw::call(libc::SYS_mmap as u64, arguments) };
    here.table.request(slot, Request::Unmap { start, bytes: bytes as u64 });
    result.min(0)
}
