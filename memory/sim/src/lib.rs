//! The consistency protocols in virtual time: the code that runs in production
//! ([`coherence::scope::Node`]), on clusters of any size.
//!
//! A [`program`] is what its tasks do: touch memory, compute, take locks, meet at barriers. It
//! runs on a [`machine`]: nodes with memory ([`frames`]), a [`network`] between them, and times
//! for all that they do, which a [`cluster`] file says. What comes out is the time that the
//! program takes, the messages that it makes and what its tasks wait for ([`report`]), and
//! where wanted a [`trace`] of all of it and a recording of every node
//! ([`coherence::record`]).
//!
//! [`soak`] runs random programs whose results are known, on random clusters with faults.

pub mod cluster;
pub mod frames;
mod host;
pub mod machine;
pub mod network;
pub mod program;
pub mod protocol;
mod replica;
pub mod report;
pub mod soak;
pub mod task;
pub mod trace;
