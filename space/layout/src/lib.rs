//! Addresses and IDs of a partitioned virtual address space.
//!
//! A *space* takes a window of the address space: a control area (the gate's code, the
//! table of tasks) followed by equal *segments*. Segment `id` begins at
//! `base + id × segment_size` (Shimada et al., PVAS, §2.2); its head is the *export
//! area*. Everything here is arithmetic: no system call, no allocation, no state.
//!
//! ```text
//! window  │ control area, 1 GiB │ segment 0 │ segment 1 │ …
//! segment │ export │ control block │ bitmaps │ stubs │ image │ heap → │ mmap area │ stack │
//! ```
//!
//! Windows, and the parts of a segment behind its head, lie at random addresses unless their owner
//! wants fixed ones. [`Seed`] has the random numbers.
#![no_std]

#[cfg(test)]
extern crate std;

mod shifts;
mod space;

pub use shifts::Seed;
pub use space::*;
