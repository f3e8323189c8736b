//! A robust lock: a waiter takes it over from a holder that has died.
//!
//! The lock is one 64-bit word that names the holder, and is zero at first. A waiter spins, then
//! sleeps, and checks from time to time that the holder is alive. If the holder is dead, the
//! waiter takes the lock by compare-and-swap. The protected state is then *in doubt*, since the
//! dead holder may have changed half of it (as with EOWNERDEAD). The doubt stays until a holder
//! has repaired the state and releases the lock without doubt.
//!
//! ```text
//! generation 32 │ … │ doubt 1 │ sleepers 1 │ held 1 │ index 16
//! ```
//!
//! A waiter that has slept takes the lock with the sleepers flag set, since other waiters may
//! still sleep. So each release wakes one waiter. `tests/lock_model.rs` models it with loom.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

use crate::futex;
use crate::wait::{self, WaitPolicy};
use crate::word::Word64;

const FREE: u64 = 0;
const HELD: u64 = 1 << 16;
const SLEEPERS: u64 = 1 << 17;
const DOUBT: u64 = 1 << 18;
const FLAGS: u64 = SLEEPERS | DOUBT;

/// A task or member that holds a lock. The generation distinguishes successive users of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// ID of the task, or index of the member.
    pub index: u16,
    /// Generation of that ID or index.
    pub generation: u32,
}

impl Owner {
    /// Returns the word of a lock that this owner holds, without flags.
    #[inline]
    fn word(self) -> u64 {
        u64::from(self.generation) << 32 | HELD | u64::from(self.index)
    }

    /// Returns the owner that the word of a held lock names.
    fn of(word: u64) -> Self {
        Self { index: word as u16, generation: (word >> 32) as u32 }
    }
}

/// Result of an attempt to take the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The caller holds the lock. The flag is true if the protected state is in doubt.
    Taken(bool),
    /// Another owner holds the lock. The second field is the lock's word.
    Held(Owner, u64),
}

/// Takes the lock for `me` if it is free. `has_slept` is true if the caller has slept on this lock
/// since it began to wait.
pub fn attempt<W: Word64>(word: &W, me: Owner, has_slept: bool) -> Attempt {
    let mark = if has_slept { SLEEPERS } else { 0 };
    let mut now = word.load(Relaxed);
    loop {
        if now & HELD != 0 {
            return Attempt::Held(Owner::of(now), now);
        }
        match word.compare_exchange(now, me.word() | now & FLAGS | mark) {
            Ok(_) => return Attempt::Taken(now & DOUBT != 0),
            Err(changed) => now = changed,
        }
    }
}

/// Takes the lock for `me` from the dead holder that `seen` names, if the word is still `seen`.
/// Returns true on success. The protected state is then in doubt. The sleepers flag stays.
pub fn inherit<W: Word64>(word: &W, me: Owner, seen: u64) -> bool {
    word.compare_exchange(seen, me.word() | seen & FLAGS).is_ok()
}

/// Sets the sleepers flag, if the word is still `seen`. Returns the value to sleep on; the release
/// changes it.
pub fn about_to_sleep<W: Word64>(word: &W, seen: u64) -> Option<u64> {
    let marked = seen | SLEEPERS;
    (seen == marked || word.compare_exchange(seen, marked).is_ok()).then_some(marked)
}

/// Releases the lock that `me` holds. Returns true if the caller must wake a sleeper. A word that
/// does not name `me` was overwritten by another process; it stays unchanged.
#[inline]
pub fn release<W: Word64>(word: &W, me: Owner, in_doubt: bool) -> bool {
    let mut now = me.word();
    loop {
        match word.compare_exchange(now, if in_doubt { DOUBT } else { FREE }) {
            Ok(_) => return now & SLEEPERS != 0,
            Err(changed) if changed & !FLAGS != me.word() => return false,
            Err(changed) => now = changed,
        }
    }
}

/// A robust lock, in memory that processes share.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Lock(AtomicU64);

impl Lock {
    /// Returns the lock whose word is `word`.
    pub fn at(word: &AtomicU64) -> &Self {
        // SAFETY: `Lock` is a `repr(transparent)` wrapper of `AtomicU64`, and the result has the
        // lifetime of `word`.
        unsafe { &*std::ptr::from_ref(word).cast::<Self>() }
    }

    /// Takes the lock, and waits until it is free. Returns true if the protected state is in doubt.
    #[inline]
    pub fn take(&self, me: Owner, is_alive: impl Fn(Owner) -> bool) -> bool {
        match self.0.compare_exchange(FREE, me.word(), Acquire, Relaxed) {
            Ok(_) => false,
            Err(_) => self.wait(me, None, is_alive).expect("a wait without a limit succeeds"),
        }
    }

    /// Takes the lock as [`take`](Self::take) does, without an atomic exchange if it is free. No
    /// other thread may take the lock at the same time.
    #[inline]
    pub fn take_alone(&self, me: Owner, is_alive: impl Fn(Owner) -> bool) -> bool {
        if self.0.load(Acquire) == FREE {
            self.0.store(me.word(), Relaxed);
            return false;
        }
        self.wait(me, None, is_alive).expect("a wait without a limit succeeds")
    }

    /// Takes the lock as [`take`](Self::take) does. Returns `None` if `until` has passed.
    pub fn take_until(
        &self,
        me: Owner,
        until: Option<Instant>,
        is_alive: impl Fn(Owner) -> bool,
    ) -> Option<bool> {
        match attempt(&self.0, me, false) {
            Attempt::Taken(in_doubt) => Some(in_doubt),
            Attempt::Held(..) => self.wait(me, until, is_alive),
        }
    }

    /// Takes the lock as [`take`](Self::take) does, without waiting. Returns `None` if a living
    /// owner holds it.
    pub fn try_take(&self, me: Owner, is_alive: impl Fn(Owner) -> bool) -> Option<bool> {
        self.take_or_see(me, false, is_alive).ok()
    }

    /// Takes the lock until the guard is dropped. The guard clears any doubt.
    pub fn hold(&self, me: Owner, is_alive: impl Fn(Owner) -> bool) -> Held<'_> {
        self.take(me, is_alive);
        Held { lock: self, me }
    }

    /// Takes the lock, or returns the word that names its living holder.
    fn take_or_see(
        &self,
        me: Owner,
        has_slept: bool,
        is_alive: impl Fn(Owner) -> bool,
    ) -> Result<bool, u64> {
        loop {
            match attempt(&self.0, me, has_slept) {
                Attempt::Taken(in_doubt) => return Ok(in_doubt),
                Attempt::Held(holder, seen) if is_alive(holder) => return Err(seen),
                Attempt::Held(_, seen) if inherit(&self.0, me, seen) => return Ok(true),
                // The word has changed since `attempt` read it.
                Attempt::Held(..) => {}
            }
        }
    }

    #[cold]
    fn wait(
        &self,
        me: Owner,
        until: Option<Instant>,
        is_alive: impl Fn(Owner) -> bool,
    ) -> Option<bool> {
        let mut policy = WaitPolicy::default();
        let mut has_slept = false;
        loop {
            let taken = policy.poll(|| match attempt(&self.0, me, has_slept) {
                Attempt::Taken(in_doubt) => Some(in_doubt),
                Attempt::Held(..) => None,
            });
            if taken.is_some() {
                return taken;
            }
            let seen = match self.take_or_see(me, has_slept, &is_alive) {
                Ok(in_doubt) => return Some(in_doubt),
                Err(seen) => seen,
            };
            if until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            if let Some(marked) = about_to_sleep(&self.0, seen) {
                // A holder may be killed between the release and the wake-up, so limit the sleep.
                let end = wait::earlier(until, wait::DOUBT);
                futex::sleep(futex::low_half(&self.0), marked as u32, Some(end));
                has_slept = true;
            }
        }
    }

    /// Returns true if `me` holds the lock.
    pub fn is_held_by(&self, me: Owner) -> bool {
        self.0.load(Relaxed) & !FLAGS == me.word()
    }

    /// Releases the lock that `me` holds. `in_doubt` is true if the protected state still needs
    /// repair.
    #[inline]
    pub fn give(&self, me: Owner, in_doubt: bool) {
        if release(&self.0, me, in_doubt) {
            futex::wake_one(futex::low_half(&self.0));
        }
    }

    /// Releases a lock that [`take_alone`](Self::take_alone) took. Clears any doubt.
    #[inline]
    pub fn give_alone(&self, me: Owner) {
        debug_assert!(self.is_held_by(me), "the caller has taken the lock");
        if self.0.load(Relaxed) == me.word() {
            self.0.store(FREE, Release);
        } else {
            self.give(me, false);
        }
    }
}

/// Guard of a [`Lock`]. Dropping it releases the lock.
#[derive(Debug)]
pub struct Held<'a> {
    lock: &'a Lock,
    me: Owner,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.give(self.me, false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    fn owner(index: u16) -> Owner {
        Owner { index, generation: 3 }
    }

    #[test]
    fn one_owner_at_a_time_holds_the_lock() {
        let (lock, inside) = (Lock::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for index in 0..4 {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        assert!(!lock.take(owner(index), |_| true));
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        inside.store(false, Ordering::Relaxed);
                        lock.give(owner(index), false);
                    }
                });
            }
        });
        assert_eq!(lock.0.load(Relaxed) & HELD, 0);
    }

    #[test]
    fn a_waiter_inherits_the_lock_of_a_dead_owner() {
        let lock = Lock::default();
        let dead = |holder: Owner| holder != owner(3);
        assert_eq!(lock.try_take(owner(3), |_| true), Some(false));
        assert_eq!(lock.try_take(owner(4), |_| true), None);
        assert!(lock.take(owner(4), dead));
        lock.give(owner(4), false);
        assert!(!lock.take_alone(owner(3), |_| true));
        assert!(lock.take_alone(owner(4), dead));
        lock.give_alone(owner(4));
        assert_eq!(lock.0.load(Relaxed), FREE);
    }

    #[test]
    fn doubt_stays_until_a_holder_has_repaired_the_state() {
        let lock = Lock::default();
        lock.take(owner(1), |_| true);
        lock.give(owner(1), true);
        assert!(lock.take(owner(2), |_| true));
        lock.give(owner(2), true);
        assert_eq!(lock.try_take(owner(2), |_| true), Some(true));
        lock.give(owner(2), false);
        assert_eq!(lock.try_take(owner(2), |_| true), Some(false));
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let lock = Lock::default();
        lock.take(owner(1), |_| true);
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(lock.take_until(owner(2), Some(soon), |_| true), None);
        assert!(Instant::now() >= soon && lock.is_held_by(owner(1)));
    }

    #[test]
    fn an_overwritten_lock_is_not_released() {
        let lock = Lock::default();
        lock.take(owner(1), |_| true);
        lock.give(owner(2), false);
        assert!(lock.is_held_by(owner(1)));
    }
}
