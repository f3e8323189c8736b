//! Exclusion in a window: test-and-set, and the lock of `sync`, whose owners are members.
//!
//! A member that waits long takes the lock from a dead holder, and learns that what the lock
//! protects is in doubt ([`Guard::in_doubt`]).

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Instant;

use sync::lock::{self, Owner};

use crate::hold::Peer;
use crate::member::{Life, Membership};

/// Sets the word. Returns true if it was already set: if not, the caller must clear it.
pub fn test_and_set(word: &AtomicU32) -> bool {
    word.swap(1, Acquire) != 0
}

/// Clears a word that [`test_and_set`] has set. The next caller that sets it sees all that was done
/// before.
pub fn clear(word: &AtomicU32) {
    word.store(0, Release);
}

fn owner(peer: Peer) -> Owner {
    Owner { index: peer.index, generation: peer.generation }
}

/// Returns a function that tells if an owner may still be alive.
fn is_alive(me: &Membership) -> impl Fn(Owner) -> bool {
    |owner| {
        let peer = Peer { index: owner.index, generation: owner.generation };
        me.members().life(peer) != Life::Gone
    }
}

/// A lock in a window.
#[derive(Debug, Clone, Copy)]
pub struct Lock<'a>(&'a lock::Lock);

impl<'a> Lock<'a> {
    /// Returns the lock that is this word of the window ([`Window::word64`]). The word is zero at
    /// first. All users are members of the same window.
    ///
    /// [`Window::word64`]: crate::window::Window::word64
    pub fn at(word: &'a AtomicU64) -> Self {
        Self(lock::Lock::at(word))
    }

    /// Takes the lock if it is free or its holder is dead.
    pub fn try_lock(self, me: &'a Membership) -> Option<Guard<'a>> {
        let in_doubt = self.0.try_take(owner(me.peer()), is_alive(me))?;
        Some(Guard { lock: self.0, me, in_doubt })
    }

    /// Takes the lock, and waits for it until `until`. Returns `None` if the time is over.
    pub fn lock(self, me: &'a Membership, until: Option<Instant>) -> Option<Guard<'a>> {
        let in_doubt = self.0.take_until(owner(me.peer()), until, is_alive(me))?;
        Some(Guard { lock: self.0, me, in_doubt })
    }

    /// Returns the guard of a lock that `me` has taken before, and whose guard was forgotten.
    pub fn held(self, me: &'a Membership, in_doubt: bool) -> Option<Guard<'a>> {
        let is_ours = self.0.is_held_by(owner(me.peer()));
        is_ours.then(|| Guard { lock: self.0, me, in_doubt })
    }
}

/// A guard. It releases the lock when it is dropped.
#[derive(Debug)]
pub struct Guard<'a> {
    lock: &'a lock::Lock,
    me: &'a Membership,
    in_doubt: bool,
}

impl Guard<'_> {
    /// Returns true if a holder died or panicked in the middle of a change, and no holder has
    /// repaired it since.
    pub fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Declares the protected state repaired.
    pub fn settle(&mut self) {
        self.in_doubt = false;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let in_doubt = self.in_doubt || std::thread::panicking();
        self.lock.give(owner(self.me.peer()), in_doubt);
    }
}
