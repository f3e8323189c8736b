//! libfcp.so: FCP and VCL for C programs. The contract is `include/fcp.h`; here are only
//! arguments, errors and handles. All the rest is in the crate `nagaya-fcp`, called `way`
//! here.
//!
//! `window` has the calls of VCL, `port` those of FCP, `failure` the errors of both,
//! `alone` what keeps two threads from one port.

mod alone;
mod failure;
mod port;
mod window;
