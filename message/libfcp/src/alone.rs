//! A value that one thread uses at a time, and for which no other thread waits: a try-lock whose
//! release is a plain store. (The release of a mutex, which may have to wake a waiter, is a locked
//! exchange. That takes a quarter of the time of a cache line's transfer.)

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A value that one thread uses at a time.
#[derive(Debug)]
pub struct Alone<T> {
    used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `used` gives one thread at a time access to the value. Its release store and acquire swap
// order the accesses of two turns.
unsafe impl<T: Send> Sync for Alone<T> {}

impl<T> Alone<T> {
    /// Returns the value, which no thread uses.
    pub fn new(value: T) -> Self {
        Self { used: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Returns access to the value, unless another thread uses it.
    #[inline]
    pub fn turn(&self) -> Option<Turn<'_, T>> {
        // `then_some` would make a turn in either case, and its drop would end the other's turn.
        (!self.used.swap(true, Acquire)).then(|| Turn(self, PhantomData))
    }
}

/// A thread's access to the value. Dropping it ends the access.
#[derive(Debug)]
pub struct Turn<'a, T>(&'a Alone<T>, PhantomData<&'a mut T>);

impl<T> Deref for Turn<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `Alone::turn` gives out one `Turn` at a time, so no other reference exists.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Turn<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `Alone::turn` gives out one `Turn` at a time, and `self` is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(self.0.used.load(Relaxed), "a turn without its lock");
        self.0.used.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_turn_does_not_end_the_turn_of_another() {
        let alone = Alone::new(7);
        let turn = alone.turn().expect("the value is free");
        assert!(alone.turn().is_none());
        assert!(alone.turn().is_none(), "the first refusal has ended the turn");
        drop(turn);
        assert_eq!(*alone.turn().expect("the value is free"), 7);
    }
}
