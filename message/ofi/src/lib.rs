//! libnagaya-fi.so: a provider for libfabric (FI_PROVIDER_PATH) that moves messages between the
//! tasks of one space, and lets them reach each other's memory.
//!
//! An endpoint is a port: a ring into which any number of senders write. Small messages travel in
//! the ring, most of them in one cache line. For a large message the ring carries only where it
//! lies: the receiver copies from the sender's buffer into its own, and the sender helps. Remote
//! memory operations and atomics are done by the caller, at once.
//!
//! `protocol` is the protocol between endpoints: pure, and modelled with loom (`tests/`). `engine`
//! has ports, progress and copies. `face` has libfabric's objects and calls, whose binary interface
//! is `abi`. Each uses only those before it.

pub mod abi;
mod engine;
mod face;
pub mod protocol;
