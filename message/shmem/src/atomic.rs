//! Atomic operations on symmetric objects: those of the processor.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::context::Handle;
use crate::fatal::fatal;
use crate::rma::reach;

/// An atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Fetch,
    Set,
    Swap,
    CompareSwap,
    Add,
    And,
    Or,
    Xor,
}

/// A word of 32 or 64 bits.
pub trait Word: Copy {
    /// Performs an operation at an address, and returns the former value. `Set` returns `value`.
    ///
    /// # Safety
    /// A word lies there, aligned, which is accessed by atomic operations only.
    unsafe fn perform(at: *mut u8, op: Op, value: Self, compare: Self) -> Self;
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
        }
    };
}

word!(u32, AtomicU32);
word!(u64, AtomicU64);

/// Performs an operation on a symmetric object of a PE. Returns its former value.
#[inline(always)]
pub fn perform<W: Word>(
    function: &str,
    context: Handle,
    op: Op,
    object: *mut u8,
    [value, compare]: [W; 2],
    pe: c_int,
) -> W {
    let (_, peer, at) = reach(function, context, object, size_of::<W>(), pe);
    if !at.addr().is_multiple_of(size_of::<W>()) {
        fatal!(function, "the object at {object:p} is not aligned to its size");
    }
    // SAFETY: `reach` has checked that the word is in symmetric memory.
    let former = unsafe { W::perform(at, op, value, compare) };
    if op != Op::Fetch {
        peer.wake();
    }
    former
}
