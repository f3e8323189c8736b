//! Registered memory of a domain, by key.
//!
//! The table lies in its task's memory, where other tasks look keys up themselves. A registration
//! costs one entry; nothing is pinned.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sync::lock::{Held, Lock};

use crate::abi;
use crate::engine::counts::Counts;
use crate::engine::space::Here;

/// Most registered regions of a domain: a chain of entries must not become long.
pub const REGIONS_MAX: usize = 1 << 16;
const PLACES: usize = 2 * REGIONS_MAX;

/// One region. Its serial number is 0 while nobody has it; it is written last, and cleared
/// first.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Entry {
    serial: AtomicU64,
    key: AtomicU64,
    start: AtomicU64,
    bytes: AtomicU64,
    /// What is added to the addresses that others name; then `start` and `bytes` limit them.
    base: AtomicU64,
    access: AtomicU64,
    /// Addresses of what counts others' writes and reads there; 0: nothing does.
    counts: [AtomicU64; 2],
}

/// A place in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its address.
    pub address: u64,
    /// Address of what counts such accesses ([`Counts::of`]); 0: nothing does.
    pub counts: u64,
}

/// What was there, and is not: the search goes on behind it.
const GONE: u64 = u64::MAX;

/// A domain's table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Regions {
    /// Address of the entries: most tables stay empty, and pages come when they are touched.
    entries: AtomicU64,
    /// Has others wait who would change a number that no single instruction changes.
    changing: Lock,
}

impl Regions {
    /// An empty one. `None` without memory.
    pub fn new() -> Option<Self> {
        let bytes = PLACES * size_of::<Entry>();
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let entries = AtomicU64::new(at as u64);
        (at != libc::MAP_FAILED).then(|| Self { entries, changing: Lock::default() })
    }

    /// Has others wait who would change a number there that no single instruction changes. The
    /// caller holds the task whose regions these are.
    pub fn change(&self, here: &Here) -> Held<'_> {
        self.changing.hold(here.owner, |owner| here.is_alive(owner))
    }

    #[inline]
    fn entries(&self) -> &[Entry] {
        let at = self.entries.load(Relaxed) as *const Entry;
        // SAFETY: mapped in `new`, for as long as the task lives; zero is a valid entry.
        unsafe { std::slice::from_raw_parts(at, PLACES) }
    }

    /// The places where a key may be, in order.
    #[inline]
    fn places(&self, key: u64) -> impl Iterator<Item = &Entry> {
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % PLACES;
        let (before, behind) = self.entries().split_at(first);
        behind.iter().chain(before)
    }

    fn find(&self, key: u64) -> Option<&Entry> {
        self.places(key)
            .take_while(|entry| entry.serial.load(Acquire) != 0)
            .find(|entry| entry.serial.load(Acquire) != GONE && entry.key.load(Relaxed) == key)
    }

    /// Adds a region. Only one thread at a time does. Error: the key is taken, or all are.
    pub fn add(&self, serial: u64, key: u64, region: [u64; 4]) -> bool {
        if self.find(key).is_some() {
            return false;
        }
        let free = |entry: &&Entry| [0, GONE].contains(&entry.serial.load(Relaxed));
        let Some(entry) = self.places(key).find(free) else { return false };
        let words = [&entry.start, &entry.bytes, &entry.base, &entry.access];
        for (word, value) in words.into_iter().zip(region) {
            word.store(value, Relaxed);
        }
        entry.counts.iter().for_each(|counts| counts.store(0, Relaxed));
        entry.key.store(key, Relaxed);
        entry.serial.store(serial, Release);
        true
    }

    /// Takes a region out. Only one thread at a time does, and none adds one.
    pub fn remove(&self, key: u64) {
        let entries = self.entries();
        let Some(entry) = self.find(key) else { return };
        entry.serial.store(GONE, Release);
        // Where a search would end behind it, it may end here: so searches stay short.
        let at = |place: usize| &entries[place % PLACES].serial;
        // SAFETY: both lie in the table.
        let place = unsafe { std::ptr::from_ref(entry).offset_from(entries.as_ptr()) } as usize;
        if at(place + 1).load(Relaxed) == 0 {
            let gone = (0..PLACES).map(|back| at(place + PLACES - back));
            for serial in gone.take_while(|serial| serial.load(Relaxed) == GONE) {
                serial.store(0, Release);
            }
        }
    }

    /// Where `bytes` at `address` of the region with this key are, if that may be done to them.
    /// Error: ENOKEY, EACCES, EINVAL.
    #[inline]
    pub fn look_up(&self, key: u64, address: u64, bytes: u64, access: u64) -> Result<Found, c_int> {
        let entry = self.find(key).ok_or(abi::ENOKEY)?;
        let word = |word: &AtomicU64| word.load(Relaxed);
        let (start, size) = (word(&entry.start), word(&entry.bytes));
        if word(&entry.access) & access != access {
            return Err(abi::EACCES);
        }
        let address = address.wrapping_add(word(&entry.base));
        let offset = address.wrapping_sub(start);
        let end = offset.checked_add(bytes).ok_or(abi::EINVAL)?;
        let counts = word(&entry.counts[usize::from(access == abi::REMOTE_READ)]);
        if end <= size { Ok(Found { address, counts }) } else { Err(abi::EINVAL) }
    }

    /// Counts others' accesses to the region with this key from now on.
    pub fn count(&self, key: u64, counts: &Arc<Counts>, was_read: bool) {
        if let Some(entry) = self.find(key) {
            entry.counts[usize::from(was_read)].store(Counts::shared(counts), Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_found_by_their_keys_within_their_bounds() {
        let regions = Regions::new().unwrap();
        assert_eq!(regions.look_up(5, 0, 1, abi::READ), Err(abi::ENOKEY));
        assert!(regions.add(1, 5, [0x1000, 0x100, 0x1000, abi::REMOTE_READ]));
        assert!(!regions.add(2, 5, [0; 4]), "the key is taken");
        assert!(regions.add(3, 6, [0x1000, 0x100, 0, u64::MAX]));
        assert_eq!(
            regions.look_up(5, 0xff, 1, abi::REMOTE_READ),
            Ok(Found { address: 0x10ff, counts: 0 })
        );
        assert_eq!(regions.look_up(5, 0xff, 2, abi::REMOTE_READ), Err(abi::EINVAL));
        assert_eq!(regions.look_up(5, u64::MAX, 1, abi::REMOTE_READ), Err(abi::EINVAL));
        assert_eq!(regions.look_up(5, 0, 1, abi::REMOTE_WRITE), Err(abi::EACCES));
        assert_eq!(
            regions.look_up(6, 0x1010, 0xf0, abi::REMOTE_WRITE),
            Ok(Found { address: 0x1010, counts: 0 })
        );
        assert_eq!(regions.look_up(6, 0xfff, 1, abi::REMOTE_WRITE), Err(abi::EINVAL));
        regions.remove(5);
        assert_eq!(regions.look_up(5, 0, 1, abi::REMOTE_READ), Err(abi::ENOKEY));
        assert!(regions.add(4, 5, [0x2000, 1, 0x2000, u64::MAX]));
    }

    #[test]
    fn removed_entries_make_no_search_longer() {
        let regions = Regions::new().unwrap();
        for key in 0..4 * PLACES as u64 {
            assert!(regions.add(key + 1, key, [0, 1, 0, u64::MAX]));
            regions.remove(key);
        }
        let used = regions.entries().iter().filter(|entry| entry.serial.load(Relaxed) != 0);
        assert_eq!(used.count(), 0);
    }

    /// NULL and all addresses: MPICH does so.
    #[test]
    fn a_region_can_be_everything() {
        let regions = Regions::new().unwrap();
        assert!(regions.add(1, 0, [0, u64::MAX, 0, u64::MAX]));
        assert_eq!(
            regions.look_up(0, 0x7000_0000, 8, abi::REMOTE_WRITE),
            Ok(Found { address: 0x7000_0000, counts: 0 })
        );
    }
}
