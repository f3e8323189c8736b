//! mprotect(2), and brk(2) if the heap grows, without the agent. Allocators make parts of their
//! memory accessible thousands of times a second, and each request to the agent takes two wake-ups.
//! So while the program's memory is [local](crate::agent), a thread changes the protection of
//! *plain* memory itself, and records that in a log. The agent reads the log before it uses its own
//! records.
//!
//! Plain memory is the program's own, of no file, shown by no other mapping, and not executable.
//! The agent publishes parts of it, and room behind the heap. It withdraws them before it changes
//! them.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::addresses::PAGE;
use crate::range_table::{RANGES_MAX, RangeTable};
use crate::{limits, raw};

/// Records of the log, at most.
const LOG_MAX: usize = 1024;
/// Protections that a thread may set.
const KINDS: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// Published plain memory.
static PLAIN: RangeTable = RangeTable::new();
/// The heap's end, to the byte, and the end of the room that it may take. Equal: there is none.
static HEAP: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Protects the log and [`HEAP`], and keeps [`PLAIN`] as it is.
static LOCK: Lock = Lock(AtomicU32::new(0));
/// The changes since the agent read the log: start, end, protection, the heap's end or 0.
static LOG: [[AtomicU64; 4]; LOG_MAX] = [const { [const { AtomicU64::new(0) }; 4] }; LOG_MAX];
static RECORDS: AtomicUsize = AtomicUsize::new(0);

/// A change of protection that a thread has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The addresses, in whole pages.
    pub range: Range<u64>,
    /// As in mprotect(2).
    pub protection: u32,
    /// The heap's new end, or 0: it was no call of brk(2).
    pub heap_end: u64,
}

/// A lock that threads only try and the agent waits for. 0: free; 1: held; 2: the agent may wait.
struct Lock(AtomicU32);

impl Lock {
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn lock(&self) {
        while self.0.swap(2, Ordering::Acquire) != 0 {
            raw::sleep(&self.0, 2, None);
        }
    }

    fn unlock(&self) {
        if self.0.swap(0, Ordering::Release) == 2 {
            raw::wake(&self.0);
        }
    }
}

/// By a thread at the origin: makes this call of mprotect if all its memory is published. Returns
/// the result, or `None` if the agent must make the call.
///
/// # Safety
/// `a` must be the program's arguments of mprotect.
pub unsafe fn change(a: [u64; 6]) -> Option<i64> {
    let [start, bytes, protection, ..] = a;
    let end = start.checked_add(bytes)?.checked_next_multiple_of(PAGE)?;
    if !start.is_multiple_of(PAGE) || bytes == 0 || protection & !KINDS != 0 {
        return None;
    }
    let range = start..end;
    if !is_published(&range) || !LOCK.try_lock() {
        return None;
    }
    // The agent may have withdrawn it.
    // SAFETY: this function requires the program's arguments, and the memory is the program's.
    let done = is_published(&range) && unsafe { protect(range, protection, 0) };
    LOCK.unlock();
    // The agent knows which error the program gets.
    done.then_some(0)
}

/// By a thread at the origin: moves the heap's end there if it grows and that room is published.
/// Returns false if the agent must serve this call of brk.
pub fn grow_heap(end: u64) -> bool {
    let fits = || {
        let [from, limit] = HEAP.each_ref().map(|it| it.load(Ordering::Relaxed));
        (from < end && end <= limit).then_some(from)
    };
    if fits().is_none() || !limits::are_none() || !LOCK.try_lock() {
        return false;
    }
    let done = fits().is_some_and(|from| {
        let up = |at: u64| at.next_multiple_of(PAGE);
        // SAFETY: the published room is the program's, and unused.
        unsafe { protect(up(from)..up(end), KINDS, end) }
    });
    if done {
        HEAP[0].store(end, Ordering::Relaxed);
    }
    LOCK.unlock();
    done
}

/// With the lock: changes the protection of published memory, and records that. Returns false if
/// that was not possible.
///
/// # Safety
/// The memory must be the program's.
unsafe fn protect(range: Range<u64>, protection: u64, heap_end: u64) -> bool {
    let at = RECORDS.load(Ordering::Relaxed);
    let arguments = [range.start, range.end - range.start, protection, 0, 0, 0];
    // SAFETY: this function requires memory of the program.
    let may = || unsafe { raw::call(libc::SYS_mprotect as u64, arguments) } == 0;
    let done = at < LOG_MAX && (range.is_empty() || may());
    if done {
        let values = [range.start, range.end, protection, heap_end];
        LOG[at].iter().zip(values).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
        RECORDS.store(at + 1, Ordering::Relaxed);
    }
    done
}

fn is_published(range: &Range<u64>) -> bool {
    PLAIN.first_in(range).as_ref() == Some(range)
}

/// By the agent: publishes these ranges, in order, and no others. `heap`: the heap's end as far as
/// the agent knows, and the end of its room; equal if there is none. Returns the changes that
/// threads have made until now, in order.
pub fn publish(plain: &[Range<u64>], heap: Range<u64>) -> Vec<Record> {
    LOCK.lock();
    let end = HEAP[0].load(Ordering::Relaxed).max(heap.start);
    HEAP[0].store(if heap.is_empty() { 0 } else { end }, Ordering::Relaxed);
    HEAP[1].store(if heap.is_empty() { 0 } else { heap.end }, Ordering::Relaxed);
    PLAIN.set(&plain[..plain.len().min(RANGES_MAX)]);
    let mut records: Vec<Record> = Vec::new();
    for record in &LOG[..RECORDS.swap(0, Ordering::Relaxed)] {
        let [start, end, kind, heap_end] = record.each_ref().map(|it| it.load(Ordering::Relaxed));
        let protection = kind as u32;
        let is_next = |last: &Record| {
            let is_same = last.protection == protection && last.range.end == start;
            is_same && (last.heap_end == 0) == (heap_end == 0)
        };
        match records.last_mut() {
            // Memory that becomes accessible part by part.
            Some(last) if is_next(last) => {
                (last.range.end, last.heap_end) = (end, heap_end);
            }
            _ => records.push(Record { range: start..end, protection, heap_end }),
        }
    }
    LOCK.unlock();
    records
}

/// By the agent: returns true if threads may have changed anything since the log was read.
pub fn are_pending() -> bool {
    RECORDS.load(Ordering::Relaxed) > 0
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// The table and the log belong to the process.
    static ALONE: Mutex<()> = Mutex::new(());
    /// Changes of each of two threads at once.
    const CHANGES: usize = 2_000;

    /// Maps pages without access.
    fn map(pages: u64) -> u64 {
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        // SAFETY: maps unused addresses.
        let at =
            unsafe { raw::call(libc::SYS_mmap as u64, [0, pages * PAGE, 0, flags, u64::MAX, 0]) };
        assert!(at > 0, "{at}");
        at as u64
    }

    fn change_at(start: u64, bytes: u64, protection: i32) -> Option<i64> {
        // SAFETY: memory of a test, to which nothing refers.
        unsafe { change([start, bytes, protection as u64, 0, 0, 0]) }
    }

    #[test]
    fn published_memory_is_changed_and_recorded() {
        let _alone = ALONE.lock();
        let at = map(8);
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(change_at(at, PAGE, writable), None);
        assert_eq!(publish(std::slice::from_ref(&(at..at + 6 * PAGE)), 0..0), []);
        for page in 0..3 {
            assert_eq!(change_at(at + page * PAGE, 100, writable), Some(0));
        }
        // SAFETY: the page is writable now.
        unsafe { (at as *mut u8).write_volatile(1) };
        assert_eq!(change_at(at + PAGE, PAGE, libc::PROT_READ), Some(0));
        for (start, bytes, kind) in [
            (at + 5 * PAGE, 2 * PAGE, writable),
            (at + 1, PAGE, writable),
            (at, 0, writable),
            (at, PAGE, libc::PROT_EXEC),
            (at, u64::MAX, writable),
        ] {
            assert_eq!(change_at(start, bytes, kind), None, "{bytes} as {kind}");
        }
        assert!(are_pending());
        let record = |pages: Range<u64>, protection| Record {
            range: at + pages.start * PAGE..at + pages.end * PAGE,
            protection,
            heap_end: 0,
        };
        assert_eq!(publish(&[], 0..0), [record(0..3, 3), record(1..2, 1)]);
        assert_eq!(change_at(at, PAGE, writable), None, "withdrawn");
        assert!(!are_pending());
    }

    #[test]
    fn the_heap_grows_in_its_room() {
        let _alone = ALONE.lock();
        let at = map(8);
        assert!(!grow_heap(at + PAGE));
        assert_eq!(publish(&[], at + 100..at + 6 * PAGE), []);
        assert!(grow_heap(at + 200) && grow_heap(at + 3 * PAGE) && !grow_heap(at + 7 * PAGE));
        assert!(!grow_heap(at + PAGE), "the agent lets it shrink");
        // SAFETY: the pages are writable now.
        unsafe { ((at + 2 * PAGE) as *mut u8).write_volatile(1) };
        let grown = |range, heap_end| Record { range, protection: 3, heap_end };
        let one = grown(at + PAGE..at + 3 * PAGE, at + 3 * PAGE);
        assert_eq!(publish(&[], at + 3 * PAGE..at + 6 * PAGE), [one]);
        assert!(grow_heap(at + 3 * PAGE + 1));
        let two = grown(at + 3 * PAGE..at + 4 * PAGE, at + 3 * PAGE + 1);
        assert_eq!(publish(&[], 0..0), [two]);
        assert!(!grow_heap(at + 5 * PAGE), "withdrawn");
    }

    #[test]
    fn a_full_log_sends_threads_to_the_agent() {
        let _alone = ALONE.lock();
        let at = map(2);
        publish(std::slice::from_ref(&(at..at + 2 * PAGE)), 0..0);
        for _ in 0..LOG_MAX {
            assert_eq!(change_at(at, PAGE, libc::PROT_READ), Some(0));
        }
        assert_eq!(change_at(at, PAGE, libc::PROT_READ), None);
        assert_eq!(publish(&[], 0..0).len(), LOG_MAX);
    }

    /// No thread changes withdrawn memory, and each change is recorded once.
    #[test]
    fn no_change_is_lost_while_the_agent_publishes() {
        let _alone = ALONE.lock();
        let at = map(1);
        let plain = at..at + PAGE;
        let mut read = 0;
        std::thread::scope(|scope| {
            let change = || while change_at(at, PAGE, libc::PROT_READ).is_none() {};
            let threads =
                [(); 2].map(|()| scope.spawn(move || (0..CHANGES).for_each(|_| change())));
            while threads.iter().any(|thread| !thread.is_finished()) {
                read += publish(std::slice::from_ref(&plain), 0..0).len();
                std::thread::yield_now();
                read += publish(&[], 0..0).len();
                assert!(!are_pending(), "withdrawn");
            }
        });
        assert_eq!(read + publish(&[], 0..0).len(), 2 * CHANGES);
    }
}
