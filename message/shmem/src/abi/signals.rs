//! Signalling operations: a put, and an update of a word that tells the target about it.

use std::ffi::c_int;

use crate::abi::export::export;
use crate::abi::types::{rma_sizes, rma_types};
use crate::atomic::{Op, change, perform};
use crate::context::{self, Handle};
use crate::fatal::fatal;
use crate::rma;

/// `SHMEM_SIGNAL_SET` and `SHMEM_SIGNAL_ADD`.
const SET: c_int = 0;
const ADD: c_int = 1;

/// Returns the operation on a signal that `kind` names.
#[inline(always)]
fn operation(f: &str, kind: c_int) -> Op {
    match kind {
        SET => Op::Set,
        ADD => Op::Add,
        _ => fatal!(f, "{kind} is no operation on a signal"),
    }
}

/// Updates a signal.
#[inline(always)]
fn update(f: &str, context: Handle, to: *mut u64, signal: u64, kind: c_int, pe: c_int) {
    change::<u64>(f, context, operation(f, kind), to.cast(), signal, pe);
}

/// Exports a put with a signal, with and without a context, blocking and not.
macro_rules! put_signal {
    ($type:ty, [$($name:tt)*]) => {
        export!([$($name)*] (to: *mut $type, from: *const $type, n: usize, word: *mut u64,
            signal: u64, kind: c_int, pe: c_int) {
            let (f, bytes) = (concat!("shmem_", $($name)*), n * size_of::<$type>());
            // SAFETY: the standard's contract: `from` has `n` elements.
            unsafe {
                let (context, signal) = (context::default(), (word, operation(f, kind), signal));
                rma::put_signal(f, context, to.cast(), from.cast(), bytes, signal, pe)
            };
        });
        export!(["ctx_", $($name)*] (context: Handle, to: *mut $type, from: *const $type, n: usize,
            word: *mut u64, signal: u64, kind: c_int, pe: c_int) {
            let (f, bytes) = (concat!("shmem_ctx_", $($name)*), n * size_of::<$type>());
            // SAFETY: the standard's contract: `from` has `n` elements.
            unsafe {
                let signal = (word, operation(f, kind), signal);
                rma::put_signal(f, context, to.cast(), from.cast(), bytes, signal, pe)
            };
        });
    };
}

macro_rules! typed {
    ($name:ident $type:ty) => {
        put_signal!($type, [stringify!($name), "_put_signal"]);
        put_signal!($type, [stringify!($name), "_put_signal_nbi"]);
    };
}
rma_types!(typed);

macro_rules! sized {
    ($bits:literal $type:ty) => {
        put_signal!($type, ["put", $bits, "_signal"]);
        put_signal!($type, ["put", $bits, "_signal_nbi"]);
    };
}
rma_sizes!(sized);
put_signal!(u8, ["putmem_signal"]);
put_signal!(u8, ["putmem_signal_nbi"]);

export!(["signal_fetch"] (word: *const u64) -> u64 {
    let job = crate::job::get("shmem_signal_fetch");
    let (f, me) = ("shmem_signal_fetch", job.me as c_int);
    perform::<u64>(f, context::default(), Op::Fetch, word.cast_mut().cast(), [0, 0], me)
});
export!(["signal_set"] (word: *mut u64, signal: u64, pe: c_int) {
    update("shmem_signal_set", context::default(), word, signal, SET, pe);
});
export!(["ctx_signal_set"] (context: Handle, word: *mut u64, signal: u64, pe: c_int) {
    update("shmem_ctx_signal_set", context, word, signal, SET, pe);
});
export!(["signal_add"] (word: *mut u64, signal: u64, pe: c_int) {
    update("shmem_signal_add", context::default(), word, signal, ADD, pe);
});
export!(["ctx_signal_add"] (context: Handle, word: *mut u64, signal: u64, pe: c_int) {
    update("shmem_ctx_signal_add", context, word, signal, ADD, pe);
});
