//! Memory ordering.

use std::ffi::c_int;

use crate::abi::export::export;
use crate::context::{self, Handle};
use crate::{job, rma};

export!(["fence"] () {
    job::get("shmem_fence");
    rma::fence();
});
export!(["ctx_fence"] (_context: Handle) {
    job::get("shmem_ctx_fence");
    rma::fence();
});
export!(["quiet"] () {
    job::get("shmem_quiet");
    rma::quiet();
});
export!(["ctx_quiet"] (context: Handle) {
    job::get("shmem_ctx_quiet");
    rma::quiet_context("shmem_ctx_quiet", context);
});
export!(["pe_quiet"] (pes: *const c_int, n: usize) {
    // SAFETY: the standard's contract: `n` numbers.
    unsafe { pe_quiet("shmem_pe_quiet", context::default(), pes, n) }
});
export!(["ctx_pe_quiet"] (context: Handle, pes: *const c_int, n: usize) {
    // SAFETY: the standard's contract: `n` numbers.
    unsafe { pe_quiet("shmem_ctx_pe_quiet", context, pes, n) }
});

/// Completes the operations towards `n` PEs. All PEs' operations are completed together.
///
/// # Safety
/// `pes` has `n` numbers.
unsafe fn pe_quiet(f: &str, context: Handle, pes: *const c_int, n: usize) {
    let job = job::get(f);
    for at in 0..n {
        // SAFETY: the caller guarantees `n` numbers.
        job.peer(f, context::pe(f, context, unsafe { *pes.add(at) }));
    }
    rma::quiet_context(f, context);
}
