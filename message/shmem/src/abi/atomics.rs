//! Atomic memory operations, blocking and not. An operation that need not wait for its end (`_nbi`)
//! is complete when it returns.

use std::ffi::c_int;

use crate::abi::export::export;
use crate::abi::types::{amo_types, bitwise_types};
use crate::atomic::{Op, change, perform, perform_nbi};
use crate::context::{self, Handle};

/// Returns the bits of a number.
macro_rules! bits {
    ($word:ty, $value:expr) => {
        <$word>::from_ne_bytes($value.to_ne_bytes())
    };
}

/// Exports a function that changes an object, with and without a context.
macro_rules! change_default {
    ($op:ident $kind:ty, $word:ty, [$($name:tt)*]) => {
        export!([$($name)*] (to: *mut $kind, value: $kind, pe: c_int) {
            let (f, value) = (concat!("shmem_", $($name)*), bits!($word, value));
            change::<$word>(f, context::default(), Op::$op, to.cast(), value, pe);
        });
    };
}

/// The same, and the form with a context.
macro_rules! change {
    ($op:ident $kind:ty, $word:ty, [$($name:tt)*]) => {
        change_default!($op $kind, $word, [$($name)*]);
        export!(["ctx_", $($name)*] (context: Handle, to: *mut $kind, value: $kind, pe: c_int) {
            let (f, value) = (concat!("shmem_ctx_", $($name)*), bits!($word, value));
            change::<$word>(f, context, Op::$op, to.cast(), value, pe);
        });
    };
}

/// Exports a function that changes an object and returns its former value.
macro_rules! fetch_default {
    ($op:ident $kind:ty, $word:ty, [$($name:tt)*]) => {
        export!([$($name)*] (to: *mut $kind, value: $kind, pe: c_int) -> $kind {
            let (f, value) = (concat!("shmem_", $($name)*), bits!($word, value));
            let former =
                perform::<$word>(f, context::default(), Op::$op, to.cast(), [value, 0], pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
    };
}

/// The same, and the form with a context.
macro_rules! fetch {
    ($op:ident $kind:ty, $word:ty, [$($name:tt)*]) => {
        fetch_default!($op $kind, $word, [$($name)*]);
        export!(["ctx_", $($name)*]
            (context: Handle, to: *mut $kind, value: $kind, pe: c_int) -> $kind {
            let (f, value) = (concat!("shmem_ctx_", $($name)*), bits!($word, value));
            let former = perform::<$word>(f, context, Op::$op, to.cast(), [value, 0], pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
    };
}

/// Exports a function that changes an object and writes its former value to memory.
macro_rules! fetch_nbi {
    ($op:ident $kind:ty, $word:ty, [$($name:tt)*]) => {
        export!([$($name)*] (fetched: *mut $kind, to: *mut $kind, value: $kind, pe: c_int) {
            let (f, value) = (concat!("shmem_", $($name)*), bits!($word, value));
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context::default(), Op::$op, to.cast(), [value, 0], pe, fetched) };
        });
        export!(["ctx_", $($name)*]
            (context: Handle, fetched: *mut $kind, to: *mut $kind, value: $kind, pe: c_int) {
            let (f, value) = (concat!("shmem_ctx_", $($name)*), bits!($word, value));
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context, Op::$op, to.cast(), [value, 0], pe, fetched) };
        });
    };
}

/// Exports reading, swapping and writing.
macro_rules! extended {
    ($name:ident $kind:ty, $word:ty) => {
        change!(Set $kind, $word, [stringify!($name), "_atomic_set"]);
        fetch!(Swap $kind, $word, [stringify!($name), "_atomic_swap"]);
        fetch_nbi!(Swap $kind, $word, [stringify!($name), "_atomic_swap_nbi"]);
        read!($kind, $word, [stringify!($name), "_atomic_fetch"],
            [stringify!($name), "_atomic_fetch_nbi"]);
    };
}

/// Exports reading.
macro_rules! read {
    ($kind:ty, $word:ty, [$($name:tt)*], [$($nbi:tt)*]) => {
        export!([$($name)*] (from: *const $kind, pe: c_int) -> $kind {
            let (f, from) = (concat!("shmem_", $($name)*), from.cast_mut().cast());
            let value = perform::<$word>(f, context::default(), Op::Fetch, from, [0, 0], pe);
            <$kind>::from_ne_bytes(value.to_ne_bytes())
        });
        export!(["ctx_", $($name)*] (context: Handle, from: *const $kind, pe: c_int) -> $kind {
            let (f, from) = (concat!("shmem_ctx_", $($name)*), from.cast_mut().cast());
            let value = perform::<$word>(f, context, Op::Fetch, from, [0, 0], pe);
            <$kind>::from_ne_bytes(value.to_ne_bytes())
        });
        export!([$($nbi)*] (fetched: *mut $kind, from: *const $kind, pe: c_int) {
            let (f, from) = (concat!("shmem_", $($nbi)*), from.cast_mut().cast());
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context::default(), Op::Fetch, from, [0, 0], pe, fetched) };
        });
        export!(["ctx_", $($nbi)*]
            (context: Handle, fetched: *mut $kind, from: *const $kind, pe: c_int) {
            let (f, from) = (concat!("shmem_ctx_", $($nbi)*), from.cast_mut().cast());
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context, Op::Fetch, from, [0, 0], pe, fetched) };
        });
    };
}

/// Exports compare-and-swap.
macro_rules! compare_swap {
    ($kind:ty, $word:ty, [$($name:tt)*], [$($nbi:tt)*]) => {
        export!([$($name)*] (to: *mut $kind, compare: $kind, value: $kind, pe: c_int) -> $kind {
            let f = concat!("shmem_", $($name)*);
            let values = [bits!($word, value), bits!($word, compare)];
            let former =
                perform::<$word>(f, context::default(), Op::CompareSwap, to.cast(), values, pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
        export!(["ctx_", $($name)*]
            (context: Handle, to: *mut $kind, compare: $kind, value: $kind, pe: c_int) -> $kind {
            let f = concat!("shmem_ctx_", $($name)*);
            let values = [bits!($word, value), bits!($word, compare)];
            let former = perform::<$word>(f, context, Op::CompareSwap, to.cast(), values, pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
        export!([$($nbi)*]
            (fetched: *mut $kind, to: *mut $kind, compare: $kind, value: $kind, pe: c_int) {
            let f = concat!("shmem_", $($nbi)*);
            let values = [bits!($word, value), bits!($word, compare)];
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context::default(), Op::CompareSwap, to.cast(), values, pe, fetched) };
        });
        export!(["ctx_", $($nbi)*] (context: Handle, fetched: *mut $kind, to: *mut $kind,
            compare: $kind, value: $kind, pe: c_int) {
            let f = concat!("shmem_ctx_", $($nbi)*);
            let values = [bits!($word, value), bits!($word, compare)];
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context, Op::CompareSwap, to.cast(), values, pe, fetched) };
        });
    };
}

/// Exports increment.
macro_rules! increment {
    ($kind:ty, $word:ty, [$($inc:tt)*], [$($fetch:tt)*], [$($nbi:tt)*]) => {
        export!([$($inc)*] (to: *mut $kind, pe: c_int) {
            let f = concat!("shmem_", $($inc)*);
            change::<$word>(f, context::default(), Op::Add, to.cast(), 1, pe);
        });
        export!(["ctx_", $($inc)*] (context: Handle, to: *mut $kind, pe: c_int) {
            let f = concat!("shmem_ctx_", $($inc)*);
            change::<$word>(f, context, Op::Add, to.cast(), 1, pe);
        });
        export!([$($fetch)*] (to: *mut $kind, pe: c_int) -> $kind {
            let f = concat!("shmem_", $($fetch)*);
            let former = perform::<$word>(f, context::default(), Op::Add, to.cast(), [1, 0], pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
        export!(["ctx_", $($fetch)*] (context: Handle, to: *mut $kind, pe: c_int) -> $kind {
            let f = concat!("shmem_ctx_", $($fetch)*);
            let former = perform::<$word>(f, context, Op::Add, to.cast(), [1, 0], pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
        export!([$($nbi)*] (fetched: *mut $kind, to: *mut $kind, pe: c_int) {
            let f = concat!("shmem_", $($nbi)*);
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context::default(), Op::Add, to.cast(), [1, 0], pe, fetched) };
        });
        export!(["ctx_", $($nbi)*]
            (context: Handle, fetched: *mut $kind, to: *mut $kind, pe: c_int) {
            let f = concat!("shmem_ctx_", $($nbi)*);
            let fetched = fetched.cast();
            // SAFETY: the standard's contract: `fetched` is writable.
            unsafe { perform_nbi::<$word>(f, context, Op::Add, to.cast(), [1, 0], pe, fetched) };
        });
    };
}

macro_rules! standard {
    ($name:ident $kind:ty, $word:ty) => {
        extended!($name $kind, $word);
        compare_swap!($kind, $word, [stringify!($name), "_atomic_compare_swap"],
            [stringify!($name), "_atomic_compare_swap_nbi"]);
        increment!($kind, $word, [stringify!($name), "_atomic_inc"],
            [stringify!($name), "_atomic_fetch_inc"], [stringify!($name), "_atomic_fetch_inc_nbi"]);
        change!(Add $kind, $word, [stringify!($name), "_atomic_add"]);
        fetch!(Add $kind, $word, [stringify!($name), "_atomic_fetch_add"]);
        fetch_nbi!(Add $kind, $word, [stringify!($name), "_atomic_fetch_add_nbi"]);
    };
}

macro_rules! standard_row {
    ($name:ident $kind:ident $word:ident) => {
        standard!($name $kind, $word);
    };
}
amo_types!(standard_row);
extended!(float f32, u32);
extended!(double f64, u64);

macro_rules! bitwise_row {
    ($name:ident $kind:ident $word:ident) => {
        change!(And $kind, $word, [stringify!($name), "_atomic_and"]);
        fetch!(And $kind, $word, [stringify!($name), "_atomic_fetch_and"]);
        fetch_nbi!(And $kind, $word, [stringify!($name), "_atomic_fetch_and_nbi"]);
        change!(Or $kind, $word, [stringify!($name), "_atomic_or"]);
        fetch!(Or $kind, $word, [stringify!($name), "_atomic_fetch_or"]);
        fetch_nbi!(Or $kind, $word, [stringify!($name), "_atomic_fetch_or_nbi"]);
        change!(Xor $kind, $word, [stringify!($name), "_atomic_xor"]);
        fetch!(Xor $kind, $word, [stringify!($name), "_atomic_fetch_xor"]);
        fetch_nbi!(Xor $kind, $word, [stringify!($name), "_atomic_fetch_xor_nbi"]);
    };
}
bitwise_types!(bitwise_row);

/// Exports the names before version 1.4 of the standard, for a type.
macro_rules! old_row {
    ($name:ident $kind:ident $word:ident) => {
        fetch_default!(Add $kind, $word, [stringify!($name), "_fadd"]);
        change_default!(Add $kind, $word, [stringify!($name), "_add"]);
        old_compare_swap!($kind, $word, [stringify!($name), "_cswap"]);
        old_increment!($kind, $word, [stringify!($name), "_inc"], [stringify!($name), "_finc"]);
        old_extended!($name $kind $word);
    };
}

macro_rules! old_extended {
    ($name:ident $kind:ident $word:ident) => {
        change_default!(Set $kind, $word, [stringify!($name), "_set"]);
        fetch_default!(Swap $kind, $word, [stringify!($name), "_swap"]);
        old_read!($kind, $word, [stringify!($name), "_fetch"]);
    };
}

macro_rules! old_read {
    ($kind:ty, $word:ty, [$($name:tt)*]) => {
        export!([$($name)*] (from: *const $kind, pe: c_int) -> $kind {
            let (f, from) = (concat!("shmem_", $($name)*), from.cast_mut().cast());
            let value = perform::<$word>(f, context::default(), Op::Fetch, from, [0, 0], pe);
            <$kind>::from_ne_bytes(value.to_ne_bytes())
        });
    };
}

macro_rules! old_compare_swap {
    ($kind:ty, $word:ty, [$($name:tt)*]) => {
        export!([$($name)*] (to: *mut $kind, compare: $kind, value: $kind, pe: c_int) -> $kind {
            let f = concat!("shmem_", $($name)*);
            let values = [bits!($word, value), bits!($word, compare)];
            let former =
                perform::<$word>(f, context::default(), Op::CompareSwap, to.cast(), values, pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
    };
}

macro_rules! old_increment {
    ($kind:ty, $word:ty, [$($inc:tt)*], [$($fetch:tt)*]) => {
        export!([$($inc)*] (to: *mut $kind, pe: c_int) {
            let f = concat!("shmem_", $($inc)*);
            change::<$word>(f, context::default(), Op::Add, to.cast(), 1, pe);
        });
        export!([$($fetch)*] (to: *mut $kind, pe: c_int) -> $kind {
            let f = concat!("shmem_", $($fetch)*);
            let former = perform::<$word>(f, context::default(), Op::Add, to.cast(), [1, 0], pe);
            <$kind>::from_ne_bytes(former.to_ne_bytes())
        });
    };
}
old_row!(int i32 u32);
old_row!(long i64 u64);
old_row!(longlong i64 u64);
old_extended!(float f32 u32);
old_extended!(double f64 u64);
