//! Distributed locks.

use std::ffi::c_int;

use crate::abi::export::export;
use crate::lock::{self, Lock};

export!(["set_lock"] (lock: *mut Lock) {
    // SAFETY: the standard's contract: a symmetric `long`, used as a lock only.
    lock::set("shmem_set_lock", unsafe { &*lock })
});
export!(["clear_lock"] (lock: *mut Lock) {
    // SAFETY: the standard's contract: a symmetric `long`, used as a lock only.
    lock::clear("shmem_clear_lock", unsafe { &*lock })
});
export!(["test_lock"] (lock: *mut Lock) -> c_int {
    // SAFETY: the standard's contract: a symmetric `long`, used as a lock only.
    c_int::from(!lock::test("shmem_test_lock", unsafe { &*lock }))
});
