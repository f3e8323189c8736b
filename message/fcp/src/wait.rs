//! Waiting for another process to change a word: look for a while, then sleep in the
//! kernel, where an idle waiter costs nothing.
//!
//! How long to look adapts: where the wait usually ends while we look, as between two
//! processes with a core each, we look longer; where it does not, as with more processes
//! than cores, hardly at all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;

/// Fewest and most looks before sleeping. A look takes some 10 to 50 ns (`pause`).
const LOOKS_MIN: u32 = 16;
const LOOKS_MAX: u32 = 4096;

/// What a waiter has learned about how long to look.
#[derive(Debug, Clone)]
pub struct Patience {
    looks: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { looks: LOOKS_MIN * 8 }
    }
}

impl Patience {
    /// Looks for a while. Returns what `found` gave, if that was in time.
    pub fn look<T>(&mut self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..self.looks {
            if let Some(thing) = found() {
                self.looks = (self.looks * 2).min(LOOKS_MAX);
                return Some(thing);
            }
            std::hint::spin_loop();
        }
        self.looks = (self.looks / 2).max(LOOKS_MIN);
        None
    }
}

/// Sleeps until the word is no longer `expected`, somebody wakes us, a signal comes, or
/// the time is over. The word may lie in memory that processes share.
pub fn sleep(word: &AtomicU32, expected: u32, until: Option<Instant>) {
    let left = match until {
        None => None,
        Some(until) => match until.checked_duration_since(Instant::now()) {
            None | Some(Duration::ZERO) => return,
            Some(left) => Some(futex::Timespec {
                tv_sec: left.as_secs().min(1 << 30) as i64,
                tv_nsec: left.subsec_nanos().into(),
            }),
        },
    };
    match futex::wait(word, futex::Flags::empty(), expected, left.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        // Memory that futexes do not know, such as a device's: look now and then.
        Err(_) => std::thread::sleep(Duration::from_micros(50)),
    }
}

/// Wakes all who sleep on the word.
pub fn wake(word: &AtomicU32) {
    // Nobody sleeping is no error, and memory that futexes do not know has no sleepers.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Whether the word still is `expected`.
pub fn is_still(word: &AtomicU32, expected: u32) -> bool {
    word.load(Ordering::Acquire) == expected
}
