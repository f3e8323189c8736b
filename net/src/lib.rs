//! Messages between nodes. TCP or UCX carries them, each side proves to the other that it holds the
//! job's secret, and a waiting thread sleeps in poll(2).
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
//! The interface is [`fabric`], with [`event`] for its events and [`payload`] for message bodies.
//! By [`wireup`] the processes of a parallel job exchange their addresses. [`mesh`] connects each
//! node of a job with each other. [`mod@slice`] shortens the time until a woken thread gets a
//! processor on which others compute.
//!
//! The implementation has these parts. `session` is one connection, [`order`] keeps its messages in
//! order, [`secret`] authenticates, and [`wire`] is the wire format. [`carrier`] is the trait of
//! carriers, which `carriers` chooses: `local`, `tcp`, and [`ucx`]. `stream` has the records of the
//! first two. `sockets` sets options of TCP sockets, and `signals` preserves the program's signal
//! handlers. [`launcher`] detects the launcher of the process. `pmix_client` and `pmi_client`
//! implement [`wireup`] by PMIx and by PMI-1, whose text is [`pmi`]. [`rendezvous`] is both sides
//! of the socket of `nagaya run`. [`hex`] writes bytes as text. [`ucx::ucp`]
//! and [`pmix`] declare and load the two C libraries, by the macros of `declare`.
//! [`one_sided`] reads and writes memory of peers by RDMA.
//! `fuzz` has the entry points of the fuzz targets. `simulation` is a network within a thread, for
//! tests only.
//!
//! # For users of this crate
//! - A process that forks keeps its fabric. Its child has none, and must not drop it. Executed
//!   programs inherit no connection.
//! - Call [`poll`](fabric::Fabric::poll) when the descriptor is readable *and* at the
//!   [`deadline`](fabric::Fabric::deadline). A process that computes for long is not lost, since
//!   its kernel answers for the host, but messages to it wait.
//! - The end of a process is reported at once, and that of a host within 7 s.
//! - `NAGAYA_NET` names the carriers (see `carriers`), and `NAGAYA_NET_DEVICES` the interfaces on
//!   which `tcp` listens. UCX's environment variables apply to UCX.

pub mod carrier;
mod carriers;
mod declare;
pub mod error;
pub mod event;
pub mod fabric;
#[doc(hidden)]
pub mod fuzz;
pub mod hex;
pub mod launcher;
mod local;
pub mod mesh;
pub mod one_sided;
pub mod order;
pub mod payload;
pub mod pmi;
mod pmi_client;
pub mod pmix;
mod pmix_client;
pub mod rendezvous;
pub mod secret;
mod session;
mod signals;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod slice;
mod sockets;
mod stream;
mod tcp;
pub mod ucx;
pub mod wire;
pub mod wireup;
