//! What libgpvm3 exports of PVM's group server, which there is none of here: as much as
//! programs need that ask it (Debian's `pvm_gstat` and `pvmgroups`), to say that there is none.
//!
//! The rest of libgpvm3's exports that PVM's manual does not have (`gs_...`, `gstid`,
//! `int_query_server`, `pvm_gsdump`) is what library and server are made of: no header declares
//! them, and the server's messages and tables, which they work on, are not here.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;

use pvm::error::Error;

/// How long such programs wait for the server's answer, a `struct timeval` or null for ever.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static pvmgs_tmout: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The group server's tid: NotFound, there is none.
#[unsafe(no_mangle)]
pub extern "C" fn gs_getgstid() -> c_int {
    Error::NotFound.code()
}
