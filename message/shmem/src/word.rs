//! Words on which atomic operations work: those of the processor.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use shmem_wire::message::Op;

/// A word of 32 or 64 bits.
pub trait Word: Copy {
    /// Performs an operation at an address, and returns the former value. `Set` returns `value`.
    ///
    /// # Safety
    /// A word lies there, aligned, which is accessed by atomic operations only.
    unsafe fn perform(at: *mut u8, op: Op, value: Self, compare: Self) -> Self;

    /// Returns the word in 64 bits.
    fn bits(self) -> u64;

    /// Returns the word that these bits are.
    fn of(bits: u64) -> Self;
}

macro_rules! word {
    ($word:ty, $atomic:ty) => {
        impl Word for $word {
            #[inline(always)]
            unsafe fn perform(at: *mut u8, op: Op, value: Self, compare: Self) -> Self {
                // SAFETY: this function has the contract of this reference.
                let word = unsafe { &*at.cast::<$atomic>() };
                match op {
                    Op::Fetch => word.load(Acquire),
                    Op::Set => {
                        word.store(value, Release);
                        value
                    }
                    Op::Swap => word.swap(value, SeqCst),
                    Op::CompareSwap => {
                        let result = word.compare_exchange(compare, value, SeqCst, SeqCst);
                        result.unwrap_or_else(|former| former)
                    }
                    Op::Add => word.fetch_add(value, SeqCst),
                    Op::And => word.fetch_and(value, SeqCst),
                    Op::Or => word.fetch_or(value, SeqCst),
                    Op::Xor => word.fetch_xor(value, SeqCst),
                }
            }

            fn bits(self) -> u64 {
                self.into()
            }

            fn of(bits: u64) -> Self {
                bits as Self
            }
        }
    };
}

word!(u32, AtomicU32);
word!(u64, AtomicU64);
