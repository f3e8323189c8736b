//! The carrier over UCX, for RDMA devices. Only [`worker`] and `memory` call UCX, and `inbox` has
//! UCX's callbacks. `config` sets UCX's options, `sockets` adds options to its sockets, and [`ucp`]
//! declares and loads the library.

pub mod config;
mod inbox;
mod memory;
mod sockets;
pub mod ucp;
pub mod worker;
