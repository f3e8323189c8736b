//! libfcp.so: FCP and VCL for C programs. The contract is `include/fcp.h`. This crate has only
//! arguments, errors and handles; the crate `nagaya-fcp` does the work.
//!
//! `window` has the calls of VCL, `port` those of FCP, `protocol` the numbers of protocols,
//! `failure` the errors. `alone` excludes two threads from using one port at a time.

mod alone;
mod failure;
mod port;
mod protocol;
mod window;
