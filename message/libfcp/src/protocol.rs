//! The numbers that C programs use for protocols.

use std::ffi::c_int;

use nagaya_fcp::protocol::Protocol;

use crate::failure::{Failure, invalid};

/// Returns the protocol that a number of `enum FCP_protocol` names; 0 is the default.
pub fn protocol_of(number: c_int) -> Result<Protocol, Failure> {
    let known = u8::try_from(number).ok().and_then(Protocol::of_number);
    match number {
        0 => Ok(Protocol::default()),
        _ => known.ok_or_else(|| invalid(format!("{number} is not an FCP_protocol"))),
    }
}
