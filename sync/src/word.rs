//! Atomic words as traits. The protocols of this crate use the traits, so that they run on the
//! atomics of `std` as well as on those of loom.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

/// An atomic 32-bit word. Each method does the same as the method of `AtomicU32`.
pub trait Word32 {
    /// Reads the value.
    fn load(&self, order: Ordering) -> u32;
    /// Writes `value`.
    fn store(&self, value: u32, order: Ordering);
    /// Writes `value` and returns the previous value.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Sets `bits` and returns the previous value.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32;
    /// Keeps only `bits` and returns the previous value.
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32;
    /// Adds `value` and returns the previous value.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
}

/// An atomic 64-bit word. Each method does the same as the method of `AtomicU64`.
pub trait Word64 {
    /// Reads the value.
    fn load(&self, order: Ordering) -> u64;
    /// Writes `value`.
    fn store(&self, value: u64, order: Ordering);
    /// Writes `new` if the value is `current`. The order is sequentially consistent.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
    /// Sets `bits` and returns the previous value.
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// Keeps only `bits` and returns the previous value.
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

/// Completes an atomic exchange to a full fence. On x86-64 the exchange itself is a full fence, so
/// only the compiler is fenced.
#[inline]
pub fn fence_after_exchange() {
    if cfg!(target_arch = "x86_64") {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
