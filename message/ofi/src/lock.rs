//! A lock whose word names the task that has it.
//!
//! Others than the owner of what it guards may take it, too, and may be killed in between. Who
//! waits looks for a while, then sleeps, and asks now and then whether the holder lives; whoever
//! inherits the lock from a dead task learns that what it guards is in doubt. Where a program
//! promises that its threads take turns, taking and giving it are plain stores.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

use sync::futex;
use sync::wait::{DOUBT, WaitPolicy};

const FREE: u32 = 0;
/// A bit: somebody waits.
const WANTED: u32 = 1 << 31;

/// The lock. A task is named by its ID and 1.
#[derive(Debug, Default)]
pub struct Lock(AtomicU32);

/// The lock, while somebody has it.
#[derive(Debug)]
pub struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// The lock's former holder has ended without giving it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inherited;

impl Lock {
    /// Takes it for this task.
    #[inline]
    pub fn take(&self, id: u32, lives: impl Fn(u32) -> bool) -> Result<(), Inherited> {
        if self.try_take(id) { Ok(()) } else { self.wait(id, lives) }
    }

    /// Takes it for this task until the answer is dropped, inherited or not.
    pub fn hold(&self, id: u32, lives: impl Fn(u32) -> bool) -> Held<'_> {
        let _ = self.take(id, lives);
        Held(self)
    }

    /// Takes it if nobody has it.
    #[inline]
    pub fn try_take(&self, id: u32) -> bool {
        self.0.compare_exchange(FREE, id + 1, Acquire, Relaxed).is_ok()
    }

    /// The same, where nobody else takes it meanwhile.
    #[inline]
    pub fn take_alone(&self, id: u32, lives: impl Fn(u32) -> bool) -> Result<(), Inherited> {
        if self.0.load(Acquire) == FREE {
            self.0.store(id + 1, Relaxed);
            return Ok(());
        }
        self.wait(id, lives)
    }

    #[cold]
    fn wait(&self, id: u32, lives: impl Fn(u32) -> bool) -> Result<(), Inherited> {
        let looked = WaitPolicy::default().poll(|| self.try_take(id).then_some(()));
        if looked.is_some() {
            return Ok(());
        }
        loop {
            let now = self.0.load(Relaxed);
            let holder = now & !WANTED;
            if holder == FREE {
                // Others may be waiting still.
                if self.0.compare_exchange(now, (id + 1) | WANTED, Acquire, Relaxed).is_ok() {
                    return Ok(());
                }
                continue;
            }
            if now & WANTED == 0
                && self.0.compare_exchange(now, now | WANTED, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            futex::sleep(&self.0, holder | WANTED, Some(Instant::now() + DOUBT));
            let after = self.0.load(Relaxed);
            if after & !WANTED == holder
                && !lives(holder - 1)
                && self.0.compare_exchange(after, (id + 1) | WANTED, Acquire, Relaxed).is_ok()
            {
                return Err(Inherited);
            }
        }
    }

    /// Gives it back.
    #[inline]
    pub fn give(&self) {
        if self.0.swap(FREE, Release) & WANTED != 0 {
            futex::wake_one(&self.0);
        }
    }

    /// The same, after [`take_alone`](Self::take_alone).
    #[inline]
    pub fn give_alone(&self) {
        if self.0.load(Relaxed) & WANTED != 0 {
            return self.give();
        }
        self.0.store(FREE, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time() {
        let (lock, inside) = (Lock::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for id in 0..4 {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        assert_eq!(lock.take(id, |_| true), Ok(()));
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        inside.store(false, Ordering::Relaxed);
                        lock.give();
                    }
                });
            }
        });
    }

    #[test]
    fn the_lock_of_a_dead_task_is_inherited() {
        let lock = Lock::default();
        assert!(lock.try_take(3));
        assert!(!lock.try_take(4));
        assert_eq!(lock.take(4, |id| id != 3), Err(Inherited));
        lock.give();
        assert_eq!(lock.take(5, |_| true), Ok(()));
        lock.give();
        assert_eq!(lock.take_alone(6, |_| true), Ok(()));
        assert_eq!(lock.take_alone(7, |id| id != 6), Err(Inherited));
        lock.give_alone();
        assert!(lock.try_take(8));
    }
}
