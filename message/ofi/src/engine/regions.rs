//! The memory regions of a domain, by key.
//!
//! The table lies in the memory of its task, and other tasks look up keys in it. A registration
//! costs one entry and pins nothing.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use sync::lock::{Held, Lock};

use crate::abi;
use crate::engine::counts::Counts;
use crate::engine::space::Here;

/// Most regions of a domain. It keeps the table at most half full, so searches stay short.
pub const REGIONS_MAX: usize = 1 << 16;
const ENTRIES: usize = 2 * REGIONS_MAX;

/// A region. Its serial number is 0 while the entry is free. It is written last and cleared first.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Entry {
    serial: AtomicU64,
    key: AtomicU64,
    start: AtomicU64,
    bytes: AtomicU64,
    /// Added to the addresses that peers name. `start` and `bytes` limit the sum.
    base: AtomicU64,
    access: AtomicU64,
    /// Addresses of the counters of remote writes and remote reads; 0: no counter.
    counts: [AtomicU64; 2],
}

/// Memory in a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its address.
    pub address: u64,
    /// Address of the [`Counts`] of such accesses; 0: no counter.
    pub counts: u64,
}

/// Serial number of a removed region. Searches continue behind it.
const GONE: u64 = u64::MAX;

/// A domain's table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Regions {
    /// Address of the entries. They are mapped apart, and most of their pages are never touched.
    entries: AtomicU64,
    /// Held while a task changes a number that no single instruction can change.
    changing: Lock,
}

impl Regions {
    /// Makes an empty table. Returns `None` without memory.
    pub fn new() -> Option<Self> {
        let bytes = ENTRIES * size_of::<Entry>();
        // SAFETY: an anonymous mapping at an address that the kernel chooses.
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

    /// Excludes other tasks that change numbers which no single instruction can change. The caller
    /// holds the task of the table.
    pub fn change(&self, here: &Here) -> Held<'_> {
        self.changing.hold(here.owner, |owner| here.is_alive(owner))
    }

    #[inline]
    fn entries(&self) -> &[Entry] {
        let at = self.entries.load(Relaxed) as *const Entry;
        // SAFETY: `new` has mapped `ENTRIES` entries, which are never unmapped. All bytes are a
        // valid entry, which consists of atomics.
        unsafe { std::slice::from_raw_parts(at, ENTRIES) }
    }

    /// Returns the entries where a key may be, in the order of the search.
    #[inline]
    fn search(&self, key: u64) -> impl Iterator<Item = &Entry> {
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % ENTRIES;
        let (before, behind) = self.entries().split_at(first);
        behind.iter().chain(before)
    }

    fn find(&self, key: u64) -> Option<&Entry> {
        self.search(key)
            .take_while(|entry| entry.serial.load(Acquire) != 0)
            .find(|entry| entry.serial.load(Acquire) != GONE && entry.key.load(Relaxed) == key)
    }

    /// Adds a region. Only one thread at a time adds or removes. Returns false if the key is taken,
    /// or if the table is full.
    pub fn add(&self, serial: u64, key: u64, region: [u64; 4]) -> bool {
        if self.find(key).is_some() {
            return false;
        }
        let free = |entry: &&Entry| [0, GONE].contains(&entry.serial.load(Relaxed));
        let Some(entry) = self.search(key).find(free) else { return false };
        let words = [&entry.start, &entry.bytes, &entry.base, &entry.access];
        for (word, value) in words.into_iter().zip(region) {
            word.store(value, Relaxed);
        }
        entry.counts.iter().for_each(|counts| counts.store(0, Relaxed));
        entry.key.store(key, Relaxed);
        entry.serial.store(serial, Release);
        true
    }

    /// Removes a region. Only one thread at a time adds or removes.
    pub fn remove(&self, key: u64) {
        let entries = self.entries();
        let Some(entry) = self.find(key) else { return };
        entry.serial.store(GONE, Release);
        // A search that would end at the next entry may end here. So removed entries become free
        // again.
        let at = |index: usize| &entries[index % ENTRIES].serial;
        let offset = std::ptr::from_ref(entry).addr() - entries.as_ptr().addr();
        let index = offset / size_of::<Entry>();
        if at(index + 1).load(Relaxed) == 0 {
            let gone = (0..ENTRIES).map(|back| at(index + ENTRIES - back));
            for serial in gone.take_while(|serial| serial.load(Relaxed) == GONE) {
                serial.store(0, Release);
            }
        }
    }

    /// Finds `bytes` bytes at `address` of the region with this key, if `access` is allowed there.
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

    /// Counts remote accesses to the region with this key from now on.
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
        for key in 0..4 * ENTRIES as u64 {
            assert!(regions.add(key + 1, key, [0, 1, 0, u64::MAX]));
            regions.remove(key);
        }
        let used = regions.entries().iter().filter(|entry| entry.serial.load(Relaxed) != 0);
        assert_eq!(used.count(), 0);
    }

    /// MPICH registers address 0 with all bytes.
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
