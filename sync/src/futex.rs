//! Futexes in memory that processes share: sleep on a word, wake its sleepers.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::wait::earlier;

/// Longest sleep on the first of two words where the kernel cannot wait for both.
const ONE_OF_TWO: Duration = Duration::from_micros(200);
/// Sleep on memory that has no futexes, such as that of a device.
const NO_FUTEX: Duration = Duration::from_micros(50);

/// Sleeps until the word is no longer `expected`, a wake-up or a signal arrives, or `until` has
/// passed. The word may lie in memory that processes share.
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
        Err(_) => std::thread::sleep(NO_FUTEX),
    }
}

/// As [`sleep`], on two words (futex_waitv, since Linux 5.16). Where the kernel cannot, sleeps
/// on the first for a short time.
pub fn sleep_on_either(words: [(&AtomicU32, u32); 2], until: Instant) {
    static CANNOT: AtomicBool = AtomicBool::new(false);
    if CANNOT.load(Relaxed) {
        return sleep(words[0].0, words[0].1, Some(earlier(Some(until), ONE_OF_TWO)));
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
        // ENOSYS before 5.16; other errors by a filter, or for memory without futexes.
        Err(_) => CANNOT.store(true, Relaxed),
    }
}

/// The function that wakes sleepers whom this machine's kernel does not know.
static ELSEWHERE: OnceLock<fn(&AtomicU32)> = OnceLock::new();

/// Registers a function that [`wake`] and [`wake_one`] call with each word, too: it wakes sleepers
/// on other machines. The first registration in a process counts.
pub fn wake_elsewhere(wake: fn(&AtomicU32)) {
    let _ = ELSEWHERE.set(wake);
}

/// Wakes all sleepers on the word.
pub fn wake(word: &AtomicU32) {
    wake_here(word);
    if let Some(wake) = ELSEWHERE.get() {
        wake(word);
    }
}

/// Wakes all sleepers of this machine on the word.
pub fn wake_here(word: &AtomicU32) {
    // A word without sleepers is no error, and memory without futexes has no sleepers.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Wakes one sleeper of this machine on the word, and those of other machines.
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
    if let Some(wake) = ELSEWHERE.get() {
        wake(word);
    }
}

/// Returns the lower half of a word, to sleep on.
pub fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let low = std::ptr::from_ref(word).cast::<AtomicU32>();
    // SAFETY: `word` is valid and aligned, and its low half comes first (little-endian, see
    // below). Only sleepers and the kernel read it by this reference; all others use the word.
    unsafe { &*low }
}

#[cfg(not(target_endian = "little"))]
compile_error!("the low half of a word must come first");
