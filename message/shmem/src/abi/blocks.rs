//! Put and get of blocks at regular distances.

use std::ffi::c_int;

use crate::abi::export::export;
use crate::abi::types::{rma_sizes, rma_types};
use crate::context::{self, Handle};
use crate::rma;

/// The layout of the blocks of an operation.
#[derive(Clone, Copy)]
struct Blocks {
    /// Bytes of an element.
    element: usize,
    /// Elements from the start of a block to the next start, in the target and in the source.
    target: isize,
    source: isize,
    /// Elements of a block.
    size: usize,
    /// Number of blocks.
    n: usize,
}

impl Blocks {
    fn bytes(&self) -> usize {
        self.size * self.element
    }

    /// Returns the distances in bytes of block `n` from the first, in the target and the source.
    fn distances(&self, n: usize) -> (isize, isize) {
        let bytes = n as isize * self.element as isize;
        (bytes * self.target, bytes * self.source)
    }
}

/// # Safety
/// That of [`rma::put`], for each block.
unsafe fn put(f: &str, context: Handle, to: *mut u8, from: *const u8, blocks: Blocks, pe: c_int) {
    for n in 0..blocks.n {
        let (target, source) = blocks.distances(n);
        let (to, from) = (to.wrapping_offset(target), from.wrapping_offset(source));
        // SAFETY: this function has the contract of the called one.
        unsafe { rma::put(f, context, to, from, blocks.bytes(), pe) }
    }
}

/// # Safety
/// That of [`rma::get`], for each block.
unsafe fn get(f: &str, context: Handle, to: *mut u8, from: *const u8, blocks: Blocks, pe: c_int) {
    for n in 0..blocks.n {
        let (target, source) = blocks.distances(n);
        let (to, from) = (to.wrapping_offset(target), from.wrapping_offset(source));
        // SAFETY: this function has the contract of the called one.
        unsafe { rma::get(f, context, to, from, blocks.bytes(), pe) }
    }
}

/// Exports `$function` of blocks of a type, with and without a context.
macro_rules! one_way {
    ($function:ident, $type:ty, [$($name:tt)*]) => {
        export!([$($name)*] (to: *mut $type, from: *const $type, target: isize, source: isize,
            size: usize, n: usize, pe: c_int) {
            let (f, element) = (concat!("shmem_", $($name)*), size_of::<$type>());
            let blocks = Blocks { element, target, source, size, n };
            // SAFETY: the standard's contract: the local array has the blocks.
            unsafe { $function(f, context::default(), to.cast(), from.cast(), blocks, pe) }
        });
        export!(["ctx_", $($name)*] (context: Handle, to: *mut $type, from: *const $type,
            target: isize, source: isize, size: usize, n: usize, pe: c_int) {
            let (f, element) = (concat!("shmem_ctx_", $($name)*), size_of::<$type>());
            let blocks = Blocks { element, target, source, size, n };
            // SAFETY: the standard's contract: the local array has the blocks.
            unsafe { $function(f, context, to.cast(), from.cast(), blocks, pe) }
        });
    };
}

macro_rules! typed {
    ($name:ident $type:ty) => {
        one_way!(put, $type, [stringify!($name), "_ibput"]);
        one_way!(get, $type, [stringify!($name), "_ibget"]);
    };
}
rma_types!(typed);

macro_rules! sized {
    ($bits:literal $type:ty) => {
        one_way!(put, $type, ["ibput", $bits]);
        one_way!(get, $type, ["ibget", $bits]);
    };
}
rma_sizes!(sized);
