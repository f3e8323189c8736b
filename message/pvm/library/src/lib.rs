//! libpvm3: PVM's library for programs in C, `libpvm3.so.3`, and its Rust core.
//!
//! It has two layers. [`task`] is a PVM task as a safe Rust API. `c` has the functions of `pvm3.h`
//! on top of it, with PVM's error codes and messages.

// Constants and functions keep the names that pvm3.h gives them.
#[allow(non_upper_case_globals)]
mod c;
pub mod task;
