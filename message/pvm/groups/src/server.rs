//! Exports for programs that query PVM's group server, such as Debian's `pvm_gstat` and
//! `pvmgroups`. Nagaya has no group server, and these symbols report that.
//!
//! libgpvm3 has further exports without a manual page: `gs_...`, `gstid`, `int_query_server`,
//! `pvm_gsdump`. They are internals of library and server, and no header declares them. The
//! messages and tables on which they work do not exist here, so they are not exported.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use pvm::error::Error;

/// Time limit for the server's answer: a `struct timeval`, or null for none.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static pvmgs_tmout: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Returns the error NotFound instead of the group server's tid.
#[unsafe(no_mangle)]
pub extern "C" fn gs_getgstid() -> c_int {
    Error::NotFound.code()
}
