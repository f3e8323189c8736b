//! libpvm3: PVM's library for programs in C, `libpvm3.so.3`, and what it is made of for
//! programs in Rust.
//!
//! Two floors: [`task`] is a PVM task as a safe Rust API; `c` are the functions of `pvm3.h` on
//! top of it, with PVM's own error codes and messages.

// Constants and functions keep the names that pvm3.h gives them.
#[allow(non_upper_case_globals)]
mod c;
pub mod task;
