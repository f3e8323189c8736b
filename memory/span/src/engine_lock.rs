//! The lock of an engine that several threads drive, one at a time.
//!
//! Its holder may use the thread area of the agent's thread, so a waiter uses none: this code is
//! without libc. All holders are threads of one process. A holder that is killed ends with its
//! process, so the lock need not survive it.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::raw;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// A thread sleeps on the word, perhaps.
const WANTED: u32 = 2;

/// A mutex of one process.
#[derive(Default)]
pub struct EngineLock(AtomicU32);

impl EngineLock {
    /// Takes the lock if it is free. Returns true if the caller holds it.
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    /// Waits for the lock.
    pub fn lock(&self) {
        if self.try_lock() {
            return;
        }
        while self.0.swap(WANTED, Acquire) != FREE {
            raw::sleep(&self.0, WANTED, None);
        }
    }

    /// Releases the lock, which the caller holds.
    pub fn unlock(&self) {
        if self.0.swap(FREE, Release) == WANTED {
            raw::wake(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    struct Counter(EngineLock, UnsafeCell<u64>);
    // SAFETY: the lock gives the cell one user at a time.
    unsafe impl Sync for Counter {}

    #[test]
    fn holders_exclude_each_other_and_no_waiter_sleeps_for_ever() {
        const TIMES: u64 = 100_000;
        let counter = Counter(EngineLock::default(), UnsafeCell::new(0));
        let add = |counter: &Counter, waits: bool| {
            let mut done = 0;
            while done < TIMES {
                if waits {
                    counter.0.lock();
                } else if !counter.0.try_lock() {
                    continue;
                }
                // SAFETY: this thread holds the lock.
                unsafe { *counter.1.get() += 1 };
                counter.0.unlock();
                done += 1;
            }
        };
        let all = &counter;
        std::thread::scope(|scope| {
            for waits in [true, true, false] {
                scope.spawn(move || add(all, waits));
            }
        });
        assert_eq!(counter.1.into_inner(), 3 * TIMES);
    }
}
