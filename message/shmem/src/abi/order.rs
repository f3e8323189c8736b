//! Memory ordering.

use crate::abi::export::export;
use crate::context::Handle;
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
export!(["ctx_quiet"] (_context: Handle) {
    job::get("shmem_ctx_quiet");
    rma::quiet();
});
