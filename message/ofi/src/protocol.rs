//! The protocol between endpoints, without libfabric and without system calls.
//!
//! `matching` matches receives and messages. Receives for large messages are published in a table
//! (`posted`), where senders claim them. A large message without a claimed receive has a `record`,
//! by which its sender and its receiver meet. `wire` is the format of messages in a ring.
//!
//! The rest are data structures: `parts` of a buffer, a `receive`, a `slot_use` of the table, and a
//! `slab` of numbered objects. `cache` prefetches lines.

pub mod cache;
pub mod matching;
pub mod parts;
pub mod posted;
pub mod receive;
pub mod record;
pub mod slab;
pub mod slot_use;
pub mod wire;
