//! Exclusion in a window: test-and-set, and a lock that survives its holder's death.
//!
//! The lock is one 64-bit word, zero at first: who holds it, of which generation, whether
//! somebody sleeps, and whether what it protects is in doubt. A waiter that waits long
//! asks whether the holder lives; if not, it takes the lock over by compare-and-swap, and
//! learns that what the dead was changing may be half changed (as by EOWNERDEAD). The
//! doubt stays until somebody has repaired the state and says so.
//!
//! ```text
//! generation 32 │ … │ doubt 1 │ sleepers 1 │ held 1 │ member 16
//! ```

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use crate::hold::Peer;
use crate::member::{Life, Membership};
use sync::futex;
use sync::wait::WaitPolicy;
use sync::word::Word64;

const HELD: u64 = 1 << 16;
const SLEEPERS: u64 = 1 << 17;
const DOUBT: u64 = 1 << 18;
const FLAGS: u64 = SLEEPERS | DOUBT;

/// How long to sleep before asking whether the holder still lives, and looking oneself: a
/// holder may have been killed between letting go and waking us.
const NAP: Duration = Duration::from_millis(20);

/// Sets the word. Whether it was set before: if not, it is the caller's to clear.
pub fn test_and_set(word: &AtomicU32) -> bool {
    word.swap(1, Acquire) != 0
}

/// Clears what [`test_and_set`] has set: what was done before is seen by who sets it next.
pub fn clear(word: &AtomicU32) {
    word.store(0, Release);
}

/// What became of an attempt to take the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It is ours; whether what it protects is in doubt.
    Taken(bool),
    /// It is somebody's: who, and the word that says so.
    Held(Peer, u64),
}

fn held_by(peer: Peer) -> u64 {
    u64::from(peer.generation) << 32 | HELD | u64::from(peer.index)
}

/// Takes the lock for `me` if nobody has it.
pub fn attempt<W: Word64>(word: &W, me: Peer) -> Attempt {
    let mut now = word.load(Relaxed);
    loop {
        if now & HELD != 0 {
            return Attempt::Held(Peer { index: now as u16, generation: (now >> 32) as u32 }, now);
        }
        match word.compare_exchange(now, held_by(me) | now & FLAGS) {
            Ok(_) => return Attempt::Taken(now & DOUBT != 0),
            Err(changed) => now = changed,
        }
    }
}

/// Takes the lock for `me` from a holder that is dead, if the word still is `seen`, which
/// named it. What it protects is in doubt.
pub fn inherit<W: Word64>(word: &W, me: Peer, seen: u64) -> bool {
    // Who sleeps goes on sleeping, and is woken when we let go.
    word.compare_exchange(seen, held_by(me) | seen & FLAGS).is_ok()
}

/// Says that somebody is about to sleep, if the word still is `seen`. Returns the word to
/// sleep on: it changes when the lock is let go.
pub fn about_to_sleep<W: Word64>(word: &W, seen: u64) -> Option<u64> {
    let marked = seen | SLEEPERS;
    (seen == marked || word.compare_exchange(seen, marked).is_ok()).then_some(marked)
}

/// Lets go of `me`'s lock, in doubt or not. Whether somebody sleeps, and must be woken.
pub fn release<W: Word64>(word: &W, me: Peer, doubt: bool) -> bool {
    let mut now = word.load(Relaxed);
    loop {
        if now & !FLAGS != held_by(me) {
            return false; // some process has overwritten it
        }
        match word.compare_exchange(now, if doubt { DOUBT } else { 0 }) {
            Ok(_) => return now & SLEEPERS != 0,
            Err(changed) => now = changed,
        }
    }
}

/// A lock in a window.
#[derive(Debug, Clone, Copy)]
pub struct Lock<'a> {
    word: &'a AtomicU64,
}

impl<'a> Lock<'a> {
    /// The lock that is this word of the window ([`Window::word64`]), zero when nobody has
    /// it. All use it by memberships of the same window.
    ///
    /// [`Window::word64`]: crate::window::Window::word64
    pub fn at(word: &'a AtomicU64) -> Self {
        Self { word }
    }

    /// Takes the lock if nobody has it, or only somebody who is dead.
    pub fn try_lock(self, me: &'a Membership) -> Option<Guard<'a>> {
        self.try_or_see(me).ok()
    }

    /// Takes the lock; waits for it. Nothing if the time is over first.
    pub fn lock(self, me: &'a Membership, until: Option<Instant>) -> Option<Guard<'a>> {
        let mut policy = WaitPolicy::default();
        loop {
            let taken = policy.poll(|| match attempt(self.word, me.peer()) {
                Attempt::Taken(doubt) => Some(doubt),
                Attempt::Held(..) => None,
            });
            if let Some(doubt) = taken {
                return Some(self.guard(me, doubt));
            }
            let seen = match self.try_or_see(me) {
                Ok(guard) => return Some(guard),
                Err(seen) => seen,
            };
            if until.is_some_and(|until| Instant::now() >= until) {
                return None;
            }
            if let Some(marked) = about_to_sleep(self.word, seen) {
                let nap = Instant::now() + NAP;
                futex::sleep(self.futex(), marked as u32, Some(until.map_or(nap, |u| u.min(nap))));
            }
        }
    }

    /// The lock that `me` has taken before, and whose guard was forgotten, if it has.
    pub fn held(self, me: &'a Membership, doubt: bool) -> Option<Guard<'a>> {
        let ours = self.word.load(Relaxed) & !FLAGS == held_by(me.peer());
        ours.then(|| self.guard(me, doubt))
    }

    /// Takes the lock, or returns the word that names its living holder.
    fn try_or_see(self, me: &'a Membership) -> Result<Guard<'a>, u64> {
        loop {
            match attempt(self.word, me.peer()) {
                Attempt::Taken(doubt) => return Ok(self.guard(me, doubt)),
                Attempt::Held(holder, seen) => {
                    if me.members().life(holder) != Life::Gone {
                        return Err(seen);
                    }
                    if inherit(self.word, me.peer(), seen) {
                        return Ok(self.guard(me, true));
                    }
                    // It has changed: look again.
                }
            }
        }
    }

    fn guard(self, me: &'a Membership, doubt: bool) -> Guard<'a> {
        Guard { lock: self, me, doubt }
    }

    /// The half of the word that says who holds it: what the kernel compares.
    fn futex(&self) -> &AtomicU32 {
        futex::low_half(self.word)
    }
}

/// The lock is ours. Dropping this lets it go.
#[derive(Debug)]
pub struct Guard<'a> {
    lock: Lock<'a>,
    me: &'a Membership,
    doubt: bool,
}

impl Guard<'_> {
    /// Whether a holder died, or panicked, in the middle of a change, and nobody has
    /// repaired it since.
    pub fn in_doubt(&self) -> bool {
        self.doubt
    }

    /// What the lock protects is in order again.
    pub fn settle(&mut self) {
        self.doubt = false;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let doubt = self.doubt || std::thread::panicking();
        if release(self.lock.word, self.me.peer(), doubt) {
            futex::wake(self.lock.futex());
        }
    }
}
