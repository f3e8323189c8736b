//! Messages between nodes: UCX carries them, each side proves to the other that it holds the
//! secret, and who waits sleeps in poll(2).
//!
//! ```no_run
//! # fn address_of_another() -> Vec<u8> { unimplemented!() }
//! use fabric::{event::Event, fabric::Fabric, secret::Secret};
//!
//! let secret = Secret::random();
//! let mut fabric = Fabric::new(1, &secret)?;
//! let peer = fabric.connect(&address_of_another())?;
//! fabric.send(peer, b"a header", b"a payload of any length".as_slice())?;
//! while let Some(event) = fabric.wait(std::time::Duration::from_secs(10))? {
//!     match event {
//!         Event::Message { from, header, payload } => println!("from {}", from.id),
//!         Event::Lost { peer, why } => println!("{} is gone: {why}", peer.id),
//!         _ => {}
//!     }
//! }
//! # Ok::<(), fabric::error::FabricError>(())
//! ```
//!
//! [`fabric`] is what one uses, [`event`] what it tells, [`payload`] what it sends.
//! Below: `session` is one connection, [`order`] keeps its messages in order, [`secret`] is
//! who is who, [`wire`] what is said byte by byte. `worker` alone calls UCX, whose interface
//! [`ucp`] declares and loads; `config` is what we ask of it, `signals` keeps the program's
//! signals its own.
//!
//! # For those who use it
//! - A process that forks keeps its fabric; its child has none, and must not drop it. UCX
//!   opens its sockets without `O_CLOEXEC`: a child that executes a program should close what
//!   it does not know (`close_range`), or peers notice the end of this process only when the
//!   child has ended, too.
//! - All of UCX's environment variables are in force: `UCX_NET_DEVICES` chooses the network,
//!   `UCX_TLS` the transports (if unset: all but shared memory), `UCX_LOG_LEVEL=info` shows
//!   what UCX does.

mod config;
pub mod error;
pub mod event;
pub mod fabric;
pub mod order;
pub mod payload;
pub mod secret;
mod session;
mod signals;
mod sockets;
pub mod ucp;
pub mod wire;
mod worker;
