//! The consistency protocols in virtual time: the code that runs in production
//! ([`coherence::scope::Node`], [`coherence::sequential::Node`]), on clusters of any size.
//!
//! A [`program`] defines the operations of its tasks: they touch memory, compute, acquire locks and
//! meet at barriers. It runs on a [`machine`] with a [`setup`]: nodes with memory ([`frames`]), a
//! [`network`] between them, and the times of a [`cluster`] file. The result is the time that the
//! program takes, its messages, and the times that its tasks wait ([`report`]). On request the
//! machine writes a [`trace`], and records every node ([`coherence::record`]).
//!
//! [`soak`] runs random programs with known results, on random clusters with [`faults`].

pub mod cluster;
pub mod faults;
pub mod frames;
mod host;
pub mod machine;
pub mod network;
pub mod program;
pub mod protocol;
pub mod report;
pub mod setup;
pub mod soak;
pub mod task;
pub mod trace;
