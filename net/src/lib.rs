//! Messages between nodes: UCX carries them, each side proves to the other that it holds the
//! secret, and who waits sleeps in poll(2).
//!
//! ```no_run
//! # fn address_of_another() -> Vec<u8> { unimplemented!() }
//! use net::{event::Event, fabric::Fabric, secret::Secret};
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
//! # Ok::<(), net::error::FabricError>(())
//! ```
//!
//! [`fabric`] is what one uses, [`event`] what it tells, [`payload`] what it sends; by
//! [`wireup`] the processes of a parallel job tell each other their addresses. [`mesh`] is for
//! nodes that are connected each with each; [`mod@slice`] sets how soon a thread that was woken
//! gets a processor on which others compute.
//!
//! Below: `session` is one connection, [`order`] keeps its messages in order, [`secret`] is
//! who is who, [`wire`] what is said byte by byte. `worker` alone calls UCX, `inbox` is what
//! UCX calls; `config` is what we ask of it, `sockets` what it does not do for its sockets,
//! `signals` keeps the program's signals its own. [`launcher`] reads which launcher has started
//! the process; `pmix_client` and `pmi_client` are [`wireup`] by PMIx and by PMI-1, whose text is
//! [`pmi`]. [`hex`] writes bytes as text. [`ucp`] and [`pmix`] declare and load the two C
//! libraries, by the macros of `declare`.
//!
//! # For those who use it
//! - A process that forks keeps its fabric; its child has none, and must not drop it. Programs
//!   that are executed inherit no connection.
//! - One must [`poll`](fabric::Fabric::poll) when the descriptor is readable *and* at the
//!   [`deadline`](fabric::Fabric::deadline). Who computes for long is not lost: whether a host
//!   lives, its kernel answers. But what is sent to it waits.
//! - The end of a process is told at once, that of a host within 7 s.
//! - All of UCX's environment variables are in force: `UCX_NET_DEVICES` chooses the network,
//!   `UCX_TLS` the transports (if unset: all but shared memory), `UCX_LOG_LEVEL=info` shows
//!   what UCX does. What differs between hosts must not be the size of TCP's segments.

mod config;
mod declare;
pub mod error;
pub mod event;
pub mod fabric;
pub mod hex;
mod inbox;
pub mod launcher;
pub mod mesh;
pub mod order;
pub mod payload;
pub mod pmi;
mod pmi_client;
pub mod pmix;
mod pmix_client;
pub mod secret;
mod session;
mod signals;
pub mod slice;
mod sockets;
pub mod ucp;
pub mod wire;
pub mod wireup;
mod worker;
