//! Deprecated collective operations of active sets. Work arrays are not used: see
//! `collectives::sets`.

use std::ffi::{c_int, c_long, c_void};

use outbox::number::{Complex, LongDouble, Operation};

use crate::abi::collectives::{alltoalls, broadcast, call, kernel};
use crate::abi::export::export;
use crate::collectives::channel::{self, Channel};
use crate::collectives::reduce::Kernel;
use crate::collectives::sets::{self, Set};
use crate::fatal::fatal;
use crate::rma;

/// Calls an operation of an active set.
#[inline(always)]
fn on_set(
    f: &'static str,
    [start, log_stride, size]: [c_int; 3],
    operation: impl FnOnce(&mut Channel),
) {
    operation(&mut channel::of(f, sets::team(f, Set { start, log_stride, size })));
}

export!(["barrier"] (start: c_int, log_stride: c_int, size: c_int, _work: *mut c_long) {
    let f = "shmem_barrier";
    rma::quiet();
    on_set(f, [start, log_stride, size], |channel| channel.sync(f))
});
export!(["sync"] (start: c_int, log_stride: c_int, size: c_int, _work: *mut c_long) {
    let f = "shmem_sync";
    on_set(f, [start, log_stride, size], |channel| channel.sync(f))
});

/// Exports the operations that move elements of a size in bits.
macro_rules! moves {
    ($bits:literal) => {
        export!(["broadcast", $bits] (dest: *mut c_void, source: *const c_void, n: usize,
            root: c_int, start: c_int, log_stride: c_int, size: c_int, _work: *mut c_long) {
            let call = call(concat!("shmem_broadcast", $bits), dest, source, n, $bits / 8);
            // The first operation on a set waits for its other PEs. A wrong root must not wait.
            if !(0..size).contains(&root) {
                fatal!(call.f, "PE_root {root} does not exist; there are {size} PEs");
            }
            let set = [start, log_stride, size];
            on_set(call.f, set, |channel| broadcast(channel, call, root, false))
        });
        export!(["collect", $bits] (dest: *mut c_void, source: *const c_void, n: usize,
            start: c_int, log_stride: c_int, size: c_int, _work: *mut c_long) {
            let call = call(concat!("shmem_collect", $bits), dest, source, n, $bits / 8);
            let set = [start, log_stride, size];
            // SAFETY: the standard's contract of this function.
            on_set(call.f, set, |channel| unsafe { channel.collect(call, false) })
        });
        export!(["fcollect", $bits] (dest: *mut c_void, source: *const c_void, n: usize,
            start: c_int, log_stride: c_int, size: c_int, _work: *mut c_long) {
            let call = call(concat!("shmem_fcollect", $bits), dest, source, n, $bits / 8);
            let set = [start, log_stride, size];
            // SAFETY: the standard's contract of this function.
            on_set(call.f, set, |channel| unsafe { channel.collect(call, true) })
        });
        export!(["alltoall", $bits] (dest: *mut c_void, source: *const c_void, n: usize,
            start: c_int, log_stride: c_int, size: c_int, _work: *mut c_long) {
            let call = call(concat!("shmem_alltoall", $bits), dest, source, n, $bits / 8);
            let set = [start, log_stride, size];
            // SAFETY: the standard's contract of this function.
            on_set(call.f, set, |channel| unsafe { channel.alltoall(call) })
        });
        export!(["alltoalls", $bits] (dest: *mut c_void, source: *const c_void, dst: isize,
            sst: isize, n: usize, start: c_int, log_stride: c_int, size: c_int,
            _work: *mut c_long) {
            let call = call(concat!("shmem_alltoalls", $bits), dest, source, n, $bits / 8);
            let set = [start, log_stride, size];
            on_set(call.f, set, |channel| alltoalls(channel, call, $bits / 8, [dst, sst]))
        });
    };
}
moves!(32);
moves!(64);

/// Exports a reduction.
macro_rules! reduce {
    ($operation:ident $type:ty, [$($name:tt)*]) => {
        export!([$($name)*] (dest: *mut c_void, source: *const c_void, n: c_int, start: c_int,
            log_stride: c_int, size: c_int, _room: *mut c_void, _work: *mut c_long) {
            const KERNEL: Kernel = kernel::<$type>(Operation::$operation);
            let f = concat!("shmem_", $($name)*);
            let Ok(n) = usize::try_from(n) else { fatal!(f, "nreduce is {n}") };
            let call = call(f, dest, source, n, KERNEL.size);
            let set = [start, log_stride, size];
            // SAFETY: the standard's contract of this function.
            on_set(f, set, |channel| unsafe { channel.reduce(call, KERNEL) })
        });
    };
}

macro_rules! sums {
    ($name:ident $type:ty) => {
        reduce!(Sum $type, [stringify!($name), "_sum_to_all"]);
        reduce!(Product $type, [stringify!($name), "_prod_to_all"]);
    };
}

macro_rules! ordered {
    ($name:ident $type:ty) => {
        reduce!(Max $type, [stringify!($name), "_max_to_all"]);
        reduce!(Min $type, [stringify!($name), "_min_to_all"]);
        sums!($name $type);
    };
}

macro_rules! bits {
    ($name:ident $type:ty) => {
        reduce!(And $type, [stringify!($name), "_and_to_all"]);
        reduce!(Or $type, [stringify!($name), "_or_to_all"]);
        reduce!(Xor $type, [stringify!($name), "_xor_to_all"]);
        ordered!($name $type);
    };
}
bits!(short i16);
bits!(int i32);
bits!(long i64);
bits!(longlong i64);
ordered!(float f32);
ordered!(double f64);
ordered!(longdouble LongDouble);
sums!(complexf Complex<f32>);
sums!(complexd Complex<f64>);
