//! Library setup, exit and query; thread support.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use crate::abi::export::export;
use crate::job;
use crate::setup;

/// The version of the standard.
const VERSION: [c_int; 2] = [1, 5];
/// `SHMEM_VENDOR_STRING`.
const VENDOR: &CStr = c"Nagaya";

export!(["init"] () { setup::init("shmem_init", 0); });
export!(["init_thread"] (wanted: c_int, provided: *mut c_int) -> c_int {
    let level = setup::init("shmem_init_thread", wanted);
    if !provided.is_null() {
        // SAFETY: the standard's contract: `provided` is writable.
        unsafe { *provided = level };
    }
    0
});
export!(["query_thread"] (provided: *mut c_int) {
    let level = job::get("shmem_query_thread").thread_level;
    // SAFETY: the standard's contract: `provided` is writable.
    unsafe { *provided = level };
});
export!(["query_initialized"] (is_initialised: *mut c_int) {
    // SAFETY: the standard's contract: the flag is writable.
    unsafe { *is_initialised = setup::state().0.into() };
});
export!(["finalize"] () { setup::finalize("shmem_finalize") });
export!(["global_exit"] (status: c_int) { setup::global_exit("shmem_global_exit", status) });
export!(["my_pe"] () -> c_int { job::get("shmem_my_pe").me as c_int });
export!(["n_pes"] () -> c_int { job::get("shmem_n_pes").n as c_int });
export!(["info_get_version"] (major: *mut c_int, minor: *mut c_int) {
    // SAFETY: the standard's contract: both are writable.
    unsafe { (*major, *minor) = (VERSION[0], VERSION[1]) };
});
export!(["info_get_name"] (name: *mut c_char) {
    let bytes = VENDOR.to_bytes_with_nul();
    // SAFETY: the standard's contract: the name has SHMEM_MAX_NAME_LEN bytes, more than this one.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), name, bytes.len()) };
});
export!(["pcontrol"] (_level: c_int) {});
