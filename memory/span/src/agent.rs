//! A node's agent: a thread of Nagaya on each node, at the origin with its own descriptor table. It
//! drives the coherence protocol by the [page engine](node), and answers requests of the program's
//! threads. At the origin it also keeps the memory map, the futex queues and the placement of
//! threads. On other nodes threads drive the engine, too: [`driving`].
//!
//! [`state`] has the data; the other files have the agent's methods, by topic.

mod callers;
mod change;
mod counts;
mod driver;
mod drives;
mod driving;
mod end;
mod files;
mod fork_queue;
mod forks;
mod load;
mod local;
mod map_requests;
mod mapping;
mod messages;
mod moves;
mod orders;
mod origin;
mod origin_requests;
mod packer;
mod packing;
mod protections;
mod report;
mod requests;
mod returning;
mod seen;
mod shared;
mod state;
mod texts;
mod waits;

pub use orders::{Orders, order};
pub use origin::Origin;
pub use state::{Agent, Parts, ReportFile};
