//! Atomic words as traits: real memory has `AtomicU32` and `AtomicU64`, models have loom's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

/// An atomic 32-bit word.
pub trait Word32 {
    /// As `AtomicU32`'s.
    fn load(&self, order: Ordering) -> u32;
    /// As `AtomicU32`'s.
    fn store(&self, value: u32, order: Ordering);
    /// As `AtomicU32`'s.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// As `AtomicU32`'s.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32;
    /// As `AtomicU32`'s.
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32;
    /// As `AtomicU32`'s.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
}

/// An atomic 64-bit word.
pub trait Word64 {
    /// As `AtomicU64`'s.
    fn load(&self, order: Ordering) -> u64;
    /// As `AtomicU64`'s.
    fn store(&self, value: u64, order: Ordering);
    /// As `AtomicU64`'s, sequentially consistent.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
    /// As `AtomicU64`'s.
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// As `AtomicU64`'s.
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
}

impl Word32 for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }
    #[inline]
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_or(bits, order)
    }
    #[inline]
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_and(bits, order)
    }
    #[inline]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_add(value, order)
    }
}

impl Word64 for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
    }
    #[inline]
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }
    #[inline]
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }
}

/// A full fence behind an atomic exchange, which on some processors is one already.
#[inline]
pub fn fence_after_exchange() {
    if cfg!(target_arch = "x86_64") {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
