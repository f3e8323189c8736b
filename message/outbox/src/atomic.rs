//! Atomic words and cells. In models they are those of loom, which watches all accesses.

#[cfg(loom)]
pub use loom::cell::UnsafeCell as Cell;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};

/// A cell as loom has it.
#[cfg(not(loom))]
#[repr(transparent)]
pub struct Cell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> Cell<T> {
    /// Calls a function that reads the content.
    #[inline(always)]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls a function that writes the content.
    #[inline(always)]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
