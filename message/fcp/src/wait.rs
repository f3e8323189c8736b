//! Waiting for another process to change a word: look for a while, then sleep in the
//! kernel, where an idle waiter costs nothing.
//!
//! How long to look adapts: where the wait usually ends while we look, as between two
//! processes with a core each, we look longer; where it does not, as with more processes
//! than cores, hardly at all.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// How long to sleep before asking whether somebody who is late still lives.
pub const DOUBT: Duration = Duration::from_millis(20);
/// How long to sleep on one word when something may come by another, and the kernel cannot
/// wait for two.
const GLANCE: Duration = Duration::from_micros(200);

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

/// Looks for so long.
pub fn look_for<T>(time: Duration, mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        for _ in 0..LOOKS_MIN {
            if let Some(thing) = found() {
                return Some(thing);
            }
            std::hint::spin_loop();
        }
        if begin.elapsed() >= time {
            return None;
        }
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

/// The lower half of a word, to sleep on.
pub(crate) fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let low = std::ptr::from_ref(word).cast::<AtomicU32>();
    // SAFETY: the low half, on a little-endian machine. Only the kernel, and who is about
    // to sleep, read it by this reference; everybody else uses the whole word.
    unsafe { &*low }
}

#[cfg(not(target_endian = "little"))]
compile_error!("the low half of a word must come first");

/// Wakes all who sleep on the word.
pub fn wake(word: &AtomicU32) {
    // Nobody sleeping is no error, and memory that futexes do not know has no sleepers.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// The given time, or `at_most` from now, whichever comes first.
pub fn earlier(until: Option<Instant>, at_most: Duration) -> Instant {
    let end = Instant::now() + at_most;
    until.map_or(end, |until| until.min(end))
}

/// As [`sleep`], on two words (futex_waitv, since Linux 5.16). Where the kernel cannot, on
/// the first for a short time.
pub fn sleep_on_either(words: [(&AtomicU32, u32); 2], until: Instant) {
    static CANNOT: AtomicBool = AtomicBool::new(false);
    if CANNOT.load(Relaxed) {
        return sleep(words[0].0, words[0].1, Some(earlier(Some(until), GLANCE)));
    }
    let left = until.saturating_duration_since(Instant::now());
    let now = clock_gettime(ClockId::Monotonic);
    let nanoseconds = now.tv_nsec + i64::from(left.subsec_nanos());
    let end = Timespec {
        tv_sec: now.tv_sec + left.as_secs().min(1 << 30) as i64 + nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    };
    let waits = words.map(|(word, expected)| {
        let mut wait = futex::Wait::new();
        wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
        wait.val = expected.into();
        wait.flags = futex::WaitFlags::SIZE_U32;
        wait
    });
    let flags = futex::WaitvFlags::empty();
    match futex::waitv(&waits, flags, Some(&end), ClockId::Monotonic) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        // ENOSYS before 5.16; others by a filter, or for memory that futexes do not know.
        Err(_) => CANNOT.store(true, Relaxed),
    }
}
