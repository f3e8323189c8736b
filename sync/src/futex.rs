//! Futexes in memory that processes share: threads sleep on a word until another thread wakes
//! them.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::wait::earlier;

/// Longest sleep on the first of two words if the kernel lacks futex_waitv.
const ONE_OF_TWO: Duration = Duration::from_micros(200);
/// Length of a sleep on memory that has no futexes, such as device memory.
const NO_FUTEX: Duration = Duration::from_micros(50);

/// Sleeps while the word is `expected`. Returns at a wake-up, at a signal, or when `until` has
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

/// Sleeps on two words as [`sleep`] does on one, by futex_waitv (since Linux 5.16). An older
/// kernel makes this a short sleep on the first word.
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
        // ENOSYS before Linux 5.16; other errors from a seccomp filter, or for memory without
        // futexes.
        Err(_) => CANNOT.store(true, Relaxed),
    }
}

/// The function that wakes sleepers on other machines.
static ELSEWHERE: OnceLock<fn(&AtomicU32)> = OnceLock::new();

/// Registers a function that wakes sleepers on other machines. [`wake`] and [`wake_one`] call it
/// with each word. Later registrations in the same process have no effect.
pub fn wake_elsewhere(wake: fn(&AtomicU32)) {
    let _ = ELSEWHERE.set(wake);
}

/// Wakes all sleepers on the word, on all machines.
pub fn wake(word: &AtomicU32) {
    wake_here(word);
    if let Some(wake) = ELSEWHERE.get() {
        wake(word);
    }
}

/// Wakes all sleepers of this machine on the word.
pub fn wake_here(word: &AtomicU32) {
    // Memory without futexes gives an error, but has no sleepers either.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Wakes one sleeper of this machine on the word, and the sleepers of other machines.
pub fn wake_one(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
    if let Some(wake) = ELSEWHERE.get() {
        wake(word);
    }
}

/// Returns the lower half of a 64-bit word, as a futex to sleep on.
pub fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let low = std::ptr::from_ref(word).cast::<AtomicU32>();
    // SAFETY: `word` is a valid reference, and its low half comes first, as `compile_error!` below
    // checks. Only sleepers and the kernel use this half, and they only read it.
    unsafe { &*low }
}

#[cfg(not(target_endian = "little"))]
compile_error!("the low half of a word must come first");
