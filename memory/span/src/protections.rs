//! mprotect(2) without the agent. Allocators make parts of their memory accessible thousands of times
//! a second, and each request to the agent takes two wake-ups. So while the program's memory is
//! [local](crate::agent), a thread changes the protection of *plain* memory itself, and records that
//! in a log. The agent reads the log before it uses its own records of protections.
//!
//! Plain memory is the program's own, of no file, shown by no other mapping, and not executable. The
//! agent publishes parts of it, and withdraws them before it changes them.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::addresses::PAGE;
use crate::range_table::{RANGES_MAX, RangeTable};
use crate::raw;

/// Records of the log, at most.
const LOG_MAX: usize = 1024;
/// Protections that a thread may set.
const KINDS: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// Published plain memory.
static PLAIN: RangeTable = RangeTable::new();
/// Protects the log, and keeps [`PLAIN`] as it is.
static LOCK: Lock = Lock(AtomicU32::new(0));
/// The changes since the agent read the log: start, end, protection.
static LOG: [[AtomicU64; 3]; LOG_MAX] = [const { [const { AtomicU64::new(0) }; 3] }; LOG_MAX];
static RECORDS: AtomicUsize = AtomicUsize::new(0);

/// A change of protection that a thread has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The addresses, in whole pages.
    pub range: Range<u64>,
    /// As in mprotect(2).
    pub protection: u32,
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
    let at = RECORDS.load(Ordering::Relaxed);
    let may = at < LOG_MAX && is_published(&range);
    // SAFETY: this function requires the program's arguments, and the memory is the program's.
    let done = may && unsafe { raw::call(libc::SYS_mprotect as u64, a) } == 0;
    if done {
        let values = [start, end, protection];
        LOG[at].iter().zip(values).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
        RECORDS.store(at + 1, Ordering::Relaxed);
    }
    LOCK.unlock();
    // The agent knows which error the program gets.
    done.then_some(0)
}

fn is_published(range: &Range<u64>) -> bool {
    PLAIN.first_in(range).as_ref() == Some(range)
}

/// By the agent: publishes these ranges, in order, and no others. Returns the changes that threads
/// have made until now, in order.
pub fn publish(plain: &[Range<u64>]) -> Vec<Record> {
    LOCK.lock();
    PLAIN.set(&plain[..plain.len().min(RANGES_MAX)]);
    let mut records: Vec<Record> = Vec::new();
    for record in &LOG[..RECORDS.swap(0, Ordering::Relaxed)] {
        let [start, end, protection] = record.each_ref().map(|it| it.load(Ordering::Relaxed));
        let protection = protection as u32;
        match records.last_mut() {
            // Memory that becomes accessible part by part.
            Some(last) if last.protection == protection && last.range.end == start => {
                last.range.end = end;
            }
            _ => records.push(Record { range: start..end, protection }),
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
        assert_eq!(publish(std::slice::from_ref(&(at..at + 6 * PAGE))), []);
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
        };
        assert_eq!(publish(&[]), [record(0..3, 3), record(1..2, 1)]);
        assert_eq!(change_at(at, PAGE, writable), None, "withdrawn");
        assert!(!are_pending());
    }

    #[test]
    fn a_full_log_sends_threads_to_the_agent() {
        let _alone = ALONE.lock();
        let at = map(2);
        publish(std::slice::from_ref(&(at..at + 2 * PAGE)));
        for _ in 0..LOG_MAX {
            assert_eq!(change_at(at, PAGE, libc::PROT_READ), Some(0));
        }
        assert_eq!(change_at(at, PAGE, libc::PROT_READ), None);
        assert_eq!(publish(&[]).len(), LOG_MAX);
    }

    /// What the agent has withdrawn, no thread changes; each change is recorded once.
    #[test]
    fn no_change_is_lost_while_the_agent_publishes() {
        let _alone = ALONE.lock();
        let at = map(1);
        let plain = [at..at + PAGE];
        let mut read = 0;
        std::thread::scope(|scope| {
            let change = || while change_at(at, PAGE, libc::PROT_READ).is_none() {};
            let threads =
                [(); 2].map(|()| scope.spawn(move || (0..CHANGES).for_each(|_| change())));
            while threads.iter().any(|thread| !thread.is_finished()) {
                read += publish(&plain).len();
                std::thread::yield_now();
                read += publish(&[]).len();
                assert!(!are_pending(), "withdrawn");
            }
        });
        assert_eq!(read + publish(&[]).len(), 2 * CHANGES);
    }
}
