//! Deprecated names, and operations on caches, which have no effect on coherent processors.

use std::ffi::{c_int, c_void};

use crate::abi::export::export;
use crate::abi::memory;
use crate::heap::UNIT;
use crate::job;
use crate::setup;

/// Defines a function whose name has no prefix `shmem_`.
macro_rules! plain {
    ([$name:literal, $profiled:literal] ($($argument:ident: $type:ty),*) $(-> $result:ty)?
        { $($body:tt)* }) => {
        const _: () = {
            #[unsafe(export_name = $name)]
            extern "C" fn public($($argument: $type),*) $(-> $result)? { $($body)* }
            #[unsafe(export_name = $profiled)]
            extern "C" fn profiled($($argument: $type),*) $(-> $result)? { $($body)* }
        };
    };
}

plain!(["start_pes", "pstart_pes"] (_n: c_int) {
    if !setup::state().0 {
        setup::init("start_pes", 0);
    }
});
plain!(["_my_pe", "p_my_pe"] () -> c_int { job::get("_my_pe").me as c_int });
plain!(["_num_pes", "p_num_pes"] () -> c_int { job::get("_num_pes").n as c_int });

plain!(["shmalloc", "pshmalloc"] (bytes: usize) -> *mut c_void {
    memory::allocate("shmalloc", bytes, UNIT)
});
plain!(["shmemalign", "pshmemalign"] (alignment: usize, bytes: usize) -> *mut c_void {
    memory::align("shmemalign", alignment, bytes)
});
plain!(["shfree", "pshfree"] (at: *mut c_void) { memory::free("shfree", at) });
plain!(["shrealloc", "pshrealloc"] (at: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the standard's contract.
    unsafe { memory::realloc("shrealloc", at, bytes) }
});

export!(["set_cache_inv"] () {});
export!(["set_cache_line_inv"] (_object: *mut c_void) {});
export!(["clear_cache_inv"] () {});
export!(["clear_cache_line_inv"] (_object: *mut c_void) {});
export!(["udcflush"] () {});
export!(["udcflush_line"] (_object: *mut c_void) {});
