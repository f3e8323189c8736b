//! A lock whose waits have a time limit. The threads of a delegatee take requests in turns.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

use sync::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and a thread may be waiting.
const WANTED: u32 = 2;

/// The lock.
#[derive(Debug, Default)]
pub struct Turn(AtomicU32);

impl Turn {
    /// Takes the turn. Returns false if it was not free before `until`.
    #[inline]
    pub fn take(&self, until: Option<Instant>) -> bool {
        self.0.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() || self.wait(until)
    }

    #[cold]
    fn wait(&self, until: Option<Instant>) -> bool {
        loop {
            if self.0.swap(WANTED, Acquire) == FREE {
                return true;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
            futex::sleep(&self.0, WANTED, until);
        }
    }

    /// Gives the turn to another thread.
    #[inline]
    pub fn give(&self) {
        let before = self.0.swap(FREE, Release);
        debug_assert_ne!(before, FREE, "given without having been taken");
        if before == WANTED {
            futex::wake_one(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_turn_is_one_threads_and_a_wait_for_it_ends() {
        let (turn, inside) = (Turn::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        assert!(turn.take(None));
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        inside.store(false, Ordering::Relaxed);
                        turn.give();
                    }
                });
            }
        });
        assert!(turn.take(None));
        assert!(!turn.take(Some(Instant::now() + Duration::from_millis(5))));
        turn.give();
        assert!(turn.take(Some(Instant::now())));
    }
}
