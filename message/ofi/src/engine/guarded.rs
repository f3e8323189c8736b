//! A value behind a lock that survives the death of its holder.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use sync::lock::{Lock, Owner};

/// A value that threads reach one at a time.
#[derive(Debug)]
pub struct Guarded<T> {
    lock: Lock,
    /// The program calls from one thread at a time, so plain stores take the lock.
    is_serialized: bool,
    value: UnsafeCell<T>,
}

// SAFETY: threads reach the value only through `Guard`, which exists only under the lock.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// Access to the value. The lock is released when this is dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    guarded: &'a Guarded<T>,
    owner: Owner,
}

impl<T> Guarded<T> {
    /// Wraps a value. `is_serialized`: the program promises that its threads call one at a time.
    pub fn new(value: T, is_serialized: bool) -> Self {
        Self { lock: Lock::default(), is_serialized, value: UnsafeCell::new(value) }
    }

    /// Takes the lock for `owner`. Also returns true if the last holder died with the lock, so the
    /// value may be inconsistent.
    #[inline]
    pub fn lock(&self, owner: Owner, is_alive: impl Fn(Owner) -> bool) -> (Guard<'_, T>, bool) {
        let in_doubt = match self.is_serialized {
            true => self.lock.take_alone(owner, is_alive),
            false => self.lock.take(owner, is_alive),
        };
        (Guard { guarded: self, owner }, in_doubt)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a `Guard` exists only between `take` in `Guarded::lock` and `give` in `drop`, so
        // no other thread has a reference to the value.
        unsafe { &*self.guarded.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, as in `deref`, and `&mut self` excludes this guard's other
        // references.
        unsafe { &mut *self.guarded.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        match self.guarded.is_serialized {
            true => self.guarded.lock.give_alone(self.owner),
            false => self.guarded.lock.give(self.owner, false),
        }
    }
}
