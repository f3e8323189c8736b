//! libnagaya-fi.so: a provider for libfabric (FI_PROVIDER_PATH). It carries messages between the
//! tasks of one space, and accesses their memory.
//!
//! An endpoint has a port: a ring into which any number of senders write. A small message travels
//! in the ring, mostly in one cache line. For a large message the ring carries a request to send.
//! The receiver copies the message from the sender's buffer into its own, and the sender helps. The
//! caller of a remote memory operation or an atomic operation executes it, at once.
//!
//! `protocol` is the protocol between endpoints: pure, and modelled with loom (`tests/`). `engine`
//! drives it: ports, progress and copies. `face` has libfabric's objects and calls, and `abi` is
//! its binary interface. Each module uses only those before it.

pub mod abi;
mod engine;
mod face;
#[doc(hidden)]
pub mod fuzz;
pub mod protocol;
