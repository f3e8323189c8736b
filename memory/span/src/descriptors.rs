//! The program's descriptors at the origin from which the kernel reads into pages that it holds
//! (see [`direct`](crate::direct)).
//!
//! The type of a descriptor's file is determined at the first read, and cached until the
//! descriptor is closed or replaced: only close, dup2, dup3 and close_range do that. O_DIRECT is
//! checked each time, since another process that has the same open file may set it.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::raw;

/// Of a file system whose reads may hold pages: FUSE, 9P, SMB, CIFS, Lustre, Ceph.
const HOLDING: [u64; 6] =
    [0x6573_5546, 0x0102_1997, 0xfe53_4d42, 0xff53_4d42, 0x0bd0_0bd0, 0x00c3_6400];

/// Descriptors of which the kind is kept: the lowest.
const KEPT: usize = 1024;
/// Of each its [`Kind`]; from [`CLOSER`] on how many threads close it now; from [`CLOSED`] on how
/// often it was closed.
static KINDS: [AtomicU32; KEPT] = [const { AtomicU32::new(0) }; KEPT];
const KIND: u32 = 3;
const CLOSER: u32 = 1 << 2;
const CLOSERS: u32 = 0xfff << 2;
const CLOSED: u32 = 1 << 14;

/// Threads or children may have separate tables, or close descriptors in this one unseen.
static OF_THREADS: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Reads hold no pages: a pipe, a socket, a device.
    Never = 1,
    /// Reads hold pages if O_DIRECT is set.
    Direct = 2,
    /// Reads may hold pages.
    Always = 3,
}

/// From now on nothing is kept: there is more than one table of descriptors.
pub fn are_of_threads() {
    OF_THREADS.store(true, Ordering::SeqCst);
}

/// Makes a call that closes or replaces these descriptors.
pub fn close(descriptors: RangeInclusive<u64>, call: impl FnOnce() -> i64) -> i64 {
    let (first, last) = descriptors.into_inner();
    let end = last.saturating_add(1).min(KEPT as u64) as usize;
    let closed = KINDS.get(first.min(KEPT as u64) as usize..end).unwrap_or_default();
    let change = |change: fn(u32) -> u32| {
        for kind in closed {
            let _ = kind.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |it| Some(change(it)));
        }
    };
    // A reader in the meantime caches nothing: it may see the file before the call or after it.
    change(|it| (it & !KIND) + CLOSER);
    let result = call();
    change(|it| (it & !KIND).wrapping_sub(CLOSER).wrapping_add(CLOSED));
    result
}

/// Returns true if the kernel holds the pages into which it reads from this descriptor.
pub fn holds_pages(descriptor: u64) -> bool {
    let kept = KINDS.get(descriptor as usize).filter(|_| !OF_THREADS.load(Ordering::SeqCst));
    let before = kept.map_or(0, |kept| kept.load(Ordering::SeqCst));
    let kind = match before & KIND {
        1 => Kind::Never,
        2 => Kind::Direct,
        3 => Kind::Always,
        _ => {
            let Some(kind) = look(descriptor) else { return false };
            if let Some(kept) = kept
                && before & CLOSERS == 0
            {
                let new = before | kind as u32;
                let _ = kept.compare_exchange(before, new, Ordering::SeqCst, Ordering::SeqCst);
            }
            kind
        }
    };
    match kind {
        Kind::Never => false,
        Kind::Direct => is_direct(descriptor),
        Kind::Always => true,
    }
}

fn is_direct(descriptor: u64) -> bool {
    let arguments = [descriptor, libc::F_GETFL as u64, 0, 0, 0, 0];
    // SAFETY: asks.
    let flags = unsafe { raw::call(libc::SYS_fcntl as u64, arguments) };
    flags > 0 && flags as i32 & libc::O_DIRECT != 0
}

/// Asks the kernel; none, if there is no such descriptor.
fn look(descriptor: u64) -> Option<Kind> {
    // SAFETY: zeros are such a structure.
    let mut file: libc::statx = unsafe { std::mem::zeroed() };
    let flags = (libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC) as u64;
    let (name, at) = (c"".as_ptr() as u64, std::ptr::from_mut(&mut file) as u64);
    let arguments = [descriptor, name, flags, libc::STATX_TYPE.into(), at, 0];
    // SAFETY: an empty name, and room for the answer.
    if unsafe { raw::call(libc::SYS_statx as u64, arguments) } < 0 {
        return None;
    }
    Some(match u32::from(file.stx_mode) & libc::S_IFMT {
        libc::S_IFREG if is_of_holding(descriptor, &file) => Kind::Always,
        libc::S_IFREG | libc::S_IFBLK => Kind::Direct,
        _ => Kind::Never,
    })
}

/// Returns true if the file's file system is one of [`HOLDING`].
fn is_of_holding(descriptor: u64, file: &libc::statx) -> bool {
    /// Cached results: device numbers and, in the last bit, the answer.
    static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
    let device = u64::from(file.stx_dev_major) << 32 | u64::from(file.stx_dev_minor);
    let known = &KNOWN[(device % 64) as usize];
    let before = known.load(Ordering::Relaxed);
    if before >> 1 == device && device != 0 {
        return before & 1 == 1;
    }
    // SAFETY: zeros are such a structure.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    let at = std::ptr::from_mut(&mut system) as u64;
    // SAFETY: room for the answer.
    let result = unsafe { raw::call(libc::SYS_fstatfs as u64, [descriptor, at, 0, 0, 0, 0]) };
    let holds = result == 0 && HOLDING.contains(&(system.f_type as u64));
    known.store(device << 1 | u64::from(holds), Ordering::Relaxed);
    holds
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn kept(descriptor: u64) -> u32 {
        KINDS[descriptor as usize].load(Ordering::SeqCst) & KIND
    }

    fn replace(descriptor: u64, by: &File) {
        let result = close(descriptor..=descriptor, || {
            // SAFETY: descriptors of this test.
            unsafe { libc::dup2(by.as_raw_fd(), descriptor as i32).into() }
        });
        assert_eq!(result, descriptor as i64);
    }

    #[test]
    fn a_kind_is_kept_until_the_descriptor_is_replaced() {
        // A number that no other test has.
        let descriptor = 900;
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let null = File::open("/dev/null").unwrap();
        assert!(!holds_pages(descriptor) && kept(descriptor) == 0, "there is none");
        replace(descriptor, &null);
        assert!(!holds_pages(descriptor) && kept(descriptor) == Kind::Never as u32);
        replace(descriptor, &file);
        assert_eq!(kept(descriptor), 0);
        let is_held = holds_pages(descriptor);
        assert!(kept(descriptor) >= Kind::Direct as u32);
        // SAFETY: a descriptor of this test.
        let set = unsafe { libc::fcntl(descriptor as i32, libc::F_SETFL, libc::O_DIRECT) };
        assert_eq!(holds_pages(descriptor), is_held || set == 0, "flags are asked each time");
        // A reader during a close caches nothing, however many close it.
        close(descriptor..=descriptor, || {
            holds_pages(descriptor);
            assert_eq!(kept(descriptor), 0);
            replace(descriptor, &null);
            holds_pages(descriptor);
            assert_eq!(kept(descriptor), 0);
            0
        });
        assert!(!holds_pages(descriptor) && kept(descriptor) == Kind::Never as u32);
        close(800..=u64::MAX, || 0);
        assert_eq!(kept(descriptor), 0);
        assert!(!holds_pages(1 << 40));
    }
}
