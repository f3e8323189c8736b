//! Remote memory access: put and get.
//!
//! Within a node a call that need not wait for its end (`_nbi`) copies at once, like the others.
//! A put to another node is on the way when it returns, as a message or as a write of the network.

use std::ffi::{c_int, c_void};

use crate::abi::export::export;
use crate::abi::types::{rma_sizes, rma_types, value_types};
use crate::context::{self, Handle};
use crate::rma;
use crate::strides::Strides;

/// Exports put and get of elements, with and without a context. `$put` and `$get` are the names
/// without prefix.
macro_rules! elements {
    ($type:ty, $put_function:ident [$($put:tt)*], $get_function:ident [$($get:tt)*]) => {
        export!([$($put)*] (to: *mut $type, from: *const $type, n: usize, pe: c_int) {
            let (f, bytes) = (concat!("shmem_", $($put)*), n * size_of::<$type>());
            // SAFETY: the standard's contract: `from` has `n` elements.
            unsafe { rma::$put_function(f, context::default(), to.cast(), from.cast(), bytes, pe) }
        });
        export!(["ctx_", $($put)*]
            (context: Handle, to: *mut $type, from: *const $type, n: usize, pe: c_int) {
            let (f, bytes) = (concat!("shmem_ctx_", $($put)*), n * size_of::<$type>());
            // SAFETY: the standard's contract: `from` has `n` elements.
            unsafe { rma::$put_function(f, context, to.cast(), from.cast(), bytes, pe) }
        });
        export!([$($get)*] (to: *mut $type, from: *const $type, n: usize, pe: c_int) {
            let (f, bytes) = (concat!("shmem_", $($get)*), n * size_of::<$type>());
            // SAFETY: the standard's contract: `to` has `n` elements.
            unsafe { rma::$get_function(f, context::default(), to.cast(), from.cast(), bytes, pe) }
        });
        export!(["ctx_", $($get)*]
            (context: Handle, to: *mut $type, from: *const $type, n: usize, pe: c_int) {
            let (f, bytes) = (concat!("shmem_ctx_", $($get)*), n * size_of::<$type>());
            // SAFETY: the standard's contract: `to` has `n` elements.
            unsafe { rma::$get_function(f, context, to.cast(), from.cast(), bytes, pe) }
        });
    };
}

/// Exports put and get of strided elements, with and without a context.
macro_rules! strided {
    ($type:ty, [$($put:tt)*], [$($get:tt)*]) => {
        export!([$($put)*] (to: *mut $type, from: *const $type, target: isize, source: isize,
            n: usize, pe: c_int) {
            let (f, element) = (concat!("shmem_", $($put)*), size_of::<$type>());
            let (to, from, context) = (to.cast(), from.cast(), context::default());
            // SAFETY: the standard's contract: `from` has the elements.
            unsafe { rma::iput(f, context, to, from, Strides { element, target, source, n }, pe) }
        });
        export!(["ctx_", $($put)*] (context: Handle, to: *mut $type, from: *const $type,
            target: isize, source: isize, n: usize, pe: c_int) {
            let (f, element) = (concat!("shmem_ctx_", $($put)*), size_of::<$type>());
            let (to, from) = (to.cast(), from.cast());
            // SAFETY: the standard's contract: `from` has the elements.
            unsafe { rma::iput(f, context, to, from, Strides { element, target, source, n }, pe) }
        });
        export!([$($get)*] (to: *mut $type, from: *const $type, target: isize, source: isize,
            n: usize, pe: c_int) {
            let (f, element) = (concat!("shmem_", $($get)*), size_of::<$type>());
            let (to, from, context) = (to.cast(), from.cast(), context::default());
            // SAFETY: the standard's contract: `to` has the elements.
            unsafe { rma::iget(f, context, to, from, Strides { element, target, source, n }, pe) }
        });
        export!(["ctx_", $($get)*] (context: Handle, to: *mut $type, from: *const $type,
            target: isize, source: isize, n: usize, pe: c_int) {
            let (f, element) = (concat!("shmem_ctx_", $($get)*), size_of::<$type>());
            let (to, from) = (to.cast(), from.cast());
            // SAFETY: the standard's contract: `to` has the elements.
            unsafe { rma::iget(f, context, to, from, Strides { element, target, source, n }, pe) }
        });
    };
}

/// Exports the functions of a named type.
macro_rules! typed {
    ($name:ident $type:ty) => {
        elements!($type, put [stringify!($name), "_put"], get [stringify!($name), "_get"]);
        elements!($type, put_nbi [stringify!($name), "_put_nbi"],
            get_nbi [stringify!($name), "_get_nbi"]);
        strided!($type, [stringify!($name), "_iput"], [stringify!($name), "_iget"]);
    };
}
rma_types!(typed);

/// Exports the functions of a size in bits.
macro_rules! sized {
    ($bits:literal $type:ty) => {
        elements!($type, put ["put", $bits], get ["get", $bits]);
        elements!($type, put_nbi ["put", $bits, "_nbi"], get_nbi ["get", $bits, "_nbi"]);
        strided!($type, ["iput", $bits], ["iget", $bits]);
    };
}
rma_sizes!(sized);

elements!(u8, put["putmem"], get["getmem"]);
elements!(u8, put_nbi["putmem_nbi"], get_nbi["getmem_nbi"]);

/// Writes one value to a symmetric object.
///
/// # Safety
/// By the standard's rules nobody else writes the object.
#[inline(always)]
unsafe fn put_one<T>(f: &str, context: Handle, to: *mut T, value: T, pe: c_int) {
    let (job, peer) = context::target(f, context, pe);
    if peer.is_far() {
        let from = (&raw const value).cast();
        // SAFETY: `from` is a value of this type.
        return unsafe { rma::put(f, context, to.cast(), from, size_of::<T>(), pe) };
    }
    let at = job.reach(f, to.cast(), size_of::<T>(), peer);
    // SAFETY: `reach` has checked the object. A volatile write is one store, so a peer that polls
    // the object sees no part of it.
    unsafe { at.cast::<T>().write_volatile(value) };
    peer.wake();
}

/// Reads one value of a symmetric object.
///
/// # Safety
/// By the standard's rules nobody else writes the object.
#[inline(always)]
unsafe fn get_one<T>(f: &str, context: Handle, from: *const T, pe: c_int) -> T {
    let (job, peer) = context::target(f, context, pe);
    if peer.is_far() {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        // SAFETY: the bytes that `get` writes are those of a value.
        return unsafe {
            rma::get(f, context, value.as_mut_ptr().cast(), from.cast(), size_of::<T>(), pe);
            value.assume_init()
        };
    }
    let at = job.reach(f, from.cast(), size_of::<T>(), peer);
    // SAFETY: `reach` has checked the object.
    unsafe { at.cast::<T>().read_volatile() }
}

/// Exports the functions on one value.
macro_rules! valued {
    ($name:ident $type:ty) => {
        export!([stringify!($name), "_p"] (to: *mut $type, value: $type, pe: c_int) {
            let f = concat!("shmem_", stringify!($name), "_p");
            // SAFETY: the standard's contract.
            unsafe { put_one(f, context::default(), to, value, pe) }
        });
        export!(["ctx_", stringify!($name), "_p"]
            (context: Handle, to: *mut $type, value: $type, pe: c_int) {
            let f = concat!("shmem_ctx_", stringify!($name), "_p");
            // SAFETY: the standard's contract.
            unsafe { put_one(f, context, to, value, pe) }
        });
        export!([stringify!($name), "_g"] (from: *const $type, pe: c_int) -> $type {
            let f = concat!("shmem_", stringify!($name), "_g");
            // SAFETY: the standard's contract.
            unsafe { get_one(f, context::default(), from, pe) }
        });
        export!(["ctx_", stringify!($name), "_g"]
            (context: Handle, from: *const $type, pe: c_int) -> $type {
            let f = concat!("shmem_ctx_", stringify!($name), "_g");
            // SAFETY: the standard's contract.
            unsafe { get_one(f, context, from, pe) }
        });
    };
}
value_types!(valued);

export!(["ptr"] (object: *const c_void, pe: c_int) -> *mut c_void {
    let job = crate::job::get("shmem_ptr");
    let peer = job.peer("shmem_ptr", pe);
    job.find(object.cast(), peer).map_or(std::ptr::null_mut(), |at| at.cast())
});
