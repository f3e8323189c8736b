//! Waiting for another process to change a word: look for a while, then sleep in the
//! kernel, where an idle waiter costs nothing.
//!
//! How long to look adapts: where the wait ends while we look, as between two processes with
//! a core each, we look longer; where it does not, as with more processes than cores, hardly
//! at all. What is there at once, as for one that was just woken, says nothing of that. One
//! wait in a few looks longer than it has learned to, in case the others have a core again.

use std::sync::OnceLock;
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
/// One wait in so many is a trial, of so many looks.
const TRIAL_EACH: u32 = 32;
const TRIAL_LOOKS: u32 = 512;

/// What a waiter has learned about how long to look.
#[derive(Debug, Clone)]
pub struct Patience {
    looks: u32,
    waits: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { looks: LOOKS_MIN * 8, waits: 0 }
    }
}

impl Patience {
    /// Looks for a while. Returns what `found` gave, if that was in time.
    #[inline]
    pub fn look<T>(&mut self, mut found: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(thing) = found() {
            return Some(thing);
        }
        self.waits = self.waits.wrapping_add(1);
        let looks = match self.waits % TRIAL_EACH {
            0 => self.looks.max(TRIAL_LOOKS),
            _ => self.looks,
        };
        for look in 1..=looks {
            std::hint::spin_loop();
            if let Some(thing) = found() {
                self.looks = (self.looks.max(look) * 2).min(LOOKS_MAX);
                return Some(thing);
            }
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

/// Who else is told that a word was changed, on which somebody may sleep whom the kernel does not
/// know: on another machine.
static ELSEWHERE: OnceLock<fn(&AtomicU32)> = OnceLock::new();

/// From now on tells this of each word on which sleepers are woken, too. Once a process.
pub fn wake_elsewhere(wake: fn(&AtomicU32)) {
    let _ = ELSEWHERE.set(wake);
}

/// Wakes all who sleep on the word.
pub fn wake(word: &AtomicU32) {
    // Nobody sleeping is no error, and memory that futexes do not know has no sleepers.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    if let Some(wake) = ELSEWHERE.get() {
        wake(word);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until the wait was given up, of what does not come.
    fn in_vain(patience: &mut Patience) -> u32 {
        let mut looks = 0;
        let found = patience.look(|| {
            looks += 1;
            None::<()>
        });
        assert_eq!(found, None);
        looks - 1
    }

    /// Waits for what comes at the given look.
    fn until(patience: &mut Patience, look: u32) -> bool {
        let mut looks = 0;
        let found = patience.look(|| {
            looks += 1;
            (looks > look).then_some(())
        });
        found.is_some()
    }

    /// As a process that shares its core: it looks in vain, sleeps, and is woken by what it
    /// finds at once.
    #[test]
    fn what_is_there_at_once_teaches_nothing() {
        let mut patience = Patience { looks: LOOKS_MAX, waits: 0 };
        let looks: u32 = (0..1000)
            .map(|_| {
                let looks = in_vain(&mut patience);
                assert!(until(&mut patience, 0));
                looks
            })
            .sum();
        assert!(looks < 2 * LOOKS_MAX + 1000 * (LOOKS_MIN + TRIAL_LOOKS / TRIAL_EACH), "{looks}");
    }

    #[test]
    fn what_comes_while_we_look_makes_us_look_longer() {
        let mut patience = Patience::default();
        for _ in 0..10 {
            assert!(until(&mut patience, 3));
        }
        assert!(until(&mut patience, LOOKS_MAX - 1));
        assert!(!until(&mut patience, LOOKS_MAX + 1));
    }

    /// Others have a core again, and take longer than the fewest looks.
    #[test]
    fn a_trial_finds_that_looking_pays_again() {
        let mut patience = Patience::default();
        for _ in 0..100 {
            in_vain(&mut patience);
        }
        let missed = (0..100).filter(|_| !until(&mut patience, 10 * LOOKS_MIN)).count();
        assert!(missed < TRIAL_EACH as usize, "{missed}");
    }
}
