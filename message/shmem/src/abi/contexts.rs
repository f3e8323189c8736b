//! Communication management. The options of a context are hints, which change nothing here.

use std::ffi::{c_int, c_long};

use crate::abi::export::export;
use crate::context::{self, Handle};
use crate::job;
use crate::rma;
use crate::team::{self, Handle as TeamHandle};

export!(["ctx_create"] (_options: c_long, created: *mut Handle) -> c_int {
    let team = team::world("shmem_ctx_create");
    // SAFETY: the standard's contract: `created` is writable.
    unsafe { *created = context::create(team) };
    0
});
export!(["team_create_ctx"] (team: TeamHandle, _options: c_long, created: *mut Handle) -> c_int {
    let Some(team) = team::get("shmem_team_create_ctx", team) else { return -1 };
    // SAFETY: the standard's contract: `created` is writable.
    unsafe { *created = context::create(team) };
    0
});
export!(["ctx_destroy"] (context: Handle) {
    if !context.is_null() {
        rma::quiet_context("shmem_ctx_destroy", context);
    }
    // SAFETY: the standard's contract.
    unsafe { context::destroy("shmem_ctx_destroy", context) }
});
export!(["ctx_get_team"] (context: Handle, found: *mut TeamHandle) -> c_int {
    let team = match context.addr() {
        0 => std::ptr::null_mut(),
        context::DEFAULT => std::ptr::without_provenance_mut(team::WORLD),
        // SAFETY: the standard's contract: a context that lives.
        _ => unsafe { team::handle((*context).team) },
    };
    // SAFETY: the standard's contract: `found` is writable.
    unsafe { *found = team };
    // SHMEM_CTX_INVALID has SHMEM_TEAM_INVALID, and the call fails.
    if team.is_null() { -1 } else { 0 }
});

/// Hints for the operations of a session. Inside a node there is nothing to tune.
#[repr(C)]
struct SessionConfig {
    total_ops: usize,
}

export!(["ctx_session_start"]
    (_context: Handle, _options: c_long, _config: *const SessionConfig, _mask: c_long) {
    job::get("shmem_ctx_session_start");
});
export!(["ctx_session_stop"] (_context: Handle) {
    job::get("shmem_ctx_session_stop");
});
