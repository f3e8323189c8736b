//! The protocol between endpoints, without libfabric and without system calls.
//!
//! Receives and messages meet in `matching`. Receives for large messages are published in a table
//! (`posted`), where senders claim them. A large message that has no published receive has a
//! `record`, by which its sender and its receiver meet. `wire` is the format of messages in a ring.
//! The rest are data structures: a buffer in `parts`, a `receive`, the `place` where it is
//! published, a `slab` of numbered things, and `cache` prefetches lines.

pub mod cache;
pub mod matching;
pub mod parts;
pub mod place;
pub mod posted;
pub mod receive;
pub mod record;
pub mod slab;
pub mod wire;
