//! The carrier over UCX, for RDMA devices. Only [`worker`] calls UCX, and `inbox` has UCX's
//! callbacks. `config` sets UCX's options, `sockets` adds options to its sockets, and [`ucp`]
//! declares and loads the library.

pub mod config;
mod inbox;
mod sockets;
pub mod ucp;
pub mod worker;
