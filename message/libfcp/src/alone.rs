//! What one thread uses at a time, and no other waits for: a try-lock whose release is a
//! plain store. (That of a mutex, which may have somebody to wake, is a locked exchange, as
//! long as a quarter of a cache line's way.)

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

/// A value that threads use in turns.
#[derive(Debug)]
pub struct Alone<T> {
    used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: whoever has the turn is alone with the value, and the next one sees what it did.
unsafe impl<T: Send> Sync for Alone<T> {}

impl<T> Alone<T> {
    /// Nobody's turn yet.
    pub fn new(value: T) -> Self {
        Self { used: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless another thread uses it.
    #[inline]
    pub fn turn(&self) -> Option<Turn<'_, T>> {
        (!self.used.swap(true, Acquire)).then_some(Turn(self, PhantomData))
    }
}

/// A thread's turn. It ends when this is dropped.
#[derive(Debug)]
pub struct Turn<'a, T>(&'a Alone<T>, PhantomData<&'a mut T>);

impl<T> Deref for Turn<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one turn at a time.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Turn<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.used.store(false, Release);
    }
}
